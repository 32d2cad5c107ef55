"""Runs a paper's experiments, and writes what they say: tables.md, pictures, and a page."""

from __future__ import annotations

import importlib
import platform
import re
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from dphist._common import __version__
from dphist.charts.picture import Picture
from dphist.domain.workload import make_workload
from dphist.errors import OutputError, UsageError
from dphist.lab import figures, grid
from dphist.lab.data import Source
from dphist.methods.catalogue import make_pipeline
from papers.look import Row
from papers.palette import with_palette
from papers.tables import number

Facts = Mapping[str, Any]  # what a paper's TOML file says
LARGEST = 150_000  # bytes of a picture that is kept with the sources
SMALLEST = 0.5  # the scale below which nobody can read the labels
PAGE = """# {title}

Made by `{command}` on {date} with dphist {version}, numpy {numpy}, Python {python}.
{cells} cells of {trials} trials; the methods alone took {seconds} s of CPU time.

{about}

{failed}

{sections}

## More

[tables.md](tables.md) has every table. The trials are in `rows.jsonl` and `rows.parquet`, which the command
makes and which are not kept with the sources.

{pictures}
"""


@dataclass(frozen=True)
class Run:
    """One run of a paper: what is asked on the command line.

    Args:
        out: the folder to write to; made if it is not there.
        quick: minutes instead of hours: fewer trials, and what the paper's module leaves out.
        data: a folder of real histograms, used where one has the name of the paper's data.
        jobs: how many processes; -1 for one per core.
        backend: a joblib backend, such as ``dask``.
    """

    name: str
    out: Path
    quick: bool
    data: Path | None = None
    jobs: int = -1
    backend: str | None = None

    @property
    def command(self) -> str:
        """What to type for the same; the folder of data by its name alone."""
        asked = [f"python -m papers {self.name}", "--quick" if self.quick else ""]
        return " ".join(word for word in (*asked, f"--data {self.data.name}" if self.data else "") if word)

    def rows(
        self,
        cells: Sequence[grid.Cell],
        *,
        build: grid.Build = make_pipeline,
        queries: grid.Queries = make_workload,
    ) -> list[Row]:
        """Run what the folder does not yet hold, and return the rows of all cells."""
        return grid.run(
            cells, out=self.out, jobs=self.jobs, backend=self.backend, build=build, queries=queries
        )


@dataclass
class Report:
    """What a paper's experiments came to.

    Args:
        sections: of the page, in Markdown.
        tables: of tables.md.
        pictures: by their files, with their titles.
    """

    rows: Sequence[Row]
    sections: list[str]
    tables: list[str]
    pictures: dict[str, tuple[str, Picture]] = field(default_factory=dict)


def load(name: str) -> Facts:
    """Return a paper's published figures, settings and claims."""
    return tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text("utf-8"))


def perform(run: Run, facts: Facts | None = None) -> None:
    """Run a paper and write its report; a run that was interrupted goes on where it stopped."""
    if run.data is not None and not run.data.is_dir():
        raise UsageError(f"there is no folder {str(run.data)!r}; leave it out to use made-up data alone.")
    try:
        run.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"the folder {str(run.out)!r} cannot be made: {error.strerror}; choose another."
        ) from error
    facts = load(run.name) if facts is None else facts
    report = importlib.import_module(f"papers.{run.name}").report(run, facts)
    for file, (_, picture) in report.pictures.items():
        save(picture, run.out / file)
    tables = "\n".join([f"# {facts['title']}: tables\n", *report.tables])
    (run.out / "tables.md").write_text(tables, "utf-8")
    (run.out / "README.md").write_text(page(run, facts, report), "utf-8")


def page(run: Run, facts: Facts, report: Report) -> str:
    """Return the page of a report: the command, versions and failures, what was found, and the pictures."""
    rows = report.rows
    runs = {(row["cell"], row["trial"]): row for row in rows}
    trials = Counter(cell for cell, _ in runs).values()
    failed = sorted({f"{row['method']}: {row['error']}" for row in rows if row["status"] != "ok"})
    text = PAGE.format(
        title=facts["title"],
        command=run.command,
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        version=__version__,
        numpy=np.__version__,
        python=platform.python_version(),
        cells=len(trials),
        trials=" to ".join(map(str, sorted({min(trials), max(trials)}))),
        seconds=number(sum(float(row["seconds"] or 0) for row in runs.values())),
        about=facts["about"].strip(),
        failed=f"**Failed:** {'; '.join(failed)}" if failed else "",
        sections="\n".join(report.sections),
        pictures="\n".join(f"![{title}]({file})" for file, (title, _) in report.pictures.items()),
    )
    return re.sub(r"\n{3,}", "\n\n", text).rstrip() + "\n"


def save(picture: Picture, path: Path, *, scale: float = 1.0) -> None:
    """Write a picture, smaller until it is light enough to be kept with the sources."""
    while len(content := with_palette(picture.to_png(scale=scale))) > LARGEST:
        if scale <= SMALLEST:
            raise OutputError(
                f"{path.name} takes {len(content):,} bytes, and may take {LARGEST:,}: draw it in two parts."
            )
        # A picture's bytes grow somewhat slower than its area.
        scale = max(SMALLEST, 0.95 * scale * (LARGEST / len(content)) ** 0.6)
    path.write_bytes(content)


def draw(facts: Facts, name: str, rows: Sequence[Row], **words: object) -> tuple[str, Picture]:
    """Return a picture that the paper's file describes, with its title.

    Args:
        words: what fills the gaps in its texts.
    """
    told = {k: v.format_map(words) if isinstance(v, str) else v for k, v in facts["pictures"][name].items()}
    make = getattr(figures, told.pop("kind"))
    return told["title"], make(rows, **told)


def made_up(facts: Facts) -> tuple[Source, ...]:
    """Return what stands for the paper's data: shapes of as many bins and records."""
    return tuple(
        Source(name, d["shape"], d["bins"], d["records"], d.get("draw", 0))
        for name, d in facts["data"].items()
    )


def data_table(sources: Sequence[Source], rows: Sequence[Row]) -> list[Row]:
    """Return what each source is: its bins and records, and whether it is a file or made up."""
    there = {row["dataset"]: row for row in rows}
    return [
        {
            "data": source.name,
            "bins": there.get(source.name, {}).get("n"),
            "records": there.get(source.name, {}).get("records"),
            "from": source.label if source.records is None else f"made up, shape {source.shape}",
        }
        for source in sources
    ]
