"""The ledger that pays for a release: the one that is named, that of the environment, or the default one."""

from __future__ import annotations

import os
from pathlib import Path

DEFAULT_LEDGER = "dphist-ledger.db"


def ledger_of(named: str | os.PathLike[str] | None) -> tuple[Path, bool]:
    """Return the ledger, and whether it is to be made: only the default one, which nobody has named.

    Args:
        named: the ledger that was named, if one was; otherwise that of $DPHIST_LEDGER, or the default one.
    """
    chosen = named or os.environ.get("DPHIST_LEDGER")
    path = Path(chosen or DEFAULT_LEDGER)
    return path, chosen is None and not path.exists()
