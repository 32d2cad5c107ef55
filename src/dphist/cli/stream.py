"""Records from standard input: kept in a file of this user's until they are counted, then removed."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dphist._common.leftovers import spill_folder
from dphist.errors import DataError, DphistError, UsageError, did_you_mean

if TYPE_CHECKING:
    from dphist.cli.options import Reading

INPUT = "-"
_FORMATS = ("csv", "tsv", "jsonl")


def read_as(reading: Reading) -> dict[str, Any]:
    """Return the arguments of a plan that say which records are counted and how they are read."""
    return {name: value for name, value in vars(reading).items() if name != "format"}


def check_format(data: str, format: str | None) -> None:
    """Refuse a format that is unknown, or is given for a file, whose ending names it."""
    if format is None:
        return
    if data != INPUT:
        raise UsageError(
            "--format is of standard input, which is named -; the ending of a file says its own."
        )
    if format not in _FORMATS:
        raise UsageError(f"--format must be one of {', '.join(_FORMATS)}. {did_you_mean(format, _FORMATS)}")


@contextmanager
def spooled(data: str, format: str | None) -> Iterator[str]:
    """Yield the name of the data; of standard input, that of a file which holds it for as long.

    The format is declared, for the first bytes may be a record's: no record decides how others are read.
    """
    if data != INPUT:
        yield data
        return
    if sys.stdin.isatty():
        raise UsageError("- reads records from standard input, and nothing is piped in: cat visits.csv | ...")
    with spill_folder() as folder:
        file = Path(folder) / f"stdin.{format or _FORMATS[0]}"
        file.touch(mode=0o600)
        try:
            with file.open("wb") as held:
                shutil.copyfileobj(sys.stdin.buffer, held, 1 << 20)
        except OSError as error:
            raise DataError(
                f"standard input could not be kept in {folder}: {error.strerror}. Free space there, or set "
                "TMPDIR to a larger disk; nothing was charged."
            ) from None
        try:
            yield str(file)
        except DphistError as error:
            if str(file) not in str(error):
                raise
            raise type(error)(str(error).replace(str(file), "standard input")) from None
