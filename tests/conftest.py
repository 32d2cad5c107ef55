"""Settings every test shares."""

import zlib

import numpy as np
import pytest
from hypothesis import settings

# A busy machine is not a failing test, and a failure must come back when it is run again.
settings.register_profile("dphist", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("dphist")


@pytest.fixture(autouse=True)
def _same_numbers_in_any_order(request: pytest.FixtureRequest) -> None:
    """Start a module's RNG anew for each test, whichever tests ran before it on this core."""
    if hasattr(request.module, "RNG"):
        request.module.RNG = np.random.default_rng(zlib.crc32(request.node.name.encode()))
