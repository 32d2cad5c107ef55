"""Where a studio starts; what takes long to import is not needed to say that."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from dphist.errors import UsageError


@dataclass(frozen=True)
class Start:
    """What was named on the command line.

    Args:
        folder: the folder that exists for the page.
        plan: a plan file in it.
        data: records, if a file of them or a database was named instead.
        ledger: a ledger, which may lie elsewhere.
    """

    folder: Path
    plan: Path | None = None
    data: str | None = None
    ledger: Path | None = None

    @staticmethod
    def of(named: str | None, ledger: Path | None) -> Start:
        """Return where a studio starts: in the folder of the file that was named, or here."""
        if ledger is not None and not ledger.exists():
            raise UsageError(
                f"there is no ledger {ledger}; make it with: dphist ledger create {shlex.quote(str(ledger))} "
                "--limit VALUE"
            )
        if named is None:
            return Start(Path.cwd(), ledger=ledger)
        if "://" in named:
            return Start(Path.cwd(), data=named, ledger=ledger)
        path = Path(named)
        if path.is_dir():
            return Start(path, ledger=ledger)
        if not path.exists():
            raise UsageError(f"there is no file {named}; name a plan file, or the records.")
        if path.suffix.lower() == ".toml":
            return Start(path.absolute().parent, plan=path, ledger=ledger)
        from dphist.release.glance import is_release

        if is_release(path):
            place = shlex.quote(str(path.parent))
            raise UsageError(f"{named} is a release; look at it with: dphist studio --view {place}")
        return Start(path.absolute().parent, data=str(path), ledger=ledger)
