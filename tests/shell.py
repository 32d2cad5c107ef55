"""The command line, run in this process or as the installed program."""

import contextlib
import io
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

from dphist import cli

DPHIST = str(Path(sys.executable).parent / "dphist")


def dphist(*arguments, code=0):
    """Run the command line in this process, which spares the start of another."""
    out, err, before = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["dphist", *map(str, arguments)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            cli.main()
        left = 0
    except SystemExit as end:
        left = end.code or 0
    finally:
        sys.argv = before
    run = SimpleNamespace(returncode=left, stdout=out.getvalue(), stderr=err.getvalue())
    assert run.returncode == code, run
    return run


def program(*arguments, code=0, **more):
    """Run the installed program."""
    more = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | more
    run = subprocess.run([DPHIST, *map(str, arguments)], text=True, check=False, **more)
    assert run.returncode == code, (run.returncode, run.stdout, run.stderr)
    assert "Traceback" not in (run.stderr or "")
    return run


PUBLISH = ("publish", "people.csv", "--column", "age", "--bins", "10", "--range", "0", "100")
PUBLISH += ("--method", "identity")  # which starts at once: the default loads compiled code
