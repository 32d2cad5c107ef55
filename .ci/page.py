"""Build the studio's page: its modules become one file, which is committed.

usage: page.py ESBUILD [OUT]
"""

import hashlib
import subprocess
import sys
from pathlib import Path

STUDIO = Path(__file__).parent.parent / "src" / "dphist" / "studio"
PAGE, BUILT = STUDIO / "page", STUDIO / "static" / "app.js"
FLAGS = ("--bundle", "--minify", "--format=esm", "--target=es2022", "--charset=utf8", "--log-level=warning")
# Names of the page's own state, which no answer of the server and nothing that is kept has.
OWN = (
    "--mangle-props=^(session|trouble|good|gone|enter|leave|drawn|view|check|given|draws|curves"
    "|over|until|move|pick|old)$"
)


def digest() -> str:
    """Return what tells these modules from all others; the built file begins with it."""
    found = hashlib.sha256()
    for path in sorted(PAGE.glob("*.js")):
        found.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()[:16]


def build(esbuild: str, out: Path) -> None:
    """Write the file that the browser loads."""
    banner = f"--banner:js=// make studio-page: {digest()}"
    subprocess.run(
        [esbuild, "app.js", *FLAGS, OWN, "--external:./vega.js", banner, f"--outfile={out.absolute()}"],
        cwd=PAGE,
        check=True,
    )


if __name__ == "__main__":
    build(str(Path(sys.argv[1]).absolute()), Path(sys.argv[2]) if len(sys.argv) > 2 else BUILT)
