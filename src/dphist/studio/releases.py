"""What the page asks of releases: all of it public, and all of it from the release's own file."""

from __future__ import annotations

import re
import tempfile
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dphist._common import __version__
from dphist.domain import Axis, Categories, Domain, Instants
from dphist.errors import DphistError, UsageError
from dphist.release import Estimate, Release, words
from dphist.release.differences import change, level_of_each
from dphist.release.files import fraction, load_dense
from dphist.release.glance import is_release
from dphist.release.grouped import GroupedRelease
from dphist.release.show import facts
from dphist.studio.answers import MOST_NAMES, axis_of, estimate, exact, line, numbers
from dphist.studio.guard import MOST_BYTES, MOST_DEPTH, MOST_VALUES, Answer, Refusal
from dphist.studio.places import Places
from dphist.studio.service import Asked
from dphist.uncertainty import noise_law

AnyRelease = Release | GroupedRelease
RELEASES = (".json", ".parquet")
DATA = (".csv", ".tsv", ".tab", ".jsonl", ".ndjson", ".parquet", ".pq", ".duckdb", ".sqlite", ".gz")
LIMITS = {"body": MOST_BYTES, "values": MOST_VALUES, "depth": MOST_DEPTH}
_OPEN, _MOST_FILES, _MOST_ROWS, _MOST_RANGES = 16, 1000, 2000, 256
_MOST_BINS = 1 << 18
_LINES = 60  # groups that are drawn as a small line each
_DOWNLOADS = {
    "png": "image/png",
    "svg": "image/svg+xml",
    "csv": "text/csv; charset=utf-8",
    "json": "application/json",
    "html": "text/html; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}


def level_in(asked: Asked) -> float:
    """Return the confidence level that was asked for."""
    level = asked.get("level", 0.95)
    if isinstance(level, bool) or not isinstance(level, int | float):
        raise UsageError("level must be a number between 0 and 1, such as 0.95.")
    noise_law.check_level(level)
    return float(level)


def flag(asked: Asked, name: str) -> bool:
    """Return a yes or no that was asked for."""
    value = asked.get(name, False)
    if not isinstance(value, bool):
        raise UsageError(f"{name} must be true or false.")
    return value


class Releases:
    """The releases in a folder; those that were opened last are kept in memory."""

    def __init__(
        self, places: Places, published: Callable[[words.AnyRelease], words.Published | None]
    ) -> None:
        self.places, self._published = places, published
        self._kept: OrderedDict[tuple[str, int, int], AnyRelease] = OrderedDict()
        self._lock = Lock()

    def functions(self) -> dict[str, Callable[[Asked], Any]]:
        """Return the questions about releases, by name."""
        return {
            "release/open": self.open,
            "release/query": self.query,
            "release/table": self.table,
            "release/export": self.export,
        }

    # ---- files --------------------------------------------------------------------------------------

    def files(self, asked: Asked, *, lines: bool) -> dict[str, Any]:
        """Return what lies in a folder: names and kinds, and of releases what they say of themselves."""
        under = asked.get("under") or ""
        folder = self.places.inside(under, what="under") if under else self.places.folder
        try:
            found = sorted(folder.iterdir(), key=lambda path: path.name)[:_MOST_FILES]
        except FileNotFoundError:
            found = []  # as the folder of a plan before it is published
        except OSError:
            raise Refusal(410, "gone", "that folder cannot be read any more.", path=str(under)) from None
        shown = (path for path in found if not path.name.startswith(".") and self.places.holds(path))
        return {"under": under, "files": [self._file(path, lines=lines) for path in shown]}

    def _file(self, path: Path, *, lines: bool) -> dict[str, Any]:
        named = {"path": self.places.name(path)}
        if path.is_dir():
            return named | {"kind": "folder"}
        ending = path.suffix.lower()
        if ending in RELEASES and (said := self._glance(path, lines=lines)) is not None:
            return named | {"kind": "release"} | said
        if ending == ".toml":
            return named | {"kind": "plan"}
        if ending in (".html", ".htm"):
            return named | {"kind": "page"}
        if _is_ledger(path):
            return named | {"kind": "ledger"}
        return named | {"kind": "data" if ending in DATA else "other"}

    def _glance(self, path: Path, *, lines: bool) -> dict[str, Any] | None:
        if path.name.endswith("-metadata.json") or not is_release(path):
            return None
        try:
            found = self._load(path)
        except DphistError:
            return None
        bins = found.bins.n if isinstance(found, GroupedRelease) else found.domain.n
        said: dict[str, Any] = {
            "release": {
                "title": words.usual_title(found),
                "epsilon": exact(found.epsilon),
                "created": found.created,
                "bins": bins,
                "method": found.method,
                "simulated": found.simulated,
            }
        }
        if lines:
            values = found.values().sum(axis=0) if isinstance(found, GroupedRelease) else found.values()
            said["line"] = line(values)
        return said

    def _load(self, path: Path) -> AnyRelease:
        try:
            status = path.stat()
        except OSError:
            raise Refusal(
                410, "gone", "that release is not there any more.", path=self.places.name(path)
            ) from None
        key = (str(path.resolve()), status.st_mtime_ns, status.st_size)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        found = load_dense(path)
        with self._lock:
            self._kept[key] = found
            while len(self._kept) > _OPEN:
                self._kept.popitem(last=False)
        return found

    def opened(self, name: Any) -> AnyRelease:
        """Return the release of a file in the folder."""
        return self._load(self.places.inside(name))

    # ---- questions ----------------------------------------------------------------------------------

    def open(self, asked: Asked) -> dict[str, Any]:
        """Return everything that is drawn and said of a release."""
        found, level = self.opened(asked.get("path")), level_in(asked)
        one, chosen = _one(found, asked.get("group"))
        if one.domain.n > _MOST_BINS:
            raise UsageError(f"more than {_MOST_BINS:,} bins are not drawn; ask with dphist query.")
        names = _column_names(found, one)
        each, joint = (_ends(one.presentable_intervals(level=level, joint=j)) for j in (False, True))
        title = words.usual_title(one)
        return {
            "path": asked.get("path"),
            "release": found.id,
            "title": title,
            "kind": "groups" if chosen else "grid" if len(one.domain.axes) == 2 else "line",
            "axes": [axis_of(axis, name) for axis, name in zip(one.domain.axes, names, strict=True)],
            "shape": list(one.domain.shape),
            "values": numbers(one.raw),
            "presentable": numbers(one.presentable),
            "post": one.post,
            "each": each,
            "most": words.holds_for_most(one),
            "joint": joint,
            "level": level,
            "epsilon": exact(found.epsilon),
            "publication": _plain(found.provenance.get("publication")),
            "unit": found.unit,
            "method": found.method,
            "created": found.created,
            "simulated": found.simulated,
            "about": [[name, text.replace(one.unit, _whom(one))] for name, text in facts(one)],
            "methods": words.methods(found, self._published(found)),
            "protects": _protects(found),
            "limits": {
                name: words.limits(found, joint=joint) for name, joint in (("each", False), ("joint", True))
            },
            "bounding": found.bounding,
            "odds": words.odds_in_words(found.epsilon, found.unit),
            "total": estimate(one.total(level=level)),
            "negatives": int((one.raw < 0).sum()),
            "citation": words.citation(found, words.usual_title(found)),
            "groups": _groups(found, chosen) if isinstance(found, GroupedRelease) else None,
            "spec": one.plot(level=level).spec,
        }

    def query(self, asked: Asked) -> dict[str, Any]:
        """Return estimates of ranges and quantiles, and how they changed since another release."""
        found, level, joint = self.opened(asked.get("path")), level_in(asked), flag(asked, "joint")
        one, _ = _one(found, asked.get("group"))
        ranges, quantiles = _listed(asked, "ranges"), _listed(asked, "quantiles")
        answers = [_sum(one, part, level=level, joint=joint) for part in ranges]
        halves = [one.quantile(_share(q), level=level) for q in quantiles]
        said: dict[str, Any] = {
            "release": found.id,
            "ranges": [
                estimate(a) | _between(one.domain, part) for part, a in zip(ranges, answers, strict=True)
            ],
            "quantiles": [{"q": q} | _spelled(a) for q, a in zip(quantiles, halves, strict=True)],
            "joint": joint,
            "level": level,
            "note": answers[0].note if answers else halves[0].note if halves else "",
            "compare": None,
        }
        if asked.get("compare") is not None:
            other, _ = _one(self.opened(asked["compare"]), asked.get("group"))
            if other.domain != one.domain:
                raise UsageError("these releases have other bins: only the same bins can be compared.")
            said["compare"] = _compared(one, other, ranges, level=level, joint=joint)
        return said

    def table(self, asked: Asked) -> dict[str, Any]:
        """Return some rows of the table that is exported."""
        from dphist.release.export import columns_of, describe

        found, level = self.opened(asked.get("path")), level_in(asked)
        table = columns_of(
            found if asked.get("group") is None else _one(found, asked["group"])[0], level=level
        )
        first, many = (whole(asked.get(name, usual), name) for name, usual in (("from", 0), ("rows", 200)))
        end = first + min(many, _MOST_ROWS)
        parts = [_cells(column[first:end]) for column in table.values()]
        return {
            "release": found.id,
            "columns": [{"name": name, "description": describe(name, level)} for name in table],
            "rows": [list(row) for row in zip(*parts, strict=True)],
            "of": int(next(iter(table.values())).size),
        }

    def export(self, asked: Asked) -> Answer:
        """Return a file to download: a picture, a table, the release itself, or a report made before."""
        form = asked.get("format")
        if not isinstance(form, str) or form not in _DOWNLOADS:
            raise UsageError(f"format must be one of {', '.join(_DOWNLOADS)}.")
        path, level = self.places.inside(asked.get("path")), level_in(asked)
        if form == "html":
            body, name = self._report(path, level), path.with_suffix(".html").name
        else:
            body, name = self._made(path, form, level, asked), f"{path.stem}.{form}"
        safe = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in name)
        headers = {"content-disposition": f'attachment; filename="{safe}"'}
        return Answer(200, body, _DOWNLOADS[form], headers)

    def _report(self, path: Path, level: float) -> bytes:
        """Return a report that was made before, or one about a release, which is written nowhere."""
        if path.suffix.lower() in RELEASES:
            from dphist.reports.sheet import Sheet

            found = self._load(path)
            made = Sheet(words.usual_title(found), [found], [], level, self._published)
            return made.html().encode("utf-8", "backslashreplace")
        if path.suffix.lower() not in (".html", ".htm"):
            raise UsageError("only a report is downloaded as HTML: make one first.")
        try:
            return path.read_bytes()
        except OSError:
            raise Refusal(410, "gone", "that report is not there any more.") from None

    def _made(self, path: Path, form: str, level: float, asked: Asked) -> bytes:
        from dphist.release.export import export

        found = self._load(path)
        one = found if asked.get("group") is None else _one(found, asked["group"])[0]
        title = asked.get("title") or ""
        if not isinstance(title, str) or len(title) > 300:
            raise UsageError("title must be a text of at most 300 letters.")
        if form in ("png", "svg"):
            more: dict[str, Any] = {"joint": flag(asked, "joint")} if isinstance(one, Release) else {}
            picture = one.plot(level=level, title=title, **more)
            return picture.to_png() if form == "png" else picture.to_svg().encode()
        if form == "json":
            return one.to_json().encode()
        with tempfile.TemporaryDirectory(prefix="dphist-studio-") as folder:
            target = Path(folder) / f"{path.stem}.{form}"
            export(one, target, level=level, title=title or None, published=self._published(found))
            return target.read_bytes()


def session(places: Places) -> dict[str, Any]:
    """Return what a page learns that only looks at releases."""
    return {
        "version": __version__,
        "mode": "view",
        "folder": str(places.folder),
        "plan": None,
        "data": None,
        "ledger": None,
        "dataset": None,
        "limits": LIMITS,
        "budget": None,
        "unfinished": [],
        "demo": False,
    }


def _is_ledger(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(14) == b"dphist-ledger "
    except OSError:
        return False


def _one(found: AnyRelease, group: Any) -> tuple[Release, tuple[str, str] | None]:
    """Return the histogram that is asked about, and of which level and group it is."""
    if isinstance(found, Release):
        if group is not None:
            raise UsageError("this release has no groups.")
        return found, None
    tree = found.hierarchy
    if group is None:
        group = [tree.names[-1], tree.leaves[0]]
    if not isinstance(group, list) or len(group) != 2 or not all(isinstance(word, str) for word in group):
        raise UsageError('group must be a level and a label, such as ["ward", "A"].')
    chosen = (group[0], group[1])
    return found[chosen], chosen


def _groups(found: GroupedRelease, chosen: tuple[str, str] | None) -> dict[str, Any]:
    tree, levels = found.hierarchy, []
    for at, name in enumerate(tree.names):
        labels, totals = tree.labels[at], found.totals(name)
        few = min(len(labels), _LINES)
        lines = [line(found[name, label].presentable) for label in labels[:few]]
        levels.append(
            {
                "name": name,
                "labels": list(labels[: 10 * MOST_NAMES]),
                "totals": numbers(totals[: 10 * MOST_NAMES]),
                "lines": lines,
                "size": len(labels),
            }
        )
    return {"names": list(tree.names), "levels": levels, "chosen": list(chosen or ())}


def _protects(found: AnyRelease) -> str:
    """Return whom a release protects: with the epsilon of all histograms that were published together."""
    said: Any = found.provenance.get("publication")
    epsilon, many = found.epsilon, 1
    with suppress(KeyError, TypeError, ValueError):  # a file says what it likes
        epsilon, many = fraction(said["epsilon"]), len(said["histograms"])
    start = f"One of {many} histograms that together protect" if many > 1 else "It protects"
    return f"{start} {_whom(found)} with epsilon {exact(epsilon)}."


def _whom(found: AnyRelease) -> str:
    """Return whom a release protects in a word of their own: a patient, not the column that names them."""
    named = re.fullmatch(r"one (.+) (with at most \d+ records?)", found.unit)
    return f"one {words.unit_word(named[1])} {named[2]}" if named else found.unit


def _column_names(found: AnyRelease, one: Release) -> list[str]:
    return words.column_names(found) or (["bin"] if len(one.domain.axes) == 1 else ["x", "y"])


def _ends(ends: tuple[NDArray[Any], NDArray[Any]]) -> dict[str, Any]:
    return {"low": numbers(ends[0]), "high": numbers(ends[1])}


def _plain(value: Any) -> Any:
    """Return frozen values as JSON has them."""
    if hasattr(value, "items"):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def _listed(asked: Asked, name: str) -> list[Any]:
    given = asked.get(name) or []
    if not isinstance(given, list) or len(given) > _MOST_RANGES:
        raise UsageError(f"{name} must be a list of at most {_MOST_RANGES}.")
    return given


def whole(value: Any, name: str) -> int:
    """Return a whole number that was asked for, 0 or more."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 31:
        raise UsageError(f"{name} must be a whole number, 0 or more.")
    return value


def _share(q: Any) -> float:
    if isinstance(q, bool) or not isinstance(q, int | float):
        raise UsageError("a quantile is asked for by a number between 0 and 1.")
    return float(q)


def _sum(one: Release, part: Any, *, level: float, joint: bool) -> Estimate:
    answer: Estimate = one.sum(*_where(one.domain, part), level=level, joint=joint)
    return answer


def _where(domain: Domain, part: Any) -> tuple[Any, ...]:
    """Return the words of the library for a range of bins, or for a rectangle of a grid."""
    axes = domain.axes
    if isinstance(part, dict):
        if len(axes) != 1 or not isinstance(axes[0], Categories) or not isinstance(part.get("bins"), list):
            raise UsageError('single bins are asked for by {"bins": [0, 2]}, where bins are labels.')
        return ([_label(axes[0], i) for i in part["bins"]],)
    if not isinstance(part, list) or len(part) != 2 * len(axes):
        raise UsageError("a range is two numbers of bins, the second excluded; of a grid it is four.")
    ends = [_span(axis, *part[2 * i : 2 * i + 2]) for i, axis in enumerate(axes)]
    if len(axes) == 2:
        return tuple(ends)
    return (ends[0],) if isinstance(axes[0], Categories) else tuple(ends[0])


def _label(axis: Categories, i: Any) -> str:
    if whole(i, "a bin") >= axis.n:
        raise UsageError(f"there are {axis.n} bins, counted from 0.")
    return str(axis.names()[i])


def _span(axis: Axis, first: Any, last: Any) -> Any:
    if not whole(first, "a bin") < whole(last, "a bin") <= axis.n:
        raise UsageError(f"a range of bins rises, from 0 to {axis.n} at most.")
    if isinstance(axis, Categories):
        return list(axis.names()[first:last])
    edges = axis.moments() if isinstance(axis, Instants) else axis.edges.tolist()
    return edges[first], edges[last]


def _between(domain: Domain, part: Any) -> dict[str, Any]:
    """Return where a range begins and ends, in the words of the axes."""
    if isinstance(part, dict):
        return {"from": None, "to": None}
    said = []
    for i, axis in enumerate(domain.axes):
        first, last = part[2 * i : 2 * i + 2]
        if axis.kind in ("categories", "integers"):
            said.append((axis.names()[first], axis.names()[last - 1]))
        else:
            ends = _span(axis, first, last)
            lo, hi = (end if isinstance(end, str) else f"{end:.12g}" for end in ends)
            said.append((lo, hi))
    if len(said) == 1:
        return {"from": said[0][0], "to": said[0][1]}
    return {"from": [ends[0] for ends in said], "to": [ends[1] for ends in said]}


def _spelled(answer: Estimate) -> dict[str, Any]:
    return estimate(answer) | {"spelled": list(answer.spelled)}


def _compared(
    one: Release, other: Release, ranges: list[Any], *, level: float, joint: bool
) -> dict[str, Any]:
    each = level_of_each(level)
    new, old = ([_sum(r, part, level=each, joint=joint) for part in ranges] for r in (one, other))
    return {
        "release": other.id,
        "values": numbers(other.raw),
        "ranges": [estimate(_sum(other, part, level=level, joint=joint)) for part in ranges],
        "change": [estimate(change(a, b)) for a, b in zip(new, old, strict=True)],
    }


def _cells(column: NDArray[Any]) -> list[Any]:
    if column.dtype.kind in "fiu":
        return [None if value != value or not np.isfinite(value) else value for value in column.tolist()]
    return [str(value) for value in column.tolist()]
