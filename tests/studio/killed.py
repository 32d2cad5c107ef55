"""Publishes from the studio, and is killed at one step after the other: run by test_server_publish.py.

Arguments: folders, each of which holds people.csv, plan.toml and the name of the step to die at in a file
`step`; a file `look` holds a question, if a paid look is meant. A child for each of them publishes and ends
itself there, as if killed.
"""

import json
import os
import sys
from pathlib import Path
from unittest.mock import patch

import cryptography.hazmat.primitives.ciphers  # noqa: F401
import sqlglot.dialects.duckdb  # noqa: F401

from dphist.planning import once
from dphist.planning import plan as api
from dphist.privacy import journal
from dphist.records.engines import duck, untyped  # noqa: F401 - ahead, so that no child has to
from dphist.release.release import Release
from dphist.studio.edit import Studio
from dphist.studio.start import Start

DIE = 86


def die(*_, **__):
    os._exit(DIE)


def after(function, times=1):
    """Return the function, after whose call the process is gone."""
    left = [times]

    def run(*given, **named):
        found = function(*given, **named)
        left[0] -= 1
        return die() if left[0] == 0 else found

    return run


STEPS = {
    "before the charge": lambda: patch.object(journal, "append", die),
    "in the middle of the charge": lambda: patch.object(journal, "_sync", die),
    "after the charge": lambda: patch.object(journal, "append", after(journal.append)),
    "before the draw": lambda: patch.object(api, "Curator", die),
    "after the draw": lambda: patch.object(once, "save", die),
    "after one file": lambda: patch.object(Release, "save", after(Release.save)),
    "before the mark": lambda: patch.object(once, "_mark", die),
    "before the rename": lambda: patch.object(once, "_named", die),
    "after the rename": lambda: patch.object(once.Path, "rename", after(Path.rename)),
    "before the answer": lambda: patch.object(once, "publish", after(once.publish)),
}


def publish(folder):
    os.chdir(folder)
    ask = Studio(Start(Path.cwd(), plan=Path("plan.toml"))).functions()
    if Path("look").exists():
        look(ask, json.loads(Path("look").read_text()))
    digest = ask["plan/open"]({"path": "plan.toml"})["plan_digest"]
    about = {"path": "plan.toml", "plan_digest": digest}
    ready = ask["publish/prepare"](about)
    with STEPS[Path("step").read_text()]():
        ask["publish"](about | {"publish_token": ready["publish_token"], "confirm": ready["phrase"]})


def look(ask, asked):
    ready = ask["bounds/prepare"](asked)
    with STEPS[Path("step").read_text()]():
        ask["bounds"](asked | {"publish_token": ready["publish_token"], "confirm": ready["phrase"]})


if __name__ == "__main__":
    for folder in sys.argv[1:]:
        child = os.fork()
        if not child:
            try:
                publish(folder)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == DIE, folder
