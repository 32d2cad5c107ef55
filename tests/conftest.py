"""Settings every test shares."""

import signal
import zlib

import numpy as np
import pytest
from hypothesis import settings

# A busy machine is not a failing test, and a failure must come back when it is run again.
settings.register_profile("dphist", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("dphist")
# A shell ignores Ctrl-C for what it runs in the background, and nohup a terminal that is closed; so would
# every process that tests start.
for ignored, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(ignored) is signal.SIG_IGN:
        signal.signal(ignored, usual)


@pytest.fixture(autouse=True)
def _same_numbers_in_any_order(request: pytest.FixtureRequest) -> None:
    """Start a module's RNG anew for each test, whichever tests ran before it on this core."""
    if hasattr(request.module, "RNG"):
        request.module.RNG = np.random.default_rng(zlib.crc32(request.node.name.encode()))


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Work in a folder that has a file of a thousand records."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DPHIST_LEDGER", raising=False)
    rows = "\n".join(f"{i % 100},{'ab'[i % 2]},p{i % 10}" for i in range(1000))
    (tmp_path / "people.csv").write_text(f"age,kind,person\n{rows}\n")
    return tmp_path


@pytest.fixture
def unrehearsed(monkeypatch):
    """Publish without the runs on made-up counts before: what they would find, the release itself must."""
    for module in ("plan", "grouped"):
        monkeypatch.setattr(f"dphist.planning.{module}.rehearse", lambda *given, **options: None)
