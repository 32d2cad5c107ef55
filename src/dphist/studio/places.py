"""The files that exist for the page: those in the folder of the start, links followed before the check."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from dphist.studio.guard import Refusal


class Places:
    """A folder, and what lies in it by names that are relative to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()

    def inside(self, name: Any, *, what: str = "path") -> Path:
        """Return the file of a name in the folder; refuse every other, whether or not it is there."""
        if not isinstance(name, str) or not name or "\0" in name or len(name) > 1000:
            raise Refusal(400, "usage", f"{what} must be the name of a file in the studio's folder.")
        place = self.folder / name
        if not self.holds(place):
            raise outside(name)
        return place

    def holds(self, place: Path) -> bool:
        """Return whether a path leads to a place in the folder, links followed, whether or not it exists."""
        try:
            real = place.resolve()
        except (OSError, RuntimeError, ValueError):  # a ring of links, or a NUL in its name
            return False
        return real == self.folder or real.is_relative_to(self.folder)

    def name(self, place: str | os.PathLike[str]) -> str:
        """Return the name of a place for the page: relative to the folder if it lies in it."""
        path = Path(os.path.normpath(Path.cwd() / place))
        for folder in (self.folder, Path(os.path.normpath(self.folder))):
            if path.is_relative_to(folder):
                return str(path.relative_to(folder))
        real = path.resolve()
        return str(real.relative_to(self.folder)) if real.is_relative_to(self.folder) else str(path)


def outside(name: str) -> Refusal:
    """Return the refusal of a path that does not lie in the folder of the start."""
    return Refusal(
        403,
        "forbidden",
        "the studio reads and writes in its own folder alone. Start it in the folder of that file.",
        path=name,
    )
