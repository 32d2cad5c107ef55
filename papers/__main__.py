"""``python -m papers dawa --quick``: rerun a paper's experiments into results/."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from dphist.errors import DphistError
from papers import PAPERS, runner


def main() -> int:
    """Run one paper and list the files that were written."""
    parser = argparse.ArgumentParser(prog="python -m papers", description="Rerun a paper's experiments.")
    parser.add_argument("name", choices=PAPERS)
    parser.add_argument("--quick", action="store_true", help="minutes instead of hours")
    place = os.environ.get("DPHIST_BENCH_DATA")  # a text, which argparse makes a path as it does one typed
    parser.add_argument("--data", type=Path, default=place, help="folder with DPBench's files")
    parser.add_argument("--out", type=Path, help="default: results/NAME, or results/NAME-quick")
    parser.add_argument("--jobs", type=int, default=-1, help="runs at once; -1 is one per core")
    parser.add_argument("--backend", help="where they run, in joblib's words, such as dask")
    asked = parser.parse_args()
    out = asked.out or Path("results") / (f"{asked.name}-quick" if asked.quick else asked.name)
    before = _times(out)
    try:
        runner.perform(runner.Run(asked.name, out, asked.quick, asked.data, asked.jobs, asked.backend))
    except KeyboardInterrupt:
        print(
            f"interrupted; finished cells are kept in {out}: the same command goes on from there.",
            file=sys.stderr,
        )
        return 130
    except DphistError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    for file, when in _times(out).items():
        if before.get(file) != when:
            print(file)
    return 0


def _times(folder: Path) -> dict[Path, int]:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {path: path.stat().st_mtime_ns for path in files}


if __name__ == "__main__":
    sys.exit(main())
