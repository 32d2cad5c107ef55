"""How a release is shown on a terminal, and the words in which its parts are asked for."""

from __future__ import annotations

import shlex
import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from dphist._common.rounded import above, interval, nothing_else
from dphist._common.text import harmless
from dphist.cli.common import SCREEN, print_table, screen_width, show
from dphist.domain import Hashed, Integers, Keyed
from dphist.errors import UsageError
from dphist.release.answers import shared_bins

if TYPE_CHECKING:
    from dphist.domain import Axis, Domain
    from dphist.release import Release, SparseRelease
    from dphist.release.grouped import GroupedRelease

_LARGEST = 20  # listed bins, or groups of bins, that are shown
_FEW = 8  # bins of an axis that fit side by side


def show_release(release: Any) -> None:
    """Print a release as a table of at most a screenful; for a grid print its total."""
    show(repr(release))
    if hasattr(release, "hierarchy"):
        _show_groups(release)
    elif hasattr(release, "pieces"):
        _show_pieces(release)
    else:
        _show_values(release)
        told = " ".join(filter(None, (release.error.accuracy, shared_bins(release.domain))))
        for line in textwrap.wrap(told, screen_width(SCREEN)):
            show(line)
    if release.bounding:
        show(release.bounding)


def _show_groups(release: GroupedRelease) -> None:
    """Print the totals of the groups of every level, the largest of a level first."""
    for at, name in enumerate(release.hierarchy.names):
        labels, totals = release.hierarchy.labels[at], release.totals(name)
        largest = sorted(range(len(labels)), key=lambda i: -totals[i])[:12]
        rows = []
        for i in largest:
            answer = release[name, labels[i]].total()
            ends = interval(answer.low, answer.high)
            rows.append((harmless(labels[i], keep=""), f"{totals[i]:z,.0f}", ends))
        if len(labels) > len(largest):
            rows.append((f"… {len(labels) - len(largest):,} more", "", ""))
        header = (harmless(name, keep=""), "records", "95 % interval")
        print_table(header, rows, right=header[1:], label=SCREEN // 2, width=screen_width(SCREEN))
    part = shlex.join(example_part(release.bins))
    show(f"ask for one of them with: dphist query RELEASE --group LABEL {part}")


def _show_pieces(release: SparseRelease) -> None:
    """Print the largest listed bins, or groups of bins, of a release of very many bins."""
    table = release.columns()
    names = table["bin"] if "bin" in table else table["first"]
    largest = np.argsort(-table["value"], kind="stable")[:_LARGEST]
    rows = []
    for i in largest:
        name = names[i] if "bin" in table or table["bins"][i] == 1 else f"{names[i]} to {table['last'][i]}"
        ends = interval(table["low"][i], table["high"][i])
        if release.listing is not None:  # these are shown because they are listed
            ends = f"{max(table['raw'][i] - release.listing.all_listed(0.95) + 1, 0):z,.0f}"
        rows.append((harmless(name, keep=""), f"{table['value'][i]:z,.0f}", ends))
    if len(names) > len(largest):
        rows.append((f"… {len(names) - len(largest):,} more", "", ""))
    header: tuple[str, ...] = ("bins", "records", "95 % interval")
    if release.listing is not None:
        header = ("bin", "records", "at least (95 %, all at once)")
    print_table(header, rows, right=header[1:], label=SCREEN // 2, width=screen_width(SCREEN))
    show(f"records in all: {release.total()}")
    if release.listing is None:
        for line in textwrap.wrap(
            nothing_else(table["low"][largest], table["high"][largest]), screen_width(SCREEN)
        ):
            show(line)
    for line in textwrap.wrap(release.description, screen_width(SCREEN)):
        show(line)


def _show_values(release: Release) -> None:
    if len(release.domain.axes) != 1:
        shape = " x ".join(str(n) for n in release.domain.shape)
        show(f"grid of {shape} bins; records in all: {release.total()}")
        _show_grid(release)
        show(
            f"ask for a part of it, such as: dphist query RELEASE {shlex.join(example_part(release.domain))}"
        )
        return
    from rich.cells import cell_len

    names = [harmless(name, keep="") for name in release.domain.axis.names()]
    values = release.values()
    low, high = release.presentable_intervals()
    shown = range(len(names)) if len(names) <= 24 else [*range(12), *range(len(names) - 12, len(names))]
    rows = []
    for i in shown:
        rows.append((names[i], f"{values[i]:z,.0f}", interval(low[i], high[i])))
    header = ("bin", "records", "95 % interval")
    numbers = sum(max(cell_len(row[k]) for row in [header, *rows]) for k in (1, 2))
    longest = max(cell_len(row[0]) for row in [header, *rows])
    # The bars get what the numbers leave, and labels are shortened before the bars are.
    room = max(screen_width(SCREEN) - numbers - 6, 16)
    label = min(longest, max(room - 30, room // 2))
    bar, top = min(30, room - label), max(float(values.max()), 1.0)
    bars = ["█" * round(bar * max(float(values[i]), 0.0) / top) for i in shown]
    table = [(*row, drawn) for row, drawn in zip(rows, bars, strict=True)]
    if len(names) > 24:
        table.insert(12, ("…", "…", "…", ""))
    print_table((*header, ""), table, right=header[1:], label=label, width=screen_width(SCREEN))
    which = list(shown)
    for line in textwrap.wrap(nothing_else(low[which], high[which]), screen_width(SCREEN)):
        show(line)
    if not (low == low).any():
        show(release.error.description)


def _show_grid(release: Release) -> None:
    """Print the values of a grid of which one axis has few bins; its intervals, if all are as wide."""
    from rich.cells import cell_len

    axes, values = release.domain.axes, release.values()
    names = [str(name) for name in release.provenance.get("column", ("x", "y"))]
    if axes[1].n > _FEW:
        axes, values, names = axes[::-1], values.T, names[::-1]
    if axes[1].n > _FEW:
        return
    rows, across = ([harmless(name, keep="") for name in axis.names()] for axis in axes)
    shown = range(len(rows)) if len(rows) <= 24 else [*range(12), *range(len(rows) - 12, len(rows))]
    header = (harmless(" by ".join(names), keep=""), *across)
    table = [(rows[i], *(f"{value:z,.0f}" for value in values[i])) for i in shown]
    if len(rows) > 24:
        table.insert(12, ("…",) * len(header))
    wide = sum(max(cell_len(row[k]) for row in [header, *table]) + 1 for k in range(1, len(header)))
    label = max(screen_width(SCREEN) - wide - 2, 8)
    if wide + 10 > screen_width(SCREEN):
        return
    print_table(header, table, right=header[1:], label=label, width=screen_width(SCREEN))
    low, high = release.intervals()
    width = (high - low).ravel() / 2
    if release.post == "none" and np.ptp(width) < 1e-9:
        half = f"{above(width[0]):z,.0f}"
        show(f"95 % interval: {half} below to {half} above each value, for each on its own")


def spelled_edges(axis: Axis) -> list[Any]:
    """Return the edges of an axis that is not of labels, as queries name them."""
    if isinstance(axis, Keyed):
        raise UsageError("ask for one of these bins in one group at a time: name it with --group.")
    return axis.moments() if axis.kind == "instants" else axis.edges.tolist()  # type: ignore[union-attr]


def example_part(domain: Domain) -> list[str]:
    """Return the part of a query, in the words of the axes."""
    words: list[str] = []
    for axis in domain.axes:
        if axis.kind == "categories":
            words.append(axis.names()[0])
        elif isinstance(axis, Keyed):
            words.append("KEY" if isinstance(axis, Hashed) else axis.name(0))
        elif isinstance(axis, Integers):
            words += [str(axis.low), str(axis.low + 1)]
        elif axis.kind == "instants":
            words += [axis.edge_name(i) for i in (0, 1)]  # type: ignore[union-attr]
        else:
            words += [f"{edge:.6g}" for edge in axis.edges[:2]]
    return words
