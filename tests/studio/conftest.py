"""One browser for the tests of a module."""

import pytest

from studio_browser import launched


@pytest.fixture(scope="module")  # not longer: while its driver lives, no other test can run an event loop
def browser():
    driver, browser = launched()
    yield browser
    browser.close()
    driver.stop()
