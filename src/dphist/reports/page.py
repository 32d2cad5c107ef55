"""The page that is handed in: one self-contained, printable HTML file about one release or several.

Nothing on it is loaded from elsewhere, no program runs in it, and every text of others is escaped. It is made
of releases and, if asked for, of what the ledger has left: nothing exact can enter.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from dphist.errors import OutputError, UsageError
from dphist.privacy.ledger import Ledger, LedgerLike
from dphist.release import export, files, words
from dphist.reports import registry as registries
from dphist.reports.budget import budgets
from dphist.reports.published import published
from dphist.reports.sheet import Sheet
from dphist.uncertainty import noise_law

ENDINGS, RECORDS = (".html", ".htm"), (".yaml", ".yml")
Given = words.AnyRelease | str | os.PathLike[str]


def report(
    releases: Given | Sequence[Given],
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    ledger: LedgerLike | str | os.PathLike[str] | None = None,
    registry: str | os.PathLike[str] | None = None,
    level: float = 0.95,
    overwrite: bool = False,
) -> Path:
    """Write one page about some releases, to be read, printed and handed in; nothing is spent.

    It has pictures, tables with intervals, what was done, what an attacker could learn at most, how to cite,
    and a checklist of what the software cannot know. It loads nothing from elsewhere.

    >>> release = dphist.from_counts([30, 20, 50], bins=["red", "green", "blue"], epsilon=1)
    >>> dphist.report(release, "report.html", title="Colours").name
    'report.html'

    Args:
        releases: a release, or several; files of releases too.
        path: the page, .html.
        title: of the page.
        ledger: the ledger that paid; then the page says what is left, and a release that states something
            else than what was charged is refused.
        registry: a second file, .yaml: a draft for the registry of deployments of differential privacy, with
            what the software knows filled in and the rest marked.
        level: the confidence level of the intervals.
        overwrite: replace other files of these names.
    """
    noise_law.check_level(level)
    target = _named(path, ENDINGS, "a page")
    record = None if registry is None else _named(registry, RECORDS, "a record for the registry")
    found = _loaded(releases)
    book = Ledger.open(ledger, read_only=True) if isinstance(ledger, str | os.PathLike) else ledger
    known = [] if book is None else budgets(found, book)
    name = title or " and ".join(dict.fromkeys(map(words.usual_title, found)))
    text = Sheet(name, found, known, level, published).html()
    draft = None if record is None else registries.draft(name, found)
    _write(target, text, overwrite=overwrite)
    if record is not None and draft is not None:
        _write(record, draft, overwrite=overwrite)
    return target


def _named(path: str | os.PathLike[str], endings: Sequence[str], what: str) -> Path:
    target = Path(path)
    if target.suffix.lower() not in endings:
        raise OutputError(f"{target.name!r} names no file for {what}: end it in {' or '.join(endings)}.")
    return target


def _loaded(releases: Given | Sequence[Given]) -> list[words.AnyRelease]:
    one = isinstance(releases, words.AnyRelease | str | os.PathLike)
    given: Sequence[Given] = [releases] if one else list(releases)  # type: ignore[list-item, arg-type]
    if not given:
        raise UsageError("there is nothing to report: give at least one release.")
    found: list[words.AnyRelease] = []
    for release in given:
        if isinstance(release, str | os.PathLike):
            found.append(files.load(release))
        elif isinstance(release, words.AnyRelease):
            found.append(release)
        else:
            raise UsageError(
                f"a report is made of releases or their files, not of a {type(release).__name__}."
            )
    return found


def _write(target: Path, text: str, *, overwrite: bool) -> None:
    export.put(target, lambda file: file.write_text(text, encoding="utf-8"), overwrite=overwrite)
