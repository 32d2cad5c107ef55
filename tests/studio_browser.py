"""A studio in a thread of this process, and a browser that looks at it."""

import contextlib
import os
import re
import shutil
import socket
import threading
from pathlib import Path

import pytest
import uvicorn

from dphist.studio.edit import Studio
from dphist.studio.start import Start
from dphist.studio.view import app as view_app

TOKEN = "b" * 64
CHROMIUM = os.environ.get("DPHIST_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 400, "height": 820}
VIEWS = {
    "design": "What do you want to count?",
    "foresee": "How wrong will it be?",
    "publish": "Publish",
    "explore": "Records by",
    "ledger": "Where the budget went",
}


def launched():
    """Return a browser, or skip."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no chromium is installed")
    driver = playwright.sync_playwright().start()
    return driver, driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)


class Served:
    """A studio that answers on a free port."""

    def __init__(self, make):
        self.socket = socket.socket()
        self.socket.bind(("127.0.0.1", 0))
        self.socket.listen()  # who asks before the server has started waits, and is not refused
        self.port = self.socket.getsockname()[1]
        app = make(port=lambda: self.port, token=TOKEN)
        config = uvicorn.Config(
            app, log_level="critical", access_log=False, ws="none", timeout_graceful_shutdown=1
        )
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.socket]}, daemon=True)
        self.thread.start()

    @property
    def address(self):
        return f"http://127.0.0.1:{self.port}/"

    @property
    def entrance(self):
        return f"{self.address}#token={TOKEN}"

    def stop(self):
        self.server.should_exit = True
        self.thread.join(30)
        self.socket.close()


@contextlib.contextmanager
def serving(folder, **start):
    """Yield a studio of a folder."""
    served = Served(Studio(Start(Path(folder), **start)).app)
    try:
        yield served
    finally:
        served.stop()


@contextlib.contextmanager
def showing(folder):
    """Yield a studio for readers."""
    served = Served(lambda **more: view_app(Path(folder), **more))
    try:
        yield served
    finally:
        served.stop()


class Tab:
    """One tab: its page, and everything that must not have happened on it."""

    def __init__(self, browser, served, *, viewport=None, **context):
        self.served = served
        options = {"viewport": viewport or WIDE, "reduced_motion": "reduce", "accept_downloads": True}
        self.context = browser.new_context(**options | context)
        self.page = self.context.new_page()
        self.page.set_default_timeout(30_000)
        self.faults, self.sent, self.refused, self.open, self.most = [], [], [], set(), 0
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("dialog", lambda box: (self.faults.append(f"dialog {box.message}"), box.dismiss()))
        self.page.on("console", self._said)
        self.page.on("request", self._asked)
        self.page.on("response", self._answered)
        for event in ("requestfinished", "requestfailed"):
            self.page.on(event, lambda request: self.open.discard(request))

    def _said(self, message):
        # A refusal that the page handles is logged by the browser as a failed resource, and is none here.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.faults.append(message.text)

    def _answered(self, found):
        if found.status >= 400:
            self.refused.append(found.url)

    def _asked(self, request):
        if not request.url.startswith((self.served.address, "data:", "blob:")):
            self.faults.append(f"network {request.url}")
        self.sent.append(request.url.removeprefix(f"{self.served.address}api/"))
        self.open.add(request)
        self.most = max(self.most, len(self.running("foresee")))

    def enter(self):
        """Open the address that the studio prints."""
        self.page.goto(self.served.entrance)
        self.page.wait_for_selector("html[data-ready]")
        return self

    def press_twice(self, text):
        """Click a button twice before anything that the first click does is drawn."""
        self.page.evaluate(
            """text => {
                const one = [...document.querySelectorAll('button')].find(one => one.innerText === text);
                one.click();
                one.click();
            }""",
            text,
        )

    def go(self, view):
        """Go to a view by its address."""
        self.page.evaluate(f"location.hash = '#{view}'")
        heading = VIEWS.get(view.split("=")[0], "")
        self.page.wait_for_function(
            "text => document.querySelector('h1')?.textContent.includes(text)", arg=heading
        )

    def running(self, name):
        """Return the questions of a name that have no answer yet."""
        return [one for one in self.open if one.url.endswith(f"/api/{name}")]

    def heading(self, text):
        """Wait until the heading says this."""
        self.page.wait_for_function(
            "text => document.querySelector('h1')?.textContent.includes(text)", arg=text
        )

    def text(self, selector="#main"):
        return re.sub(r"\s+", " ", self.page.inner_text(selector))

    def close(self):
        self.context.close()
        assert not self.faults, self.faults


@contextlib.contextmanager
def tab(browser, served, **options):
    """Yield a tab; no script may have failed, no policy been broken and nothing been fetched elsewhere."""
    opened = Tab(browser, served, **options)
    yield opened
    opened.close()
