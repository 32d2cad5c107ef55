"""A page without a browser for each test, and one browser for the tests of a module."""

import pytest

from studio_browser import launched
from studio_client import studio_page


@pytest.fixture(scope="module")  # not longer: while its driver lives, no other test can run an event loop
def browser():
    driver, browser = launched()
    yield browser
    browser.close()
    driver.stop()


@pytest.fixture
def page(here, monkeypatch):
    """Return a page of a studio in a folder of records, which keeps what it simulates there."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(here / "cache"))
    return studio_page(here)
