"""Groups of records, and the levels they add up to: a tree declared before any record is read, and public.

``by="hospital"`` with a list of hospitals is one level. Regions of hospitals are two, the nation above them
three: ``("nation", "region", "hospital")``. The last level's groups are the leaves: every record belongs to
one of them, or to none.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from typing import Any, TypeAlias

import numpy as np

from dphist._common.warned import warn
from dphist.domain.axes import Categories, refuse_column, shown
from dphist.domain.declare import read_lines
from dphist.domain.groups import Groups, Ints, frozen
from dphist.errors import UsageError, did_you_mean

MOST_LEVELS = 6
GroupsLike: TypeAlias = Sequence[str] | Mapping[str, Any] | str | os.PathLike[str]
_ALL = "all"  # what the only group of a top level is called that was not declared
_FEW = 3
_COMPARED = 20_000  # labels that are compared with one that there is not


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """The groups of every level, from the top to the leaves.

    >>> tree = make_hierarchy(("nation", "region", "hospital"), {"North": ["H1", "H2"], "South": ["H3"]})
    >>> tree.labels
    (('all',), ('North', 'South'), ('H1', 'H2', 'H3'))

    Args:
        names: what each level is called, the top first; the last is also the column that is read.
        labels: the groups of each level; those of one parent lie side by side.
        parents: for each level below the top, the number of the group above each of its groups.
        other: whether the last leaf takes the records of groups that were not declared.
    """

    names: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    parents: tuple[Ints, ...] = ()
    other: bool = False

    def __post_init__(self) -> None:
        if not 1 <= len(self.names) <= MOST_LEVELS or len(self.labels) != len(self.names):
            raise UsageError(f"groups have from 1 to {MOST_LEVELS} levels, each with a name.")
        if len(set(self.names)) != len(self.names):
            raise UsageError("two levels have the same name; give each its own.")
        if len(self.parents) != len(self.names) - 1:
            raise UsageError("every level below the top says which group is above each of its groups.")
        sizes = self.sizes
        for level, parent in enumerate(self.parents):
            p = frozen(np.array(parent, dtype=np.int64))
            rises = p.shape == (sizes[level + 1],) and p[0] == 0 and p[-1] == sizes[level] - 1
            if not rises or not np.isin(np.diff(p), (0, 1)).all():
                raise UsageError(f"every {self.names[level]} needs groups below it, side by side.")
            object.__setattr__(self, "parents", (*self.parents[:level], p, *self.parents[level + 1 :]))

    @property
    def depth(self) -> int:
        """How many levels there are."""
        return len(self.names)

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many groups each level has."""
        return tuple(map(len, self.labels))

    @property
    def leaves(self) -> tuple[str, ...]:
        """The groups of the last level."""
        return self.labels[-1]

    @cached_property
    def axis(self) -> Categories:
        """The leaves as bins, by which records are counted."""
        return Categories(self.leaves[: -1 if self.other else None], other=self.other)

    def runs(self, level: int) -> Groups:
        """Return the leaves below each group of a level: a partition of them into runs."""
        if level == self.depth - 1:
            return Groups.singletons(len(self.leaves))
        above = self.parents[-1]
        for parent in reversed(self.parents[level:-1]):
            above = parent[above]
        return Groups(np.append(np.flatnonzero(np.diff(above, prepend=-1)), above.size))

    def part(self, leaves: Ints) -> Hierarchy:
        """Return some of the leaves, given in rising order, and the groups above them."""
        labels, parents, kept = [np.array(self.leaves, dtype=object)[leaves]], list[Ints](), leaves
        for level in reversed(range(self.depth - 1)):
            kept, below = np.unique(self.parents[level][kept], return_inverse=True)
            labels.insert(0, np.array(self.labels[level], dtype=object)[kept])
            parents.insert(0, below)
        last = bool(leaves[-1] == len(self.leaves) - 1)
        return Hierarchy(self.names, tuple(map(tuple, labels)), tuple(parents), self.other and last)

    def level(self, name: str) -> int:
        """Return the number of a level, the top being 0."""
        if name not in self.names:
            raise UsageError(f"there is no level {shown(name)}; the levels are {', '.join(self.names)}.")
        return self.names.index(name)

    def find(self, label: str) -> tuple[int, int]:
        """Return level and number of a group; of a label that is on several levels, the lowest."""
        for level in reversed(range(self.depth)):
            if (at := self._places(level).get(label)) is not None:
                return level, at
        raise UsageError(f"there is no group {shown(label)}.{_meant(label, self.labels)}")

    def at(self, level: int, label: str) -> int:
        """Return the number of a group of one level."""
        found = self._places(level).get(label)
        if found is None:
            meant = _meant(label, self.labels[level : level + 1])
            raise UsageError(f"there is no {self.names[level]} {shown(label)}.{meant}")
        return found

    def knowing(self, places: Mapping[int, dict[str, int]]) -> Hierarchy:
        """Return this, with the numbers of groups by their labels, which were made already."""
        self.__dict__["_found"] = dict(places)
        return self

    def _places(self, level: int) -> dict[str, int]:
        made: dict[int, dict[str, int]] = self.__dict__.setdefault("_found", {})
        if level not in made:
            made[level] = {label: i for i, label in enumerate(self.labels[level])}
        return made[level]

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description."""
        return {
            "names": list(self.names),
            "labels": [list(labels) for labels in self.labels],
            "parents": [parent.tolist() for parent in self.parents],
            "other": self.other,
        }

    @classmethod
    def from_dict(cls, described: Mapping[str, Any]) -> Hierarchy:
        """Return the groups that ``to_dict`` described."""
        labels = tuple(tuple(level) for level in described["labels"])
        parents = tuple(np.array(parent) for parent in described["parents"])
        return cls(tuple(described["names"]), labels, parents, bool(described["other"]))


def make_hierarchy(by: str | Sequence[str], groups: GroupsLike, *, other: str | None = None) -> Hierarchy:
    """Return declared groups, checked.

    Args:
        by: the column that says to which group a record belongs, or the names of all levels from the top
            down, of which the last is that column.
        groups: the groups: a list of labels; dictionaries of lists, one for each level above the last; or a
            text file with one group per line, the groups above it before it, separated by tabs.
        other: the label of a group for all records whose group was not declared; None leaves them out.
    """
    names = (by,) if isinstance(by, str) else tuple(by) if isinstance(by, Sequence) else ()
    if not names or not all(isinstance(name, str) and name for name in names):
        raise UsageError("by must name a column, or the levels from the top to the column.")
    refuse_column(groups, "groups")
    paths = list(_paths(_from_file(groups) if isinstance(groups, str | os.PathLike) else groups))
    if not paths:
        raise UsageError("groups must name at least one group.")
    depth = len(paths[0])
    odd = next((path for path in paths if len(path) != depth), None)
    if odd is not None:
        raise UsageError(
            f"every group must have as many groups above it as every other: {shown(odd[-1])} has "
            f"{len(odd) - 1}, and {shown(paths[0][-1])} has {depth - 1}."
        )
    if other is not None:
        paths.append((other,) * depth)
    if len(names) == depth + 1 and depth < MOST_LEVELS:
        paths = [(_ALL, *path) for path in paths]
    elif len(names) == 1:
        names = (*(f"level {i + 1}" for i in range(depth - 1)), *names)
    elif len(names) != depth:
        raise UsageError(f"by names {len(names)} levels, and the groups have {depth}.")
    _check_labels(paths)
    return _tree(names, paths, other is not None)


def _paths(groups: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield each leaf with the groups above it, from the top down."""
    if isinstance(groups, Mapping):
        for label, below in groups.items():
            if not isinstance(below, Mapping | Sequence) or isinstance(below, str) or not len(below):
                raise UsageError(f"the group {shown(label)} must have a list of groups below it.")
            yield from _paths(below, (*above, label))
    elif isinstance(groups, Sequence) and not isinstance(groups, str):
        for label in groups:
            yield (*above, *label) if isinstance(label, tuple) else (*above, label)
    else:
        raise UsageError("groups must be a list of labels, dictionaries of such lists, or a text file.")


def _from_file(path: str | os.PathLike[str]) -> list[tuple[str, ...]]:
    return [tuple(line.split("\t")) for _, line in read_lines(path, "groups")]


def _check_labels(paths: list[tuple[str, ...]]) -> None:
    """Refuse labels that are no text, empty, or twice; warn of those that look alike."""
    if not all(isinstance(label, str) for label in chain.from_iterable(paths)):
        odd = next(i for i, path in enumerate(paths) if not all(isinstance(label, str) for label in path))
        raise UsageError(f"a group's label must be a string, such as '17'; that of group {odd + 1} is not.")
    if not all(map(str.strip, chain.from_iterable(paths))):
        blank = next(i for i, path in enumerate(paths) if not all(map(str.strip, path)))
        raise UsageError(f"the label of group {blank + 1} is empty.")
    leaves = [path[-1] for path in paths]
    if len(set(leaves)) != len(leaves):
        first: dict[str, tuple[str, ...]] = {}
        for path in paths:
            before = first.setdefault(path[-1], path)
            if before is not path:
                where = "in two groups above it" if before[:-1] != path[:-1] else "twice"
                raise UsageError(
                    f"the group {shown(path[-1])} is declared {where}; every leaf has one place."
                )
    _warn_of_looks(leaves)


def _warn_of_looks(leaves: list[str]) -> None:
    """Warn of labels that readers could take for each other, or that no record may have as they stand."""
    keys, folded = list(map(_folded, leaves)), dict[str, str]()
    alike = [
        (folded[key], label)
        for key, label in (zip(keys, leaves, strict=True) if len(set(keys)) < len(keys) else ())
        if folded.setdefault(key, label) != label
    ]
    if alike:
        some = "; ".join(f"{a!r} and {b!r}" for a, b in alike[:_FEW])
        warn(f"groups differ only in case, spaces or Unicode forms: {some}. Is each meant?")
    told = set(chain.from_iterable(alike))
    spaced = [label for label in leaves if label != label.strip() and label not in told]
    if spaced:
        some = ", ".join(map(repr, spaced[:_FEW]))
        warn(f"groups begin or end with spaces: {some}. Records count only if theirs do too.")


def _folded(label: str) -> str:
    plain = label if label.isascii() else unicodedata.normalize("NFKC", label)
    return " ".join(plain.split()).casefold()


def _meant(label: object, levels: Sequence[Sequence[str]]) -> str:
    """Return a sentence that names similar groups; nothing where there are too many to compare."""
    if not isinstance(label, str) or sum(map(len, levels)) > _COMPARED:
        return ""
    return " " + did_you_mean(label, set(chain.from_iterable(levels)))


def _tree(names: tuple[str, ...], paths: list[tuple[str, ...]], other: bool) -> Hierarchy:
    """Return the tree of paths: groups in the order in which they first appear, below those above them."""
    depth = len(names)
    if depth == 1:
        return Hierarchy(names, (tuple(label for (label,) in paths),), (), other)
    rank: list[dict[tuple[str, ...], int]] = [{} for _ in range(depth)]
    for path in paths:
        for level in range(depth):
            rank[level].setdefault(path[: level + 1], len(rank[level]))
    keys = [sorted(rank[0], key=rank[0].__getitem__)]
    for upper, lower in pairwise(range(depth)):
        place = {key: i for i, key in enumerate(keys[upper])}
        keys.append(sorted(rank[lower], key=lambda k: (place[k[:-1]], rank[lower][k])))
    parents = []
    for upper, lower in pairwise(range(depth)):
        place = {key: i for i, key in enumerate(keys[upper])}
        parents.append(np.array([place[key[:-1]] for key in keys[lower]], dtype=np.int64))
    labels = []
    for level in range(depth):
        labels.append(tuple(key[-1] for key in keys[level]))
        if level < depth - 1 and len(set(labels[-1])) != len(labels[-1]):
            twice = next(label for i, label in enumerate(labels[-1]) if label in labels[-1][:i])
            raise UsageError(
                f"the {names[level]} {shown(twice)} is in two groups above it; give it one place."
            )
    return Hierarchy(names, tuple(labels), tuple(parents), other)
