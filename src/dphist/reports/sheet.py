"""What stands on the page that is handed in, as HTML: made of releases alone, without the private half.

Nothing on it is loaded from elsewhere, no program runs in it, and every text of others is escaped.
"""

from __future__ import annotations

import base64
import html
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dphist._common.rounded import above
from dphist._common.text import harmless
from dphist.release import export, files, words
from dphist.release.grouped import GroupedRelease
from dphist.release.release import STAMP, Release
from dphist.release.show import decimal, short_id
from dphist.release.sparse import SparseRelease
from dphist.reports.pictures import pictures
from dphist.reports.tables import Table, ends, number, tables

_SHORT = 16  # letters
_ASKED = 32  # groups whose errors tell what is typical
_MOST_INSIDE = 1 << 15  # values of a release that the page carries for downloading
_LIGHT = (
    "--paper:#fff;--ink:#1b1f24;--muted:#57606a;--grid:#e6e6e6;--zero:#777;--value:#0a5a97;--soft:#f4f7fa"
)
_DARK = "--paper:#12171d;--ink:#e8edf2;--muted:#a3adb8;--grid:#2c343e;--zero:#8b949e;--value:#8cc8f7"
_DARK += ";--soft:#1a2129"
_STYLE = f"""
:root{{{_LIGHT};color-scheme:light dark}}
@media (prefers-color-scheme:dark){{:root{{{_DARK}}}}}
*{{box-sizing:border-box}}
body{{margin:0;background:var(--paper);color:var(--ink);
 font:16px/1.55 Helvetica,Arial,"Liberation Sans",sans-serif;overflow-wrap:break-word}}
main{{max-width:768px;margin:0 auto;padding:32px 24px 64px}}
h1{{font-size:1.75rem;line-height:1.2;margin:0 0 .3em}} h2{{font-size:1.3rem;margin:2em 0 .3em}}
h3{{font-size:1.05rem;margin:1.6em 0 .3em}} p{{margin:.5em 0;max-width:70ch}}
.by,figcaption,.note{{color:var(--muted);font-size:.875rem;line-height:1.5}}
.stamp{{font-weight:700;border:2px solid var(--ink);padding:.4em .7em}}
figure{{margin:1.4em 0 .5em}} figure svg{{display:block;max-width:100%;height:auto;overflow:visible}}
.thin{{display:none}}
.scroll{{overflow-x:auto}} table{{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;
 font-size:.92rem;margin-top:1em}}
caption{{text-align:left;font-weight:600;padding:0 0 .3em}}
th,td{{padding:.26em .6em;text-align:right;border-bottom:1px solid var(--grid);font-weight:400;
 vertical-align:top}}
thead th{{color:var(--muted);font-size:.83rem;vertical-align:bottom;border-bottom-color:var(--zero)}}
tr>:first-child{{text-align:left;padding-left:0}} td{{white-space:nowrap}}
small{{color:var(--muted);font-size:.76rem}}
.facts{{display:grid;grid-template-columns:repeat(4,1fr);gap:12px;margin:1.2em 0}}
.facts div{{background:var(--soft);border-radius:6px;padding:.6em .8em;font-size:.83rem;color:var(--muted);
 line-height:1.35;min-width:0;print-color-adjust:exact;-webkit-print-color-adjust:exact}}
.facts b{{display:block;font-size:1.1rem;color:var(--ink)}}
.bar{{height:14px;border:1px solid var(--zero);border-radius:3px;overflow:hidden;margin:.5em 0}}
.bar i{{display:block;height:100%;background:var(--value);print-color-adjust:exact;
 -webkit-print-color-adjust:exact}}
ul{{padding-left:1.2em;margin:.4em 0}} li{{margin:.3em 0}} .check{{list-style:none;padding-left:0}}
.check li{{padding-left:1.7em;text-indent:-1.7em}}
.box{{display:inline-block;width:.85em;height:.85em;border:1.5px solid var(--ink);border-radius:2px;
 margin-right:.75em;vertical-align:-.05em;text-indent:0}}
.cite{{font:.86rem/1.5 ui-monospace,"DejaVu Sans Mono",monospace;background:var(--soft);padding:.7em .9em;
 border-radius:3px;overflow-wrap:anywhere}}
a{{color:var(--value)}} .files a{{margin-right:1em}}
@media (max-width:560px){{main{{padding:20px 16px 48px}} h1{{font-size:1.4rem}} .wide{{display:none}}
 .thin{{display:block}} .facts{{grid-template-columns:1fr 1fr}} th,td{{padding:.28em .35em}}
 table{{font-size:.86rem}}}}
@page{{size:A4;margin:15mm 16mm}}
@media print{{:root{{{_LIGHT};color-scheme:light}} html{{font-size:9.6pt}}
 body{{font-size:1rem;line-height:1.42}}
 main{{padding:0;max-width:none}} .wide{{display:block}} .thin{{display:none}} .files{{display:none}}
 p{{max-width:none}} h2,h3,caption{{break-after:avoid}} figure,.facts,.cite,tr,li{{break-inside:avoid}}
 thead{{display:table-header-group}} .facts{{grid-template-columns:repeat(4,1fr)}} th,td{{padding:.16em .5em}}
 figure svg{{max-height:90mm;width:auto}}}}
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


@dataclass(frozen=True)
class Budget:
    """What was charged to a dataset, and its limit.

    Args:
        charges: how many there are.
        note: why the sum bounds nobody's loss, if it does not.
    """

    dataset: str
    spent: Fraction
    limit: Fraction | None
    charges: int
    note: str

    @property
    def left(self) -> Fraction | None:
        """What can still be spent; None without a limit."""
        return None if self.limit is None else max(self.limit - self.spent, Fraction(0))


def safe(text: object) -> str:
    """Return a text of others as it may stand in HTML."""
    return html.escape(harmless(str(text)).encode("utf-8", "backslashreplace").decode())


@dataclass(frozen=True)
class Sheet:
    """What stands on a page.

    Args:
        budgets: what the ledger has left, if it was asked.
        published: says what was published of the method that made a release, if that is known.
    """

    title: str
    releases: Sequence[words.AnyRelease]
    budgets: Sequence[Budget]
    level: float
    published: Callable[[words.AnyRelease], words.Published | None]

    def html(self) -> str:
        """Return the whole page."""
        parts = [
            *self._opening(),
            *(piece for i in range(len(self.releases)) for piece in self._section(i)),
            *self._odds(),
            *self._limits(),
            *self._budget(),
            *self._cite(),
        ]
        return (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width,initial-scale=1">'
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
            f"<title>{safe(self.title)}</title><style>{_STYLE}</style></head>\n<body><main>\n"
            + "\n".join(parts)
            + "\n</main></body></html>\n"
        )

    def _opening(self) -> Iterator[str]:
        yield f"<h1>{safe(self.title)}</h1>"
        dates = sorted({release.created[:10] for release in self.releases})
        when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
        yield f'<p class="by">Counts under differential privacy, published {safe(when)}</p>'
        if any(release.simulated for release in self.releases):
            yield f'<p class="stamp">{safe(STAMP)} Noise came from a seed and protects nobody.</p>'

    def _section(self, i: int) -> Iterator[str]:
        release = self.releases[i]
        many = len(self.releases) > 1
        title = words.usual_title(release)
        if many:
            yield f"<h2>{safe(title)}</h2>"
        if not isinstance(release, SparseRelease) or release.has_picture:
            wide, thin, notes = pictures(release, level=self.level, name=f"p{i}")
            yield (
                f'<figure role="group" aria-label="{safe(title)}; the numbers are in the table below.">'
                f'<div class="wide">{wide}</div><div class="thin">{thin}</div>'
                f"<figcaption>{safe(_caption(release, self.level, notes))}</figcaption></figure>"
            )
        yield _tiles(release, self.level)
        for table in tables(release, level=self.level):
            yield _table(table)
        yield f'<p class="note">{safe(_reading(release, self.level))}</p>'
        yield "<h3>What was done</h3>" if many else "<h2>What was done</h2>"
        yield from (f"<p>{safe(text)}</p>" for text in words.methods(release, self.published(release)))
        yield from _downloads(release, i + 1, self.level)

    def _odds(self) -> Iterator[str]:
        real = [release for release in self.releases if not release.simulated]
        if not real:
            return
        columns = _losses(real, self.budgets)
        yield "<h2>What this means for a person in the data</h2>"
        for loss in columns:
            if loss.unit is not None:
                start = f"{loss.name[0].upper()}{loss.name[1:]}: " if len(columns) > 1 else ""
                yield f"<p>{safe(start)}{safe(words.odds_in_words(loss.epsilon, loss.unit))}</p>"
        header = ("their belief before", *(f"{loss.name} ({_epsilon(loss.epsilon)})" for loss in columns))
        rows = words.odds_rows([loss.epsilon for loss in columns])
        yield _table(Table("Chances in 100 that they may hold afterwards, at most", header, rows))
        one = any(release.unit == "one record" for release in real)
        more = " A person with k records is protected with k times the epsilon for one record." if one else ""
        yield (
            '<p class="note">Upper limits, for somebody who may know everything about the data except '
            f"whether one person or record is in it.{more} Facts about groups of people are not covered.</p>"
        )

    def _limits(self) -> Iterator[str]:
        yield "<h2>Limits</h2><ul>"
        known = dict.fromkeys(limit for release in self.releases for limit in words.limits(release))
        yield from (f"<li><b>{safe(name)}</b>: {safe(text)}</li>" for name, text in known)
        yield "</ul><h2>What the software cannot know</h2><p>For the publisher to fill in:</p>"
        yield '<ul class="check">'
        for name, text in words.UNKNOWN_TO_SOFTWARE:
            yield f'<li><span class="box"></span><b>{safe(name.capitalize())}.</b> {safe(text)}</li>'
        yield "</ul>"

    def _budget(self) -> Iterator[str]:
        if not self.budgets:
            return
        yield "<h2>Privacy budget</h2>"
        for budget in self.budgets:
            has = f'The dataset "{budget.dataset}" has spent {decimal(budget.spent)}'
            charges = f"in {budget.charges:,} charge{'s' * (budget.charges != 1)}"
            if budget.limit is None or budget.left is None:
                yield f"<p>{safe(has)} {charges}; no limit was set.</p>"
            else:
                part = min(float(budget.spent / budget.limit), 1.0) if budget.limit else 1.0
                bar = f'<i style="width:{100 * part:.1f}%"></i>'
                said = f"{decimal(budget.spent)} of {decimal(budget.limit)} spent"
                yield f'<div class="bar" role="img" aria-label="{safe(said)}">{bar}</div>'
                left = f"{charges}; {decimal(budget.left)} is left"
                yield f"<p>{safe(has)} of its limit of {decimal(budget.limit)} {left}.</p>"
            if budget.note:
                yield f'<p class="note">That {safe(budget.note)}</p>'

    def _cite(self) -> Iterator[str]:
        yield "<h2>How to cite</h2>"
        for release in self.releases:
            title = self.title if len(self.releases) == 1 else words.usual_title(release)
            yield f'<p class="cite">{safe(words.citation(release, title))}</p>'


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{safe(text)}</th>' for text in table.header)
    rows = "".join(
        f'<tr><th scope="row">{safe(_unbroken(name))}</th>'
        f"{''.join(f'<td>{_lines(text)}</td>' for text in rest)}</tr>"
        for name, *rest in table.rows
    )
    note = f'<p class="note">{safe(table.note)}</p>' if table.note else ""
    return (
        f'<div class="scroll"><table><caption>{safe(table.caption)}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>{note}"
    )


def _unbroken(name: str) -> str:
    """Return the name of a row, short ones without a place to break them."""
    return name.replace(" ", "\N{NO-BREAK SPACE}") if len(name) <= _SHORT else name


def _lines(text: str) -> str:
    """Return a value, and small below it its interval, if there are two lines."""
    value, _, below = text.partition("\n")
    return f"{safe(value)}<br><small>{safe(below)}</small>" if below else safe(value)


def _counted(release: words.AnyRelease) -> str:
    many = release.sensitivity
    return f"{many} record{'s' * (many > 1)} of each {'are' if many > 1 else 'is'} counted"


def _caption(release: words.AnyRelease, level: float, notes: str) -> str:
    stamp = f"{STAMP} " if release.simulated else ""
    bound = f" At most {_counted(release)}." if release.bounding else ""
    if isinstance(release, Release) and len(release.domain.axes) == 2:
        shown = "The colour of a cell says how many records were published for it."
    elif isinstance(release, SparseRelease):
        listed, windows = "The largest of the listed bins.", "Published records in equal parts of all bins."
        shown, notes = windows if release.listing is None else listed, ""
    elif _typical(release, level) is None:
        shown = "Published records, whose error is not known."
    else:
        whose = "of each bin on its own"
        if words.holds_for_most(release):
            whose = f"of each bin, meant to hold for about {100 * level:g} % of all bins"
        shown = f"Published records, with the {100 * level:g} % interval {whose}."
    more = f" {notes[0].upper()}{notes[1:].rstrip('.')}." if notes else ""
    protects = f"Protects {words.person(release)} with {_epsilon(release.epsilon)}."
    return f"{stamp}{shown}{more} {protects}{bound}"


def _epsilon(epsilon: Fraction) -> str:
    return f"\N{GREEK SMALL LETTER EPSILON}\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{decimal(epsilon)}"


def _tiles(release: words.AnyRelease, level: float) -> str:
    total = release.total(level=level)
    margin = _typical(release, level)
    wide = "not known" if margin is None else f"\N{PLUS-MINUS SIGN} {number(above(margin))}"
    bound = f"; at most {_counted(release)}" if release.bounding else ""
    most = f"; about {100 * level:g} % of all bins lie in theirs" if words.holds_for_most(release) else ""
    tiles = [
        (wide, f"records: the {100 * level:g} % interval of {_typical_one(release)}{most}"),
        (number(total.value), f"records in all ({ends(total.low, total.high)})"),
        (_epsilon(release.epsilon), "for this release"),
        (words.person(release), f"protected{bound}"),
    ]
    return f'<div class="facts">{"".join(f"<div><b>{safe(a)}</b>{safe(b)}</div>" for a, b in tiles)}</div>'


def _typical_one(release: words.AnyRelease) -> str:
    if not isinstance(release, SparseRelease):
        return "a typical bin"
    return "a typical group of bins" if release.listing is None else "a bin that was named in advance"


def _typical(release: words.AnyRelease, level: float) -> float | None:
    """Return half the width of the middle one of all intervals, of some groups; None if none is known."""
    if isinstance(release, GroupedRelease):
        lowest, many = release.levels[-1], release.hierarchy.sizes[-1]
        some = np.unique(np.linspace(0, many - 1, min(many, _ASKED)).astype(np.int64)).tolist()
        errors = [lowest.error(i) for i in some]
    elif isinstance(release, SparseRelease) and release.listing is not None:
        return release.listing.margin(level)
    elif isinstance(release, Release):
        low, high = release.intervals(level=level)
        widths = (high - low)[np.isfinite(high - low)]
        return float(np.median(widths)) / 2 if widths.size else None
    else:
        errors = [release.error]
    found = [margins for error in errors if (margins := error.bin_margins(level=level)) is not None]
    margins = np.concatenate(found) if found else np.array([math.nan])
    known = margins[np.isfinite(margins)]
    return float(np.median(known)) if known.size else None


def _reading(release: words.AnyRelease, level: float) -> str:
    if release.post == "none" and words.is_averaged(release):
        values = "Values were averaged after the measurement; intervals are those of the measurement."
    elif release.post == "none":
        values = "Values are as estimated: noise can make a small count negative."
    else:
        values = (
            "Values were made presentable afterwards; for sums, take the estimates of the exported table."
        )
    if _typical(release, level) is None:
        return values
    if isinstance(release, SparseRelease):
        return f"{values} What the intervals cover is said below."
    holds = f"Each interval holds on its own, in about {100 * level:g} of 100 releases."
    if words.holds_for_most(release):
        holds = f"Intervals are meant to hold for about {100 * level:g} % of all bins, not for each of them."
    return (
        f"{values} {holds} To add up bins, use dphist query: adding the ends of intervals would overstate "
        "the error."
    )


@dataclass(frozen=True)
class _Loss:
    """What the odds are stated for; ``unit`` is whom it protects, if this is said in a sentence too."""

    name: str
    epsilon: Fraction
    unit: str | None = None


def _losses(releases: Sequence[words.AnyRelease], known: Sequence[Budget]) -> list[_Loss]:
    """Return what people may lose by this page, and by all charges of the ledger.

    Charges for the same people add up; a release that is shown twice was paid for once.
    """
    paid: dict[tuple[str, str], dict[object, Fraction]] = {}
    for i, release in enumerate(releases):
        key = (str(release.provenance.get("dataset", "default")), words.person(release))
        paid.setdefault(key, {})[words.draws_of(release) if release.id else i] = release.epsilon
    losses = []
    for (dataset, person), charges in paid.items():
        name = "after this table" if len(charges) == 1 else f"after these {len(charges)} tables"
        if len(paid) > 1:
            whose = "table that protects" if len(charges) == 1 else f"{len(charges)} tables that protect"
            name = f"after the {whose} {person} of {dataset}"
        losses.append(_Loss(name, sum(charges.values(), Fraction(0)), person))
    if len(known) == 1 and not known[0].note:
        many = known[0].charges
        so_far = "after the one charge so far" if many == 1 else f"after all {many:,} charges so far"
        losses.append(_Loss(so_far, known[0].spent))
        if known[0].limit is not None:
            losses.append(_Loss("if the whole budget is spent", known[0].limit))
    return losses


def _downloads(release: words.AnyRelease, i: int, level: float) -> Iterator[str]:
    """Yield links to the table and the release inside the page, unless they are very large."""
    if isinstance(release, GroupedRelease):
        many = sum(release.hierarchy.sizes) * release.bins.n
    else:
        many = release.groups.k if isinstance(release, SparseRelease) else release.domain.n
    document = export.document(release) if many <= _MOST_INSIDE else None
    if document is None:
        return
    text = files.written(document)
    name = short_id(release.id) if release.id else str(i)
    table = _inside(export.csv_text(release, level=level), "text/csv")
    links = [
        f'<a download="table-{name}.csv" href="{table}">Table (CSV)</a>',
        f'<a download="release-{name}.json" href="{_inside(text, "application/json")}">Release (JSON)</a>',
    ]
    yield f'<p class="files">{" ".join(links)}</p>'


def _inside(text: str, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(text.encode('utf-8', 'backslashreplace')).decode()}"
