"""Compares methods on public or made-up data: checks the question, runs it, and ranks the results.

Nothing here is private and nothing is spent: the counts are public files, or drawn from shapes in words.
"""

from __future__ import annotations

import json
import math
import os
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dphist._common.renamed import renamed_fields
from dphist.domain import MAX_BINS, Domain, Integers
from dphist.domain.workload import make_workload
from dphist.errors import DataError, OutputError, UsageError, did_you_mean
from dphist.lab import data, grid, metrics
from dphist.lab.data import Source
from dphist.lab.grid import Cell
from dphist.methods.catalogue import CATALOGUE, find, usual
from dphist.planning import shapes
from dphist.privacy.ledger import parse_epsilon

METRICS = {
    "mean_absolute": "mean absolute error of a query",
    "mean_squared": "mean squared error of a query",
    "max_absolute": "absolute error of the worst query",
    "scaled": "mean squared error of a query, over the number of records",
    "kl": "KL divergence of the published shares from the true ones",
}
MARK, KIND = "comparison.json", "dphist-comparison"
_CELL = ("dataset", "epsilon")


@dataclass(frozen=True)
class Subject:
    """One histogram, and the methods that are tried on it."""

    source: Source
    bins: int
    records: int
    methods: tuple[str, ...]
    trials: int


@dataclass(frozen=True)
class Question:
    """What is compared; trials are those of one method on one dataset, over all its samples.

    Args:
        split: whether a method is chosen on one half of the datasets and judged on the other.
    """

    subjects: tuple[Subject, ...]
    epsilons: tuple[str, ...]
    workload: str
    trials: int
    metric: str
    split: bool = False

    def cells(self) -> tuple[Cell, ...]:
        """Return the work, in the order of the question."""
        return tuple(
            Cell(subject.source, epsilon, self.workload, method, subject.trials)
            for subject in self.subjects
            for epsilon in self.epsilons
            for method in subject.methods
        )


@dataclass(frozen=True)
class Line:
    """One method on one dataset at one epsilon.

    Args:
        low, high: 95 % bootstrap interval of the mean.
        regret: the mean over the best method's.
        competitive: whether it is not significantly worse than the best.
        seconds: median CPU time of one run.
    """

    method: str
    mean: float
    low: float
    high: float
    p95: float
    regret: float
    competitive: bool
    seconds: float
    trials: int


@renamed_fields(scale="records")
@dataclass(frozen=True)
class Ranking:
    """All methods on one dataset at one epsilon, best first, and why some failed."""

    dataset: str
    n: int
    records: int
    epsilon: float
    lines: tuple[Line, ...]
    failed: dict[str, str]

    @property
    def title(self) -> str:
        """The dataset, its size and the budget, in words."""
        named = f" bins={self.n} " in self.dataset
        size = "" if named else f" ({self.n:,} bins, {self.records:,} records)"
        return f"{self.dataset}{size}, epsilon {self.epsilon:g}"

    @property
    def short(self) -> str:
        """The same in fewer words, for a small picture."""
        return f"{self.dataset}, epsilon {self.epsilon:g}"


@dataclass(frozen=True)
class Standing:
    """One method over all rankings.

    Args:
        regret: geometric mean over the rankings it is in.
        among_best: in how many it is not significantly worse than the best.
    """

    method: str
    regret: float
    worst: float
    among_best: int
    rankings: int


@dataclass(frozen=True)
class Choice:
    """The method that was best on one half of the datasets, judged on the other half.

    Args:
        regret_where_chosen: its regret on the half that chose it, which flatters; all are geometric means.
        regret: its regret on the other half, and ``worst`` the largest there.
        best: the method of the least regret on that other half, for comparison.
    """

    chosen_on: tuple[str, ...]
    judged_on: tuple[str, ...]
    method: str
    regret_where_chosen: float
    regret: float
    worst: float
    best: str
    best_regret: float


@dataclass(frozen=True)
class Comparison:
    """A question with its answer; ``choices`` are there if the data were split."""

    question: Question
    rankings: tuple[Ranking, ...]
    overall: tuple[Standing, ...]
    rows: tuple[grid.Row, ...]
    choices: tuple[Choice, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        q = self.question
        sources = [asdict(subject.source) for subject in q.subjects]
        head = {"format": KIND, "version": 1, "metric": q.metric, "workload": q.workload, "sources": sources}
        rankings = [
            asdict(r) | {"scale": r.records} for r in self.rankings
        ]  # beside its old name, for one version
        tables = {"rankings": rankings, "overall": [asdict(s) for s in self.overall]}
        if self.choices:
            tables["choices"] = [asdict(choice) for choice in self.choices]
        made: dict[str, Any] = _plain(head | {"trials": q.trials} | tables)
        return made


def ask(
    *,
    files: Sequence[Path] = (),
    like: Sequence[str] = (),
    samples: int = 5,
    methods: Sequence[str] = (),
    epsilons: Sequence[str] = ("0.1", "1"),
    workload: str = "points",
    trials: int = 10,
    metric: str = "mean_absolute",
    split: bool = False,
) -> Question:
    """Return the question that the arguments ask; every mistake in them is reported before anything runs.

    Args:
        files: public histograms: .npy or .csv files, or folders of them.
        like: data described in words, such as ``bins=4096 records=1e6 sparse``.
        samples: how many samples are drawn of each description; the trials are spread over them.
        methods: catalogue names, or ``all``; none means those that are usual for each dataset.
        split: choose a method on one half of the datasets and judge it on the other, which needs two.
    """
    if not files and not like:
        raise UsageError(
            "choose the data to compare on: --data FILE_OR_FOLDER with public counts, or "
            '--like "bins=4096 records=1e6 sparse" for made-up ones (dphist shapes lists the shapes).'
        )
    if trials < 2:
        raise UsageError(f"trials must be at least 2, not {trials}: one run says nothing about the spread.")
    if samples < 1:
        raise UsageError(f"samples must be at least 1, not {samples}.")
    if metric not in METRICS:
        raise UsageError(f"there is no metric {metric!r}. {did_you_mean(metric, METRICS)}")
    wanted = _methods(methods)
    spent = list({parse_epsilon(text): text for text in reversed(epsilons)}.values())[::-1]
    many = min(samples, trials)  # one sample of a shape may be a lucky one
    drawn = [
        (replace(_described(text), draw=i), trials // many + (i < trials % many))
        for text in dict.fromkeys(like)
        for i in range(many)
    ]
    subjects = []
    for source, runs in (*((s, trials) for s in _read(files)), *drawn):
        counts = source.counts()
        domain = Domain(tuple(Integers(0, size - 1) for size in counts.shape))
        try:
            queries = make_workload(workload, domain)
        except UsageError as error:
            raise UsageError(f"{source.name}: {error}") from None
        subjects.append(
            Subject(source, counts.size, int(counts.sum()), wanted or usual(domain, queries), runs)
        )
    if split and len({subject.source.name for subject in subjects}) < 2:
        raise UsageError(
            "a split needs two datasets or more, to choose a method on one half and judge it on the other: "
            "give another --like or --data."
        )
    return Question(tuple(subjects), tuple(spent), workload, trials, metric, split)


def run(
    question: Question,
    *,
    out: Path | None = None,
    jobs: int = -1,
    backend: str | None = None,
    progress: bool = True,
) -> Comparison:
    """Run what is not yet in the folder, and rank all."""
    return rank(question, grid.run(question.cells(), out=out, jobs=jobs, backend=backend, progress=progress))


def rank(question: Question, rows: Sequence[grid.Row]) -> Comparison:
    """Return what the rows say."""
    value = question.metric
    means = metrics.summarise(rows, by=(*_CELL, "method"), value=value)
    best = metrics.competitive(rows, cell=_CELL, value=value)
    times: dict[tuple[Any, ...], list[float]] = {}
    failed: dict[tuple[Any, ...], dict[str, str]] = {}
    for row in rows:
        at, method = tuple(row[name] for name in _CELL), row["method"]
        why = failed.setdefault(at, {})
        if row["status"] == "ok":
            times.setdefault((*at, method), []).append(row["seconds"])
        else:
            why[method] = row["error"].removeprefix("UsageError: ")
    lines: dict[tuple[Any, ...], list[Line]] = {at: [] for at in failed}
    for line in sorted(metrics.regret(means, cell=_CELL), key=lambda line: float(line["mean"])):
        at, method = tuple(line.pop(name) for name in _CELL), line["method"]
        among, seconds = method in best[at], statistics.median(times[*at, method])
        lines[at].append(Line(**line, competitive=among, seconds=seconds))
    sizes = {subject.source.name: (subject.bins, subject.records) for subject in question.subjects}
    rankings = [Ranking(at[0], *sizes[at[0]], at[1], tuple(lines[at]), failed[at]) for at in failed]
    choices = metrics.held_out(rows, cell=_CELL, value=value) if question.split else []
    return Comparison(
        question,
        tuple(rankings),
        _overall(rankings),
        tuple(rows),
        tuple(Choice(**choice) for choice in choices),
    )


def claim(out: Path, *, command: str) -> None:
    """Take a folder for a comparison: a new or empty one, or that of an earlier comparison."""
    mark, ours = out / MARK, False
    try:
        out.mkdir(parents=True, exist_ok=True)
        foreign = any(out.iterdir())
        with suppress(ValueError, AttributeError):  # then it is some other program's
            ours = mark.exists() and json.loads(mark.read_text("utf-8")).get("format") == KIND
        if foreign and not ours:
            raise OutputError(f"{out} holds something else than a comparison; use a folder of its own.")
        if not ours:
            write(mark, json.dumps({"format": KIND, "version": 1} | _when(command)))
    except OSError as error:
        raise OutputError(f"cannot write in {out}: {error.strerror}. Use --out elsewhere.") from None


def keep(made: Comparison, out: Path, *, command: str) -> list[Path]:
    """Write the picture, the page and the figures as JSON, and return where."""
    from dphist.lab import page

    when, files = _when(command), []
    if made.overall:  # else everything failed, and there is nothing to draw
        for name, picture in (("compare.png", page.errors(made)), ("skyline.png", page.times(made))):
            files.append(picture.save(out / name, overwrite=True))
    files.append(write(out / "compare.html", page.page(made, **when)))
    files.append(write(out / MARK, json.dumps(made.to_dict() | when, indent=1)))
    return [*files, out / grid.TABLE]


def write(path: Path, text: str) -> Path:
    """Write a whole file or none."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(text, "utf-8")
    return part.replace(path)


def _when(command: str) -> dict[str, str]:
    return {"command": command, "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")}


def _overall(rankings: Sequence[Ranking]) -> tuple[Standing, ...]:
    """Return every method's standing; one that failed somewhere comes after those that never did."""
    found: dict[str, list[Line]] = {}
    for line in (line for ranking in rankings for line in ranking.lines):
        found.setdefault(line.method, []).append(line)
    standings = []
    for method, lines in found.items():
        regrets = [line.regret for line in lines]
        wins = sum(line.competitive for line in lines)
        mean = metrics.geometric_mean(regrets)
        standings.append(Standing(method, mean, max(regrets), wins, len(regrets)))
    return tuple(sorted(standings, key=lambda s: (-s.rankings, s.regret)))


def _methods(names: Sequence[str]) -> tuple[str, ...]:
    """Return the methods named, each once; none if none are."""
    wanted = [name for name in dict.fromkeys(names) if name != "all"]
    for name in wanted:
        find(name)
    return tuple(CATALOGUE) if "all" in names else tuple(wanted)


def _described(text: str) -> Source:
    like = shapes.parse_like(text)
    if like.n > MAX_BINS:
        raise UsageError(f"bins must be at most {MAX_BINS}, not {like.n}.")
    return Source(
        f"{like.shape} bins={like.n} records={like.records}", like.shape, n=like.n, records=like.records
    )


def _read(paths: Iterable[Path]) -> list[Source]:
    """Return the histograms at paths, each once, under names that differ."""
    found: list[Source] = []
    for path in paths:
        if path.is_dir():
            found += data.folder(path)
        elif path.suffix not in data.FILES:
            raise UsageError(f"{path} must be a .npy or .csv file of counts, or a folder of such files.")
        elif not path.exists():
            raise DataError(f"there is no file {path}.")
        else:
            found.append(Source(path.name.split(".")[0], str(path.resolve())))
    once = list({source.shape: source for source in found}.values())
    names = Counter(source.name for source in once)
    return [s if names[s.name] == 1 else replace(s, name=s.shape) for s in once]


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: no infinity and no NaN."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
