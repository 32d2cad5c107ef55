"""How a release of many groups shows itself: a line, a long table, small pictures side by side, a page."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dphist.domain.groups import Floats, Ints
from dphist.errors import UsageError
from dphist.release import show
from dphist.release.grouped import GroupedRelease

if TYPE_CHECKING:
    from dphist.charts.multiples import Panel
    from dphist.charts.picture import Picture

DRAWN, MOST_DRAWN = 12, 48
_ASKED = 32  # groups of a class by whose errors its own is told
_UNEVEN = 3  # times the smallest total, from which shares are drawn instead of counts


def one_line(release: GroupedRelease) -> str:
    """Return what there is to know in one line."""
    tree = release.hierarchy
    groups = " x ".join(
        f"{size:,} {' '.join(name.split())}" for name, size in zip(tree.names, tree.sizes, strict=True)
    )
    stamp = ", SIMULATED" if release.simulated else ", not journaled" if show.not_journaled(release) else ""
    if release.id is not None and not show.not_journaled(release):
        stamp += f", id={show.short_id(release.id)}"
    unit, bins = " ".join(release.unit.split()), f"{release.bins.n:,} bin{'s' * (release.bins.n != 1)}"
    return (
        f"GroupedRelease({release.method!r}, {groups}, {bins}, "
        f"epsilon={show.decimal(release.epsilon)}, unit={unit!r}{stamp})"
    )


# ---- the table --------------------------------------------------------------------------------------


def columns(release: GroupedRelease, *, level: float = 0.95) -> show.Columns:
    """Return the long table: a row for each bin of each group of each level."""
    tree, n = release.hierarchy, release.bins.n
    parts: dict[str, list[Any]] = {}
    for at, (name, size) in enumerate(zip(tree.names, tree.sizes, strict=True)):
        low, high = release.intervals(level, of=name)
        if release.post != "none":
            low, high = np.maximum(low, 0.0), np.maximum(high, 0.0)
        labels = np.array(tree.labels[at], dtype=object)
        above = np.full(size, "", dtype=object)
        if at:
            above = np.array(tree.labels[at - 1], dtype=object)[tree.parents[at - 1]]
        table = {
            "level": np.full(size * n, name, dtype=object),
            "group": np.repeat(labels, n),
            "parent": np.repeat(above, n),
            **{key: np.tile(part, size) for key, part in show.axis_columns(release.bins.axis).items()},
            "value": release.values(name).ravel(),
            "raw": release.raw(name).ravel(),
            "low": low.ravel(),
            "high": high.ravel(),
        }
        for key, part in table.items():
            parts.setdefault(key, []).append(part)
    return {key: np.concatenate(part) for key, part in parts.items()}


def frame(release: GroupedRelease, library: Literal["pandas", "pyarrow", "polars"], *, level: float) -> Any:
    """Return the long table as a dataframe of an optional library."""
    return show.to_frame(release, columns(release, level=level), library)


# ---- the picture ------------------------------------------------------------------------------------


def draw(
    release: GroupedRelease,
    *,
    of: str | None,
    groups: Sequence[str] | None,
    level: float,
    looks: show.Looks,
) -> Picture:
    """Return small histograms of some groups side by side, the largest first."""
    from dphist.charts.multiples import multiples_chart

    tree = release.hierarchy
    at = tree.depth - 1 if of is None else tree.level(of)
    if groups is None:
        totals = release.totals(tree.names[at])
        nodes = [(at, i) for i in np.argsort(-totals, kind="stable")[:DRAWN].tolist()]
        left = tree.sizes[at] - len(nodes)
    else:
        nodes, left = _named(release, of, groups), 0
    panels = [_panel(release, at, i, level=level) for at, i in nodes]
    totals = np.array([panel.total for panel in panels])
    shares = len(panels) > 1 and float(totals.max()) > _UNEVEN * max(float(totals.min()), 0.0)
    shares = shares and any(panel.is_clear for panel in panels)
    unknown = [panel.name for panel in panels if not np.isfinite(panel.low).any()]
    known = len(unknown) < len(panels)
    return multiples_chart(
        release.bins,
        panels,
        shares=shares,
        title=looks.title or _title(release, at if groups is None else None, len(panels)),
        subtitle=show.subtitle(release, level if known else None),
        x_title=looks.xlabel or _column(release),
        y_title=looks.ylabel or "records",
        size=looks.size,
        note=_note(release, unknown=unknown, known=known, left=left, at=at, ranked=groups is None),
    )


def _named(release: GroupedRelease, of: str | None, groups: Sequence[str]) -> list[tuple[int, int]]:
    tree = release.hierarchy
    if isinstance(groups, str) or not groups:
        raise UsageError("groups is a list of labels, such as groups=['H17', 'H18'].")
    if len(groups) > MOST_DRAWN:
        raise UsageError(f"a picture has room for {MOST_DRAWN} groups, not {len(groups)}; name fewer.")
    if of is None:
        return [tree.find(label) for label in groups]
    at = tree.level(of)
    return [(at, tree.at(at, label)) for label in groups]


def _panel(release: GroupedRelease, at: int, i: int, *, level: float) -> Panel:
    from dphist.charts.multiples import Panel

    tree = release.hierarchy
    one = release[tree.names[at], tree.labels[at][i]]
    low, high = one.presentable_intervals(level=level)
    total = one.total(level=level)
    clear = total.low > 0.0 if total.low is not None else total.value > 0.0
    return Panel(tree.labels[at][i], one.values(), low, high, clear)


def _title(release: GroupedRelease, at: int | None, drawn: int) -> str:
    """Return what a picture shows: the column, and of which groups."""
    groups = f"{drawn:,} groups" if at is None else _counted(release, at)
    bins = f"{release.bins.n:,} bin{'' if release.bins.n == 1 else 's'}"
    column = _column(release)
    return f"{column} in {groups}, {bins} each" if column else f"{groups}, {bins} each"


def _counted(release: GroupedRelease, at: int) -> str:
    size, name = release.hierarchy.sizes[at], release.hierarchy.names[at]
    return f"{size:,} group{'' if size == 1 else 's'} by {name}"


def _note(
    release: GroupedRelease, *, unknown: Sequence[str], known: bool, left: int, at: int, ranked: bool
) -> str:
    """Return what a picture says besides: what is not known, and what is not shown."""
    parts = []
    if not known:
        parts.append("How far these values are off is not known.")
    elif unknown:
        named = ", ".join(unknown[:3]) + (", ..." if len(unknown) > 3 else "")
        parts.append(f"Without a band it is not known how far values are off: {named}.")
    if left:
        parts.append(f"The {DRAWN} largest are shown; {left:,} smaller ones are not.")
    elif ranked and release.hierarchy.sizes[at] > 1:
        parts.append("The largest come first.")
    return " ".join([*parts, release.bounding]).strip()


def _column(release: GroupedRelease) -> str:
    """Return the name of the column that was counted; nothing for an SQL expression."""
    names: Any = release.provenance.get("column")
    last = names[-1] if isinstance(names, tuple) and names else names
    return show.plain_name(last) if isinstance(last, str) else ""


# ---- the page ---------------------------------------------------------------------------------------


def page(release: GroupedRelease) -> str:
    """Return a picture, the facts and the errors as HTML; every text is escaped."""
    from dphist.charts.picture import svg_or_nothing

    picture = f"<div>{svg}</div>" if (svg := svg_or_nothing(release.plot)) else ""
    return f"<div>{picture}{_table(_facts(release))}{_table(errors(release), head=True)}</div>"


def _table(rows: Sequence[Sequence[str]], *, head: bool = False) -> str:
    made = []
    for i, row in enumerate(rows):
        tags = ["th" if (head and i == 0) or j == 0 else "td" for j in range(len(row))]
        made.append(
            "<tr>"
            + "".join(
                f"<{tag} style='text-align:left'>{html.escape(text)}</{tag}>"
                for tag, text in zip(tags, row, strict=True)
            )
            + "</tr>"
        )
    return f"<table>{''.join(made)}</table>"


def _facts(release: GroupedRelease) -> list[tuple[str, str]]:
    tree = release.hierarchy
    known = [
        ("method", release.method),
        ("groups", ", ".join(_counted(release, at) for at in range(tree.depth))),
        ("bins", f"{release.bins.n:,}"),
        ("epsilon", f"{show.decimal(release.epsilon)}, once for all groups"),
        ("protects", f"{release.unit} (sensitivity {release.sensitivity})"),
        ("values", release.post if release.post != "none" else "as estimated"),
        *([("bounding", release.bounding)] if release.bounding else []),
        ("created", release.created),
        *([] if release.id is None else [("id", show.short_id(release.id))]),
    ]
    if show.not_journaled(release):
        known.insert(4, ("ledger", show.NOT_JOURNALED))
    if release.simulated:
        known.insert(0, ("SIMULATED", "the noise came from a seed; this protects nobody"))
    return known


def errors(release: GroupedRelease, *, level: float = 0.95) -> list[tuple[str, ...]]:
    """Return how wrong values are on each level, and in small, middle and large groups of the lowest."""
    tree = release.hierarchy
    rows: list[tuple[str, ...]] = [
        ("level", "groups", "share of epsilon", f"a bin, {100 * level:g} %", f"a total, {100 * level:g} %")
    ]
    for at, (name, share) in enumerate(zip(tree.names, release.shares, strict=True)):
        of = np.arange(tree.sizes[at])
        rows.append((name, f"{of.size:,}", f"{float(share):.3g}", *_margins(release, at, of, level=level)))
    at = tree.depth - 1
    for name, of in _classes(release.raw().sum(axis=1)):
        rows.append(
            (f"{tree.names[at]}: {name}", f"{of.size:,}", "", *_margins(release, at, of, level=level))
        )
    return rows


def _classes(totals: Floats) -> Iterator[tuple[str, Ints]]:
    """Yield the smallest quarter of groups, the middle half and the largest quarter, by released totals."""
    if totals.size < 4:
        return
    order, quarter = np.argsort(totals, kind="stable"), totals.size // 4
    cuts = (0, quarter, totals.size - quarter, totals.size)
    for name, a, b in zip(("small", "middle", "large"), cuts, cuts[1:], strict=False):
        of = order[a:b]
        yield f"{name} ({totals[of[0]]:z,.0f} to {totals[of[-1]]:z,.0f})", of


def _margins(release: GroupedRelease, at: int, of: Ints, *, level: float) -> tuple[str, str]:
    """Return the typical margin of a bin and of a total, asked of some of the groups."""
    some = of[np.unique(np.linspace(0, of.size - 1, min(of.size, _ASKED)).round().astype(np.int64))]
    bins, totals = [], []
    for i in some.tolist():
        error = release.levels[at].error(i)
        margins = error.bin_margins(level=level)
        bins.append(math.nan if margins is None else float(np.mean(margins)))
        margin = error.margin(0, release.bins.n, level=level)
        totals.append(math.nan if margin is None else margin)
    return _typical(bins), _typical(totals)


def _typical(margins: list[float]) -> str:
    middle = float(np.median(margins))
    return f"± {middle:,.3g}" if math.isfinite(middle) else "not known"
