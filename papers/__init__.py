"""The papers' experiments, run again with private versions of their methods: tables, figures and a page.

Each paper has a TOML file, with its published figures, our settings and its claims, and a module for what is
special to it.
"""

from __future__ import annotations

from pathlib import Path

from dphist.errors import OutputError, UsageError, did_you_mean
from papers import runner

PAPERS = ("ahp", "dawa", "engineering", "sortaki")


def reproduce(
    name: str, *, out: Path, quick: bool, data: Path | None, jobs: int = -1, backend: str | None = None
) -> Path:
    """Run a paper's experiments and return the folder with tables, figures and README.md.

    A run that was interrupted goes on where it stopped.

    Args:
        name: one of ``PAPERS``.
        out: the folder to write to; made if it is not there.
        quick: minutes instead of hours: fewer trials, and what the paper's module leaves out.
        data: a folder of real histograms, used where one has the name of the paper's data.
        jobs: how many processes; -1 for one per core.
        backend: a joblib backend, such as ``dask``.
    """
    if name not in PAPERS:
        raise UsageError(f"there is no paper {name!r}. {did_you_mean(name, PAPERS)}")
    if data is not None and not data.is_dir():
        raise UsageError(f"there is no folder {str(data)!r}; leave it out to use made-up data alone.")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"the folder {str(out)!r} cannot be made: {error.strerror}; choose another."
        ) from error
    runner.perform(runner.Run(name, out, quick, data, jobs, backend))
    return out
