"""The plan that the page edits: checked, opened and saved as a plan file, and shown in four languages."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from dphist.errors import DphistError, UsageError
from dphist.planning import plan_files
from dphist.planning.grouped import GroupedPlan
from dphist.planning.places import data_files
from dphist.planning.plan import Plan
from dphist.planning.plan_texts import in_python, in_words
from dphist.planning.publication import Publication
from dphist.privacy.counts import unit_words
from dphist.release.show import decimal
from dphist.release.words import unit_word
from dphist.studio.answers import MOST_NAMES, axis_of, exact
from dphist.studio.guard import Refusal
from dphist.studio.places import Places, outside
from dphist.studio.service import Asked

_LISTS = ("categories", "y_categories", "groups", "prior")  # which may be the name of a file
_EXACT = ("epsilon", "share", "calibrate")  # which travel as text
NEW = "plan.toml"


@dataclass(frozen=True)
class Checked:
    """A plan that is right: its publication, the folder of its file, and what tells it from others."""

    publication: Publication
    path: Path

    @property
    def folder(self) -> Path:
        """The folder that paths in the plan are relative to."""
        return self.path.parent

    @property
    def text(self) -> str:
        """The plan file."""
        return plan_files.text_of(self.publication, self.folder)

    @property
    def digest(self) -> str:
        """What tells this plan from every other."""
        return hashlib.sha256(self.text.encode("utf-8", "backslashreplace")).hexdigest()


class Plans:
    """The plan files of a folder."""

    def __init__(self, places: Places, *, sources: frozenset[str], ledger: Path | None) -> None:
        """Make them.

        Args:
            sources: addresses of databases that were named at the start; the page can name no other.
            ledger: the ledger that was named at the start, which may lie elsewhere.
        """
        self.places, self._sources, self._ledger = places, sources, ledger
        self._lock = Lock()

    def path(self, asked: Asked) -> Path:
        """Return the plan file that is asked about; it need not be there yet."""
        path = self.places.inside(asked.get("path") or NEW)
        if path.suffix.lower() != ".toml":
            raise UsageError("a plan file ends in .toml.")
        return path

    def draft(self, asked: Asked) -> tuple[Path, dict[str, Any]]:
        """Return the file and the words of the plan that was sent; it need not be complete."""
        path = self.path(asked)
        return path, self._confined(_words(asked.get("plan")), path)

    def of(self, asked: Asked) -> Checked:
        """Return the plan that was sent, or the error of what is wrong with it."""
        path, said = self.draft(asked)
        return Checked(plan_files.publication_of(said, path), path)

    def on_disk(self, asked: Asked) -> Checked:
        """Return the plan that is saved in a file."""
        path = self.path(asked)
        self._read(path)
        self._confined(plan_files.parsed(path), path)
        return Checked(plan_files.read(path), path)

    # ---- questions ----------------------------------------------------------------------------------

    def check(self, asked: Asked) -> dict[str, Any]:
        """Return the plan as it is understood, or what is wrong with it."""
        path, said = self.draft(asked)
        try:
            return self._shown(Checked(plan_files.publication_of(said, path), path))
        except DphistError as error:
            return self._problems(said, path, error)

    def open(self, asked: Asked) -> dict[str, Any]:
        """Return a plan file."""
        path = self.path(asked)
        content = self._read(path)
        return {"path": self.places.name(path), "file_digest": _sum(content)} | self._shown(
            self.on_disk(asked)
        )

    def save(self, asked: Asked) -> dict[str, Any]:
        """Write a plan file, unless another program has changed it since the page saw it."""
        made = self.of(asked)
        base = asked.get("base_digest")
        with self._lock:
            there = self._read(made.path) if made.path.exists() else None
            if (None if there is None else _sum(there)) != base:
                raise Refusal(
                    409,
                    "changed",
                    f"{self.places.name(made.path)} was changed by another program, and is not replaced.",
                    path=self.places.name(made.path),
                )
            plan_files.write(made.publication, made.path, overwrite=True)
        return self.open({"path": self.places.name(made.path)})

    # ---- what is said of a plan ---------------------------------------------------------------------

    def _shown(self, made: Checked) -> dict[str, Any]:
        publication = made.publication
        return {
            "plan": _plan(publication, made.folder),
            "plan_digest": made.digest,
            "toml": made.text,
            "shell": self.shell(made),
            "python": in_python(publication, made.folder),
            "words": in_words(publication),
            "whom": unit_word(next(iter(publication.plans.values())).unit),
            "histograms": {name: _histogram(publication, name) for name in publication.plans},
            "epsilon": exact(publication.budget),
            "problems": [],
        }

    def shell(self, made: Checked) -> str:
        """Return the commands that publish this plan, run in the folder of the studio."""
        name = shlex.quote(self.places.name(made.path))
        book = ""
        if made.publication.ledger is None and self._ledger is not None:
            book = f"DPHIST_LEDGER={shlex.quote(self.places.name(self._ledger))} "
        return f"{book}dphist plan price {name}\n{book}dphist plan publish {name}\n"

    def _problems(self, said: dict[str, Any], path: Path, error: DphistError) -> dict[str, Any]:
        """Return each histogram that is right, and what is wrong with the others and with the whole."""
        histograms = said.get("histograms")
        shown: dict[str, Any] = {}
        problems = []
        for name, one in histograms.items() if isinstance(histograms, dict) else ():
            alone = {"epsilon": "1"} | {k: v for k, v in said.items() if k not in ("epsilon", "histograms")}
            single = {k: v for k, v in one.items() if k != "share"} if isinstance(one, dict) else one
            try:
                made = plan_files.publication_of(alone | {"histograms": {name: single}}, path)
            except DphistError as wrong:
                problems.append(_problem(str(wrong), f"histograms.{name}", single))
            else:
                shown[name] = _histogram(made, name) | {"share": None, "epsilon": None}
        if not problems:
            problems.append(_problem(str(error), "", said))
        nothing = dict.fromkeys(
            ("plan", "plan_digest", "toml", "shell", "python", "words", "whom", "epsilon")
        )
        return nothing | {"histograms": shown, "problems": problems}

    # ---- files --------------------------------------------------------------------------------------

    def _read(self, path: Path) -> bytes:
        try:
            return path.read_bytes()
        except OSError:
            name = self.places.name(path)
            raise Refusal(410, "gone", f"the plan file {name} is not there any more.", path=name) from None

    def source(self, name: Any, folder: Path) -> str:
        """Return the records that a plan names: in the studio's folder, or named at its start."""
        if not isinstance(name, str) or not name:
            raise UsageError("data must be the name of a file.")
        if "://" in name:
            if name not in self._sources:
                raise outside(name.partition("://")[0])
            return name
        if not self.places.holds(folder / name) or not all(map(self.places.holds, _files(folder / name))):
            raise outside(name)
        return str(folder / name)

    def _confined(self, said: dict[str, Any], path: Path) -> dict[str, Any]:
        """Return the words of a plan, unless they name a file outside the folder."""
        folder = path.parent
        if isinstance(said.get("data"), str):
            self.source(said["data"], folder)
        ledger = said.get("ledger")
        if isinstance(ledger, str) and not self.places.holds(folder / ledger):
            mine = self._ledger is not None and (folder / ledger).resolve() == self._ledger.resolve()
            if not mine:
                raise outside(ledger)
        histograms = said.get("histograms")
        for one in histograms.values() if isinstance(histograms, dict) else ():
            for key in _LISTS if isinstance(one, dict) else ():
                named = one.get(key)
                if isinstance(named, str) and not self.places.holds(folder / named):
                    raise outside(named)
                if isinstance(named, str) and key != "prior" and not _is_list(folder / named):
                    raise Refusal(
                        422,
                        "privacy_rule",
                        "that file may hold records, and labels are shown: name a list of labels in .txt.",
                        path=named,
                    )
        return said


def _files(source: Path) -> Iterable[Path]:
    """Return the files of records, those of a folder or a glob too: a link among them may lead elsewhere."""
    with suppress(OSError, ValueError):  # a name that cannot be: what opens it says so
        return list(data_files(str(source)))
    return ()


def _is_list(path: Path) -> bool:
    """Return whether a file is named as a list of labels, links followed; any other may hold records."""
    try:
        return all(place.suffix.lower() == ".txt" for place in (path, path.resolve()))
    except (OSError, RuntimeError):  # a ring of links
        return False


def _words(plan: Any) -> dict[str, Any]:
    """Return the words of a plan that the page sent; null says nothing."""
    if not isinstance(plan, dict):
        raise UsageError("plan must be an object: the plan file as JSON.")
    said = {key: value for key, value in plan.items() if value is not None}
    histograms = said.get("histograms")
    if isinstance(histograms, dict):
        said["histograms"] = {
            name: {key: value for key, value in one.items() if value is not None}
            if isinstance(one, dict)
            else one
            for name, one in histograms.items()
        }
    return said


def _plan(publication: Publication, folder: Path) -> dict[str, Any]:
    """Return a publication as the page edits it."""
    said = plan_files.words_of(publication, folder)
    said["histograms"] = {name: _texts(one) for name, one in said["histograms"].items()}
    return _texts(said)


def _texts(said: dict[str, Any]) -> dict[str, Any]:
    return {key: str(value) if key in _EXACT else value for key, value in said.items()}


def _histogram(publication: Publication, name: str) -> dict[str, Any]:
    plan = publication.plans[name]
    columns = [plan.column] if isinstance(plan.column, str) else list(plan.column or ())
    return {
        "share": exact(publication.shares[name]),
        "epsilon": exact(plan.budget),
        "bins": plan.domain.n,
        "method": plan.pipeline.name,
        "chosen": plan.pipeline.choice,
        "workload": workload_name(plan),
        "unit": unit_words(plan.unit, plan.max_contributions),
        "intervals": _cost_of_intervals(plan),
        "axes": [axis_of(axis, column) for axis, column in zip(plan.domain.axes, columns, strict=True)],
        "groups": _groups(plan) if isinstance(plan, GroupedPlan) else None,
    }


def workload_name(plan: Plan) -> str:
    """Return what a plan says will be asked: queries that are listed one by one have no name."""
    return plan.workload if isinstance(plan.workload, str) else "listed"


def _cost_of_intervals(plan: Plan) -> str:
    share = plan.pipeline.calibrate
    return "at no cost" if not share else f"for {decimal(share)} of epsilon"


def _groups(plan: GroupedPlan) -> dict[str, Any]:
    tree = plan.hierarchy
    return {"names": list(tree.names), "sizes": list(tree.sizes), "labels": list(tree.leaves[:MOST_NAMES])}


def _problem(message: str, path: str, said: Any) -> dict[str, Any]:
    """Return what is wrong, and the word of the plan that the message speaks of, if it is one."""
    text = message.partition(": ")[2] if message.startswith("the histogram ") else message
    spoken = re.findall(r"[a-z_]+", text)
    known = [key for key in said if key in spoken] if isinstance(said, dict) else []
    where = ".".join(part for part in (path, min(known, key=spoken.index, default="")) if part)
    return {"path": where, "message": text or message, "suggestion": None}


def _sum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
