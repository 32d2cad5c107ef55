"""Every exception of the package.

::

    DphistError
    ├── UsageError            a wrong argument: epsilon, bins, range, method, workload    exit 2
    │   └── OutputError       a file that cannot be written                               exit 2
    ├── LedgerError           the ledger cannot be read or written                        exit 3
    │   ├── BudgetExceeded    a charge beyond the dataset's limit                         exit 3
    │   └── AlreadyCharged    a charge whose token was charged before                     exit 3
    ├── DataError             records or counts that are not what they should be          exit 4
    │   └── ReleaseFileError  a release file that is damaged or not ours                  exit 4
    └── PrivacyError          what was asked for would break the guarantee                exit 5

Every message says what is wrong and what to do next. No message contains an exact count or a value of a
record.

>>> try:
...     dphist.histogram([23, 35], bins=12, epsilon=1)
... except dphist.errors.UsageError as error:
...     print(str(error)[:38], error.exit_code)
range is needed with a number of bins. 2
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "AlreadyCharged",
    "BudgetExceeded",
    "DataError",
    "DphistError",
    "LedgerError",
    "OutputError",
    "PrivacyError",
    "ReleaseFileError",
    "UsageError",
    "did_you_mean",
]


_COMPARED = 100_000  # words that a misspelt one is compared with


class DphistError(Exception):
    """The base class of every exception that this package raises on purpose."""

    exit_code = 1


class UsageError(DphistError, ValueError):
    """An argument is wrong."""

    exit_code = 2


class OutputError(UsageError):
    """A result cannot be written where it was asked for."""


class LedgerError(DphistError):
    """The ledger cannot be opened, read or written; nothing was drawn."""

    exit_code = 3


class BudgetExceeded(LedgerError):  # noqa: N818 - the name is the event
    """The charge is larger than what the dataset has left; nothing was charged."""


class AlreadyCharged(LedgerError):  # noqa: N818 - the name is the event
    """What was to be charged once was charged before; nothing was charged again."""

    def __init__(self, message: str, number: int = 0) -> None:
        super().__init__(message)
        self.number = number  # of the entry


class DataError(DphistError, ValueError):
    """Records or counts cannot be used as they are."""

    exit_code = 4


class ReleaseFileError(DataError):
    """A release file is damaged, foreign, or of a later version."""


class PrivacyError(DphistError, ValueError):
    """The request would break the privacy guarantee."""

    exit_code = 5


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a sentence that names similar words, or lists the known words; of very many only how many."""
    choices = list(known)
    if len(choices) > _COMPARED:
        return f"There are {len(choices):,}, too many to look for a similar one: check how it is spelt."
    choices = sorted(choices)
    near = difflib.get_close_matches(word, choices, n=3, cutoff=0.6)
    if not near:
        folded = {choice.casefold(): choice for choice in choices}
        near = [folded[m] for m in difflib.get_close_matches(word.casefold(), folded, n=3)]
    if near:
        return f"Did you mean {' or '.join(repr(m) for m in near)}?"
    shown = ", ".join(choices[:20])
    more = f" and {len(choices) - 20} more" if len(choices) > 20 else ""
    return f"There is: {shown}{more}."


def is_interrupt(error: BaseException) -> bool:
    """Return whether this is a Ctrl-C, also in the one phrase in which DuckDB reports it.

    The phrase is compared as a whole: an error may quote a record, and a record may quote the phrase.
    """
    return isinstance(error, KeyboardInterrupt) or (
        type(error) is RuntimeError and str(error) == "Query interrupted"
    )
