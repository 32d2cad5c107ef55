"""Writes the table of docs/methods/README.md from the catalogue: ``python docs/methods/make.py``."""

import re
from pathlib import Path

from dphist.domain import Domain, Integers
from dphist.methods.catalogue import CATALOGUE, Method

HERE = Path(__file__).parent
README = HERE / "README.md"
TABLE = re.compile(r"^\| name \|.*?\n\n", re.M | re.S)
LINE = Domain((Integers(0, 63),))


def page_of(name: str) -> str:
    """Return the page that describes a method, which has its name in the title."""
    titles = {page.name: page.read_text("utf-8").partition("\n")[0] for page in HERE.glob("*.md")}
    return next(page for page, title in titles.items() if name in re.split(r",\s*", title.removeprefix("# ")))


def shares(method: Method) -> str:
    """Return the shares of epsilon of the three steps that may spend."""
    split = method.build(LINE).split
    return " / ".join(f"{float(part):g}" for part in (split.initialize, split.partition, split.estimate))


def table() -> str:
    """Return the table, one line per method."""
    lines = [
        "| name | what it does | family | for | domains | intervals | time | shares |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for method in CATALOGUE.values():
        names = ", also ".join((f"[{method.name}]({page_of(method.name)})", *method.aliases))
        cells = (names, method.summary, method.family, *method.facts, shares(method))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n\n"


if __name__ == "__main__":
    README.write_text(TABLE.sub(lambda _: table(), README.read_text("utf-8")), "utf-8")
