"""A publication on disk: charged once, drawn once, and found again whenever its process was killed.

A token names one publication of one plan. It is written to the ledger in the step that charges, and the
ledger refuses it a second time, whoever asks. What is drawn is then written in three steps, each of them
synced before the next begins: all files under a temporary name that holds the name of the charge; a mark that
they are whole; the name under which everybody sees them, given to all at once. So, wherever it is killed:

* before the charge there is nothing, and the same token may be tried again;
* after the charge and before the mark, the draw is gone. It is not made again: see docs/privacy.md;
* after the mark, the one draw that there is only needs its name;
* after the name, it is published.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dphist._common.leftovers import sweep_files
from dphist.errors import DphistError, LedgerError, OutputError
from dphist.planning.grouped import GroupedPlan
from dphist.planning.plan import Plan
from dphist.planning.plan_files import text_of
from dphist.planning.publication import Publication
from dphist.privacy.ledger import Entry, LedgerLike
from dphist.release import fresh_name, grouped_files, load
from dphist.release.glance import mentions

try:
    import fcntl
except ImportError:  # no POSIX: a publication in another process is then not seen while it runs
    fcntl = None  # type: ignore[assignment]

State = Literal["new", "running", "finishable", "lost", "published"]
_ENDINGS = (".json", ".parquet")
_KEPT, _MARK, _INSIDE = ".dphist-release-", "whole", "releases"
_MOST_FOLDERS = 2000  # that are searched for a release


NOT_HERE = (
    "its releases are not here. Either their files were moved or deleted: put them back and they are "
    "found again. Or the process was stopped before they were on disk, and they are lost: to draw them again "
    "for the same charge would not be private."
)


@dataclass(frozen=True)
class Standing:
    """How far a publication is.

    Args:
        entry: its charge, if there is one.
        files: its releases by the names of the histograms, if they are published.
    """

    token: str
    state: State
    entry: Entry | None = None
    files: Mapping[str, Path] | None = None


# ---- tokens -----------------------------------------------------------------------------------------


def token_of(publication: Publication, folder: Path, number: int) -> str:
    """Return the token of the n-th publication of a plan in a folder; the same plan, the same token."""
    source = "" if publication.data is None else os.fspath(publication.data)
    place = source if "://" in source else str(Path(source).resolve())
    said = json.dumps(["publication", text_of(publication, folder), publication.dataset, place, number])
    return hashlib.sha256(said.encode("utf-8", "backslashreplace")).hexdigest()


def tokens(publication: Publication, folder: Path, book: LedgerLike) -> tuple[list[str], str]:
    """Return the tokens that a plan was charged with, in order, and the one it will be charged with next."""
    known = {entry.token for entry in book.entries(publication.dataset) if entry.token}
    charged: list[str] = []
    while (token := token_of(publication, folder, len(charged) + 1)) in known:
        charged.append(token)
    return charged, token


# ---- publishing -------------------------------------------------------------------------------------


def publish(
    publication: Publication,
    target: Path,
    *,
    book: LedgerLike,
    token: str,
    progress: Callable[[str], None] = lambda step: None,
    drawn: Callable[[Mapping[str, Any]], None] = lambda releases: None,
) -> Path:
    """Count, charge with a token, draw and save; return the folder.

    Args:
        progress: called with the step that begins, as in ``Publication.release``; the last is writing.
        drawn: called with the releases before they are saved, to be kept where that may fail.
    """
    with _announced(target.parent, token):
        releases = publication.release(ledger=book, token=token, progress=progress)
        drawn(releases)
        progress("writing")
        return save(publication, releases, target)


def save(publication: Publication, releases: Mapping[str, Any], target: Path) -> Path:
    """Write all releases, and give their folder its name in one step; return the name it got."""
    name = next(iter(releases.values())).id or f"{os.getpid()}"
    files = file_names(publication)
    kept = _beside(target.parent, name)
    shutil.rmtree(kept, ignore_errors=True)  # of a try that failed
    kept.mkdir(mode=0o700)
    try:
        inside = kept / _INSIDE  # made with the usual rights, other than the folder around it
        inside.mkdir()
        for key, made in releases.items():
            _synced(made.save(inside / files[key]))
        _synced(inside)
        _mark(kept)
        return _named(kept, target)
    except BaseException:
        if not (kept / _MARK).exists():  # otherwise it is whole, and can be finished
            shutil.rmtree(kept, ignore_errors=True)
        raise


def _mark(kept: Path) -> None:
    (kept / _MARK).touch()
    _synced(kept / _MARK)
    _synced(kept)


def finish(target: Path, standing: Standing) -> Path:
    """Give releases that are whole their name; nothing is drawn and nothing is charged."""
    if standing.state != "finishable" or standing.entry is None:
        raise OutputError("there is nothing to finish: the release is published, or was never written whole.")
    return _named(_beside(target.parent, standing.entry.release), target)


def _named(kept: Path, target: Path) -> Path:
    while True:
        name = fresh_name(target)
        try:
            (kept / _INSIDE).rename(name)
            break
        except OSError:
            if not name.exists():
                raise
    _synced(target.parent)
    shutil.rmtree(kept, ignore_errors=True)
    return name


def file_names(publication: Publication) -> dict[str, str]:
    """Return the name of each release's file: JSON, and Parquet where groups have too many values for it."""

    def ending(plan: Plan) -> str:
        many = isinstance(plan, GroupedPlan) and plan.size > grouped_files.MOST_IN_JSON
        return "parquet" if many else "json"

    return {name: f"{name}.{ending(plan)}" for name, plan in publication.plans.items()}


# ---- looking ----------------------------------------------------------------------------------------


def look(target: Path, token: str, book: LedgerLike) -> Standing:
    """Return how far a publication is, whatever became of the process that made it."""
    running = _is_announced(target.parent, token)
    entry = book.entry_of(token)
    if entry is None:
        return Standing(token, "running" if running else "new")
    if files := published(target, entry.release):
        return Standing(token, "published", entry, files)
    if running:
        return Standing(token, "running", entry)
    whole = _whole(_beside(target.parent, entry.release), entry.release)
    return Standing(token, "finishable" if whole else "lost", entry)


def published(target: Path, release: str) -> dict[str, Path]:
    """Return the files of a charge's releases: in the folder they were meant for, or in another beside it."""
    beside = sorted(path for path in target.parent.iterdir() if path.is_dir())[:_MOST_FOLDERS]
    near = [path for path in beside if path.name.startswith(target.name)]
    for folder in dict.fromkeys([*near, *beside]):
        if not folder.name.startswith(".") and (found := _releases(folder, release)):
            return found
    return {}


def _releases(folder: Path, release: str) -> dict[str, Path]:
    """Return the releases of a charge in a folder, by the names of their histograms."""
    found = {}
    with suppress(OSError):
        for file in sorted(folder.iterdir()):
            if file.suffix.lower() in _ENDINGS and mentions(file, release):
                with suppress(DphistError):
                    made = load(file)
                    said: Any = made.provenance.get("publication")
                    if made.id == release and said:
                        found[said["histogram"]] = file
    return found


def without_name(folder: Path) -> list[str]:
    """Return the charges whose releases lie in a folder under their temporary name."""
    return sorted(path.name.removeprefix(_KEPT) for path in folder.glob(f"{_KEPT}*") if path.is_dir())


def _beside(folder: Path, release: str) -> Path:
    return folder / f"{_KEPT}{release}"


def _whole(kept: Path, release: str) -> bool:
    """Return whether all releases of a charge lie under their temporary name, and can be read."""
    if not (kept / _MARK).exists():
        return False
    found = _releases(kept / _INSIDE, release)
    if not found:
        return False
    said: Any = load(next(iter(found.values()))).provenance["publication"]
    return set(said["histograms"]) == set(found)


def _synced(path: Path) -> None:
    """Wait until the disk has a file or the names in a folder."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


# ---- who is at it -----------------------------------------------------------------------------------


@contextmanager
def _announced(folder: Path, token: str) -> Iterator[None]:
    """Hold a lock that tells other processes that a publication is being made; its charge is not at stake."""
    sweep_files(folder)
    if fcntl is None:
        yield
        return
    place = _lock_file(folder, token)
    with place.open("ab") as held:
        try:
            fcntl.flock(held.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise LedgerError(
                "another process is publishing this plan right now. Wait for it. Nothing was charged here."
            ) from None
        try:
            yield
        finally:
            place.unlink(missing_ok=True)


def _is_announced(folder: Path, token: str) -> bool:
    if fcntl is None:
        return False
    with suppress(FileNotFoundError), _lock_file(folder, token).open("rb") as asked:
        try:
            fcntl.flock(asked.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def _lock_file(folder: Path, token: str) -> Path:
    return folder / f".dphist-{token[:32]}.tmp"  # which is swept away if its process is gone
