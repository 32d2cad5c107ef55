"""Publishing from the page: one charge however often the button is pressed, one draw that everybody sees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

from dphist.errors import AlreadyCharged, BudgetExceeded, DphistError, LedgerError, UsageError
from dphist.planning import once
from dphist.planning.once import Standing
from dphist.planning.places import check_apart, check_folder
from dphist.planning.plan import UnmadeLedger
from dphist.planning.publication import Publication
from dphist.privacy.counts import unit_words
from dphist.privacy.ledger import Ledger, LedgerLike
from dphist.release.show import decimal
from dphist.release.words import guess_in_words, unit_word
from dphist.studio.answers import exact
from dphist.studio.guard import Refusal, in_words
from dphist.studio.ledgers import Ledgers
from dphist.studio.places import Places
from dphist.studio.plans import Checked, Plans
from dphist.studio.serve import PUBLICATION
from dphist.studio.service import Asked

_AFTER = "Type it as it is shown: nothing was charged."
_NOTHING = "Nothing was charged."


class Job:
    """A publication that is being made, in a thread that outlives the request which began it."""

    def __init__(self, made: Checked, token: str) -> None:
        self.made, self.token, self.step, self.done = made, token, "preparing", Event()
        self.failure: tuple[int, dict[str, Any]] | None = (
            None  # in words: an error would keep counts in memory
        )
        self.releases: Mapping[str, Any] | None = None  # drawn and paid for, until they are saved


class Publishing:
    """The publications of a session."""

    def __init__(self, places: Places, plans: Plans, ledgers: Ledgers) -> None:
        self.places, self.plans, self.ledgers = places, plans, ledgers
        self._lock = Lock()
        self._job: Job | None = None

    # ---- questions ----------------------------------------------------------------------------------

    def prepare(self, asked: Asked) -> dict[str, Any]:
        """Return what publishing a saved plan would charge, whether it may, and the token to do it with."""
        return self.prepared(self._saved(asked), again=asked.get("again") is True)

    def prepared(self, made: Checked, *, again: bool) -> dict[str, Any]:
        """Return what publishing a plan would charge; ``again`` asks for a charge after earlier ones."""
        book, exists = self.ledgers.opened(made.publication, read_only=True)
        charged, following = once.tokens(made.publication, made.folder, book)
        standing = self._look(made, book, following if again or not charged else charged[-1])
        publication, dataset = made.publication, made.publication.dataset
        left = book.remaining(dataset)
        after = None if left is None else left - publication.budget
        reason = self._reason(publication, book)
        checks = self._checks(made, book, reason)
        return self._said(made, standing) | {
            "charge": exact(publication.budget),
            "ledger": self.places.name(self.ledgers.account(publication)[0]),
            "exists": exists,
            "dataset": dataset,
            "spent": exact(book.spent(dataset)),
            "limit": exact(book.limit(dataset)),
            "left": exact(left),
            "left_after": None if after is None or after < 0 else exact(after),
            "allowed": all(check["ok"] for check in checks),
            "reason": next((_uncharged(check["message"]) for check in checks if not check["ok"]), None),
            "most": exact(left),
            "phrase": _phrase(publication),
            "folder": self.places.name(_target(made)),
            "histograms": _histograms(publication),
            "unit": _unit(publication),
            "odds": _odds(publication, book.spent(dataset)),
            "checks": checks,
        }

    def publish(self, asked: Asked) -> dict[str, Any]:
        """Publish a saved plan, or return what the same token published before."""
        return self.published(self._saved(asked), asked)

    def published(
        self, made: Checked, asked: Asked, *, before: Callable[[], None] = lambda: None
    ) -> dict[str, Any]:
        """Publish a plan with a token that was prepared for it, once the words are typed.

        Args:
            before: called before anything is counted or charged.
        """
        token = _token(asked)
        book, _ = self.ledgers.opened(made.publication, read_only=True)
        job = self._running(token)
        charged, following = once.tokens(made.publication, made.folder, book)
        if token not in (*charged, following):
            raise Refusal(409, "changed", "this was prepared for another plan. Nothing was charged.")
        if job is None and token not in charged:
            if asked.get("confirm") != _phrase(made.publication):
                raise Refusal(400, "usage", f"the words are: {_phrase(made.publication)}. {_AFTER}")
            before()
            job = self._begin(made, token)
            job.done.wait()
            return self._told(made, token, job, again=False)
        if job is not None:
            job.done.wait()
        return self._told(made, token, job, again=True)

    def state(self, asked: Asked) -> dict[str, Any]:
        """Return how far a publication is."""
        made, token = self.plans.on_disk(asked), _token(asked)
        book, _ = self.ledgers.opened(made.publication, read_only=True)
        return self._said(made, self._look(made, book, token))

    def finish(self, asked: Asked) -> dict[str, Any]:
        """Give a release that was drawn and written whole its name; nothing is drawn or charged."""
        made, token = self.plans.on_disk(asked), _token(asked)
        with self._lock:
            job = self._job
            if job is not None and job.token == token and job.releases is not None and job.done.is_set():
                once.save(job.made.publication, job.releases, _target(job.made))
                job.releases = None
            else:
                book, _ = self.ledgers.opened(made.publication, read_only=True)
                standing = once.look(_target(made), token, book)
                if standing.state == "finishable":
                    once.finish(_target(made), standing)
        return self._told(made, token, None, again=True)

    def is_published(self, made: Checked) -> bool:
        """Return whether a plan as it is was charged, and its last release is there."""
        try:
            book, _ = self.ledgers.opened(made.publication, read_only=True)
            charged, _ = once.tokens(made.publication, made.folder, book)
            return bool(charged) and self._look(made, book, charged[-1]).state == "published"
        except (DphistError, Refusal):
            return False  # Publish says what is wrong

    def unfinished(self, made: Checked) -> list[dict[str, Any]]:
        """Return what was charged and not published: of this plan, and all in its folder that was begun."""
        book, exists = self.ledgers.opened(made.publication, read_only=True)
        if not exists:
            return []
        kept = set(once.without_name(made.folder))
        found = [entry.token for entry in book.entries() if entry.token and entry.release in kept]
        own = once.tokens(made.publication, made.folder, book)[0]
        standings = [self._look(made, book, token) for token in dict.fromkeys([*own[-1:], *found])]
        return [
            self._said(made, each) | {"own": each.token in own}
            for each in standings
            if each.state in ("finishable", "lost")
        ]

    # ---- the work -----------------------------------------------------------------------------------

    def _running(self, token: str) -> Job | None:
        with self._lock:
            job = self._job
            return job if job is not None and job.token == token and not job.done.is_set() else None

    def _begin(self, made: Checked, token: str) -> Job:
        """Start a publication, or join the one of this token; there is only one at a time."""
        with self._lock:
            if self._job is not None and not self._job.done.is_set():
                if self._job.token == token:
                    return self._job
                raise Refusal(
                    409,
                    "already_running",
                    "another publication is running. Wait for it. Nothing was charged.",
                )
            if self._job is not None and self._job.releases is not None:
                raise Refusal(
                    409,
                    "already_running",
                    "a release that is paid for could not be written yet. Finish it first.",
                )
            job = self._job = Job(made, token)
        # No daemon: the process does not end between a charge and the release that it paid for.
        Thread(target=self._work, args=(job,), name=PUBLICATION, daemon=False).start()
        return job

    def _work(self, job: Job) -> None:
        made = job.made

        def step(name: str) -> None:
            job.step = name

        def keep(releases: Mapping[str, Any]) -> None:
            job.releases = releases

        try:
            check_folder(_target(made).parent)
            self._check_apart(made)
            book = self._book(made.publication)
            once.publish(
                made.publication, _target(made), book=book, token=job.token, progress=step, drawn=keep
            )
            job.releases = None
        except AlreadyCharged:
            pass  # by another process: what became of it is looked up
        except BaseException as error:
            job.failure = in_words(error)
        finally:
            job.done.set()

    def _book(self, publication: Publication) -> LedgerLike:
        path, made = self.ledgers.account(publication)
        if made:
            return UnmadeLedger(lambda: Ledger.open(path, create=True))
        return self.ledgers.opened(publication, read_only=False)[0]

    def _check_apart(self, made: Checked) -> None:
        target, account = _target(made), self.ledgers.account(made.publication)[0]
        names = once.file_names(made.publication).items()
        places = {f"the file of {name!r},": target / file for name, file in names}
        check_apart(str(made.publication.data), account, places)

    # ---- what is said -------------------------------------------------------------------------------

    def _saved(self, asked: Asked) -> Checked:
        """Return a plan as it is saved, which must be the one that the page shows."""
        made = self.plans.on_disk(asked)
        if made.publication.data is None:
            raise UsageError("the plan names no data yet: choose a file of records.")
        if asked.get("plan_digest") != made.digest:
            name = self.places.name(made.path)
            raise Refusal(
                409, "changed", f"{name} is saved with another plan. Save this one first.", path=name
            )
        return made

    def _look(self, made: Checked, book: LedgerLike, token: str) -> Standing:
        standing = once.look(_target(made), token, book)
        with self._lock:
            job = self._job
            if job is None or job.token != token:
                return standing
            if not job.done.is_set():
                return Standing(token, "running", standing.entry)
            if job.releases is not None and standing.state == "lost":
                return Standing(token, "finishable", standing.entry)
        return standing

    def _told(self, made: Checked, token: str, job: Job | None, *, again: bool) -> dict[str, Any]:
        """Return what came of a publication: its releases, or an error that says whether it was charged."""
        book, _ = self.ledgers.opened(made.publication, read_only=True)
        standing = self._look(made, book, token)
        said = self._said(made, standing)
        if standing.state == "published":
            return said | {"again": again}
        if job is not None and job.failure is not None:
            status, failed = job.failure
            words = failed | {"charged": standing.entry is not None}
            if standing.entry is not None:
                words["message"] = f"{said['words']} {words['message']}"
            raise Refusal(status, words.pop("code"), words.pop("message"), **words)
        code = "unfinished" if standing.state in ("finishable", "running") else standing.state
        raise Refusal(409, code, said["words"], charged=standing.entry is not None)

    def _said(self, made: Checked, standing: Standing) -> dict[str, Any]:
        job = self._running(standing.token)
        entry = standing.entry
        files = {name: self.places.name(path) for name, path in (standing.files or {}).items()}
        shown = None
        if files:
            ordered = [name for name in made.publication.plans if name in files]
            folder = str(Path(next(iter(files.values()))).parent)
            shown = {"folder": folder, "releases": [{"name": n, "path": files[n]} for n in ordered]}
        return {
            "path": self.places.name(made.path),
            "plan_digest": made.digest,
            "publish_token": standing.token,
            "state": job.step if job is not None else standing.state,
            "words": _words(standing),
            "publication": shown,
            "entry": None if entry is None else entry.number,
            "when": None if entry is None else entry.when,
            "charged": None if entry is None else exact(entry.epsilon),
        }

    def _reason(self, publication: Publication, book: LedgerLike) -> str | None:
        try:
            book.check(publication.budget, dataset=publication.dataset)
        except BudgetExceeded:
            left = exact(book.remaining(publication.dataset))
            asked = decimal(publication.budget)
            return f"Refused: epsilon {asked} is more than the {left} that is left. Nothing was charged."
        except LedgerError as error:
            return str(error)
        return None

    def _checks(self, made: Checked, book: LedgerLike, reason: str | None) -> list[dict[str, Any]]:
        publication, target = made.publication, _target(made)
        source = str(publication.data)
        data = "The database" if "://" in source else self.places.name(source)
        folder = self.places.name(target.parent)
        folder = "the folder" if folder == "." else f"the folder {folder}"
        tried: list[tuple[str, Callable[[], None]]] = [
            (f"{data} can be opened; its columns match the plan", publication.check_fit),
            ("Bins and labels come from the plan, not from the data", lambda: None),
            (f"{folder[0].upper()}{folder[1:]} can be written to", lambda: check_folder(target.parent)),
            ("The releases replace neither records nor a ledger", lambda: self._check_apart(made)),
        ]
        checks = []
        for words, check in tried:
            try:
                check()
                checks.append({"ok": True, "message": words})
            except DphistError as error:
                checks.append({"ok": False, "message": str(error)})
        ledger = reason or "The ledger is open and its limit allows the charge"
        return [
            *checks,
            {"ok": reason is None, "message": ledger},
            {"ok": True, "message": "The plan file is saved"},
        ]


def _words(standing: Standing) -> str:
    """Return in a sentence how far a publication is, and whether it was charged."""
    entry = standing.entry
    if entry is None:
        return "Nothing was charged." if standing.state == "new" else "It is being published."
    paid = f"Epsilon {exact(entry.epsilon)} was charged (entry {entry.number})"
    return {
        "published": f"{paid}, and the release is published.",
        "running": f"{paid}; the release is being written.",
        "finishable": f"{paid}, but the release was not finished. It is drawn and whole, and only needs its "
        "name: it can be finished without a new charge.",
    }.get(standing.state, f"{paid}, but {once.NOT_HERE} It can be published again as a new charge.")


def _uncharged(message: str) -> str:
    """Return why something is refused, with the assurance that it cost nothing."""
    return message if message.endswith(_NOTHING) else f"{message} {_NOTHING}"


def _phrase(publication: Publication) -> str:
    return f"charge {decimal(publication.budget)}"


def _target(made: Checked) -> Path:
    """Return the folder of a plan's releases: as in the shell, named after the plan file."""
    return made.path.with_suffix("")


def _token(asked: Asked) -> str:
    token = asked.get("publish_token")
    if not isinstance(token, str) or len(token) != 64 or not token.isalnum():
        raise UsageError("publish_token must be the one that was prepared.")
    return token


def _histograms(publication: Publication) -> list[dict[str, Any]]:
    names = once.file_names(publication)
    return [
        {"name": name, "epsilon": exact(plan.budget), "file": names[name]}
        for name, plan in publication.plans.items()
    ]


def _odds(publication: Publication, spent: Fraction) -> str:
    whom = unit_word(next(iter(publication.plans.values())).unit)
    return guess_in_words(publication.budget, whom, with_earlier=publication.budget + spent)


def _unit(publication: Publication) -> str:
    plans = publication.plans.values()
    unit = next(iter(plans)).unit
    whom = None if unit is None else unit_word(unit)
    return unit_words(whom, max(plan.max_contributions for plan in plans))
