"""What was simulated on made-up data, kept in the user's cache; it may be deleted at any time."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from dphist._common import __version__

_FORMAT = 10  # raise it when the layout of a file or a method changes


def cache_folder() -> Path:
    """Return the folder in which simulated errors are kept."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "dphist" / "advice"


def kept_file(question: Mapping[str, Any]) -> Path | None:
    """Return the file of what a question was answered with; None if the user has no home folder."""
    whole = {"format": _FORMAT, "dphist": __version__, **question}
    text = json.dumps(whole, sort_keys=True)
    with suppress(RuntimeError):
        return cache_folder() / f"{hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}.json"
    return None


def read_kept(file: Path) -> Any:
    """Return what a file holds; raise OSError or ValueError if it is foreign or damaged."""
    try:
        return json.loads(file.read_text("utf-8"))["errors"]
    except (TypeError, LookupError, RecursionError) as wrong:
        raise ValueError("no such file of simulated errors") from wrong


def write_kept(file: Path, errors: Any) -> None:
    """Write a file as a whole or not at all; failure to write is ignored."""
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False, encoding="utf-8") as partial:
            json.dump({"format": _FORMAT, "errors": errors}, partial)
        Path(partial.name).replace(file)
