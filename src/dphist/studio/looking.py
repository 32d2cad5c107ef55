"""A range that nobody knows: a small paid look at magnitudes, published as everything else is.

A look is a plan of one histogram, of the bins that `planning.bounds` has for every column. Its file is
written before it is charged, and from then on it is a publication like any other: one token, one charge, one
draw, on disk before anybody sees it. What the page is told is read from that disk, and is post-processing.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from dphist.errors import DphistError, OutputError, UsageError
from dphist.planning import plan_files
from dphist.planning.bounds import magnitudes, suggest
from dphist.release import Release, load
from dphist.studio.plans import Checked, Plans
from dphist.studio.publishing import Publishing
from dphist.studio.service import Asked

_OF_ALL = ("data", "ledger", "dataset", "unit", "table", "encoding", "decimal", "well_formed")
_OF_ONE = ("where", "timezone", "max_contributions")  # what a look takes over from the histogram
_NAME = "magnitudes"
_MOST_FILES = 100  # plan files of looks at columns of one name
_TOLD = ("publish_token", "state", "words", "entry", "charge", "charged", "dataset", "limit", "left_after")


class Looking:
    """The paid looks of a session."""

    def __init__(self, plans: Plans, publishing: Publishing) -> None:
        self.plans, self.publishing = plans, publishing

    def prepare(self, asked: Asked) -> dict[str, Any]:
        """Return what a look would charge, and the token to do it with; or what it found before."""
        made = self._plan(asked)
        found = self.publishing.prepared(made, again=asked.get("again") is True)
        more = {key: found[key] for key in ("allowed", "reason", "phrase")}
        return more | self._told(found)

    def look(self, asked: Asked) -> dict[str, Any]:
        """Look at the magnitudes of a column, for a charge, or return what the same token found before."""
        made = self._plan(asked)
        return self._told(self.publishing.published(made, asked, before=lambda: self._write(made)))

    # ---- its plan -----------------------------------------------------------------------------------

    def _plan(self, asked: Asked) -> Checked:
        """Return the plan of the look at one axis of a histogram, which need not be complete."""
        path, said = self.plans.draft(asked)
        one = said.get("histograms", {}).get(asked.get("histogram"))
        if not isinstance(one, dict):
            raise UsageError("histogram must be the name of one in the plan.")
        column = one.get("y_column" if asked.get("axis") == "y_" else "column")
        if not isinstance(column, str) or not column:
            raise UsageError("choose the column first.")
        if not said.get("data"):
            raise UsageError("the plan names no data yet: choose a file of records.")
        kept = {key: said[key] for key in _OF_ALL if key in said}
        looked = {key: one[key] for key in _OF_ONE if key in one}
        looked |= {"column": column, "bins": magnitudes().edges.tolist(), "method": "identity"}
        words = kept | {"epsilon": asked.get("epsilon"), "histograms": {_NAME: looked}}
        word = re.sub(r"\W+", "-", column).strip("-")[:40] or "column"
        return self._placed(words, path.parent / f"range-of-{word}.toml")

    def _placed(self, words: dict[str, Any], first: Path) -> Checked:
        """Return the plan in the file that holds it already, or else in the first that is free."""
        for number in range(1, _MOST_FILES + 1):
            path = first if number == 1 else first.with_stem(f"{first.stem}-{number}")
            made = Checked(plan_files.publication_of(words, path), path)
            if not path.exists() or self._is(made):
                return made
        raise OutputError(f"there are {_MOST_FILES} plans of that name. Move some of them elsewhere.")

    def _is(self, made: Checked) -> bool:
        """Return whether the file of a plan holds this very plan."""
        try:
            return plan_files.text_of(plan_files.read(made.path), made.folder) == made.text
        except DphistError:
            return False

    def _write(self, made: Checked) -> None:
        """Write the plan's file; another tab may have been faster."""
        try:
            plan_files.write(made.publication, made.path)
        except OutputError:
            if not self._is(made):
                raise

    # ---- what is told -------------------------------------------------------------------------------

    def _told(self, found: dict[str, Any]) -> dict[str, Any]:
        """Return how far a look is; once it lies on disk, what it suggests."""
        said = {key: found.get(key) for key in _TOLD} | {"path": found["path"], "again": found.get("again")}
        shown = found["publication"]
        return said | {"found": None if shown is None else self._found(shown["releases"][0]["path"])}

    def _found(self, name: str) -> dict[str, Any]:
        release = load(self.plans.places.inside(name))
        if not isinstance(release, Release):
            raise UsageError("a range is suggested by a release that a look has made, and no other.")
        found = suggest(release)
        ends = None if found.range is None else list(found.range)
        return {"release": name, "range": ends, "words": str(found)}
