"""Servers that are killed at a step, and what stands in their folders afterwards."""

import subprocess
import sys
from pathlib import Path

from dphist.privacy.ledger import Ledger
from dphist.release import load


def charges(folder):
    """Return the charges of the ledger in a folder."""
    return [e for e in Ledger.open(folder / "l.db").entries() if e.kind == "charge"]


def visible(folder):
    """Return the draws that anybody can see: the values of every release with a name."""
    paths = [p for p in folder.rglob("*.json") if not any(part.startswith(".") for part in p.parts)]
    return {str(p.relative_to(folder)): load(p).raw.tolist() for p in sorted(paths)}


def kill_in(folders):
    """Let a server be killed in each folder, at the step that is named there."""
    script = Path(__file__).with_name("studio") / "killed.py"
    run = subprocess.run(
        [sys.executable, script, *map(str, folders)], capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stderr
