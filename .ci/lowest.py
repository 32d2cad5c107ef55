"""Print constraints for pip: of everything used at run time the lowest version that pyproject.toml allows.

The tools of the tests, and what else comes along, stay as constraints.txt has them.
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUN_TIME = ("demo", "frames", "postgres", "spark", "studio")
COMPANIONS = {
    "llvmlite",
    "polars-runtime-32",
    "psycopg-binary",
    "py4j",
}  # each goes with one version of another
_BOUND = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?>=([0-9.]+)")


def lowest(project: dict) -> dict[str, str]:
    """Return the lowest version of each dependency of the project and of its extras for run time."""
    extras = project["optional-dependencies"]
    found = {}
    for line in [*project["dependencies"], *(line for extra in RUN_TIME for line in extras[extra])]:
        bound = _BOUND.fullmatch(line)
        if bound is None:
            sys.exit(f"{line!r} names no lowest version; write NAME>=VERSION.")
        found[bound[1]] = bound[2]
    return found


def others(text: str, pinned: dict[str, str]) -> list[str]:
    """Return the lines of a file of constraints that are about nothing pinned."""
    lines = [line for line in text.splitlines() if "==" in line]
    return [line for line in lines if line.partition("==")[0] not in {*pinned, *COMPANIONS}]


if __name__ == "__main__":
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    pins = lowest(project)
    print(*(f"{name}=={version}" for name, version in pins.items()), sep="\n")
    print(*others((ROOT / "constraints.txt").read_text("utf-8"), pins), sep="\n")
