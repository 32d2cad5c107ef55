"""One browser for all tests of the page."""

import pytest

from studio_browser import launched


@pytest.fixture(scope="session")
def browser():
    driver, browser = launched()
    yield browser
    browser.close()
    driver.stop()
