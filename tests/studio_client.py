"""A page's end of the studio, without a browser: what it sends, and what it is told."""

import asyncio
import json

import httpx

from dphist.studio.edit import Studio
from dphist.studio.start import Start
from dphist.studio.view import app as view_app

PORT, TOKEN = 8765, "t" * 64
HOST = f"127.0.0.1:{PORT}"
OURS = {
    "origin": f"http://{HOST}",
    "authorization": f"Bearer {TOKEN}",
    "content-type": "application/json",
}


class Client:
    """Sends requests to an application in this process."""

    def __init__(self, app):
        self.app = app

    def request(self, method, path, **more):
        async def send():
            transport = httpx.ASGITransport(app=self.app)
            async with httpx.AsyncClient(
                transport=transport, base_url=f"http://{HOST}", timeout=300
            ) as client:
                return await client.request(method, path, **more)

        return asyncio.run(send())

    def get(self, path, **more):
        return self.request("GET", path, **more)

    def post(self, path, **more):
        return self.request("POST", path, **more)


class Page:
    """Asks a studio, and keeps all traffic."""

    def __init__(self, app, studio=None):
        self.client, self.studio = Client(app), studio
        self.seen = []

    def send(self, name, asked, *, headers=None):
        body = asked if isinstance(asked, bytes | str) else json.dumps(asked)
        found = self.client.post(f"/api/{name}", content=body, headers=OURS | (headers or {}))
        self.seen += [found.content, repr(dict(found.headers)).encode()]
        return found

    def ask(self, name, asked=None, *, status=200, **more):
        found = self.send(name, (asked or {}) | more)
        assert found.status_code == status, (found.status_code, found.text[:2000])
        return found.json()

    def refused(self, name, asked=None, *, status, **more):
        return self.ask(name, asked, status=status, **more)["error"]

    def lines(self, name, asked=None, **more):
        found = self.send(name, (asked or {}) | more)
        assert found.status_code == 200, found.text[:2000]
        return [json.loads(line) for line in found.text.splitlines()]


def studio_page(folder, *, plan=None, data=None, ledger=None):
    """Return a page of a studio that was started in a folder."""
    made = Studio(Start(folder, plan=plan, data=data, ledger=ledger))
    return Page(made.app(port=lambda: PORT, token=TOKEN), made)


def view_page(folder):
    return Page(view_app(folder, port=lambda: PORT, token=TOKEN))
