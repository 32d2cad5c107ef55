"""The questions of the page, each answered by one function, and the files that it is made of."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib import resources
from pathlib import Path
from threading import Lock
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import iterate_in_threadpool, run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from dphist.studio.guard import Answer, Guard, Refusal, in_words, read_json, refusal, to_json

Asked = dict[str, Any]
Functions = Mapping[str, Callable[[Asked], Any]]
VEGA = "vega.js"
_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}


def application(functions: Callable[[], Functions], *, port: Callable[[], int], token: str) -> ASGIApp:
    """Return the studio as an application: files by GET, questions by POST, all of them guarded.

    Args:
        functions: returns what answers each question, and may wait for it: files are sent all the same.
    """

    async def asked(request: Request) -> Response:
        try:
            body = read_json(await request.body())
            function = (await run_in_threadpool(functions)).get(request.path_params["name"])
            if function is None:
                raise Refusal(404, "usage", "the studio has no such question.")
            found = await run_in_threadpool(function, body)
        except Exception as error:
            return _response(refusal(error))
        if isinstance(found, Answer):
            return _response(found)
        if isinstance(found, Iterator):
            return StreamingResponse(_lines(found), media_type="application/x-ndjson")
        return _response(Answer(200, to_json(found)))

    async def file(request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        body = await run_in_threadpool(_file, name)
        if body is None:
            return _response(refusal(Refusal(404, "usage", "the studio has no such file.")))
        return _response(Answer(200, body, _KINDS.get(Path(name).suffix, "application/octet-stream")))

    async def nothing(_: Request, __: Exception) -> Response:
        return _response(refusal(Refusal(404, "usage", "the studio has nothing there.")))

    routes = [
        Route("/", file, methods=["GET"]),
        Route("/static/{name}", file, methods=["GET"]),
        Route("/api/{name:path}", asked, methods=["POST"]),
    ]
    handlers: Any = {404: nothing, 405: nothing}
    return Guard(Starlette(routes=routes, exception_handlers=handlers), port=port, token=token)


def _response(made: Answer) -> Response:
    return Response(made.body, made.status, dict(made.headers or {}), made.kind)


async def _lines(found: Iterator[Any]) -> AsyncIterator[bytes]:
    """Yield a line of JSON for each part, some of which are JSON; an error becomes the last part."""
    try:
        async for part in iterate_in_threadpool(found):
            yield (part if isinstance(part, bytes) else to_json(part)) + b"\n"
    except Exception as error:
        yield to_json({"part": "failed", "error": in_words(error)[1]}) + b"\n"


def _file(name: str) -> bytes | None:
    """Return a file of the page; nothing else in the package is one."""
    if name == VEGA:
        return vega()
    if "/" in name or "\\" in name or Path(name).suffix not in _KINDS:
        return None
    place = resources.files("dphist.studio") / "static" / name
    return place.read_bytes() if place.is_file() else None


@cache
def vega() -> bytes:
    """Return the program that draws: vl-convert's own bundle, kept on disk since making it takes seconds."""
    from importlib.metadata import version

    kept = _cache() / f"vega-{version('vl-convert-python')}.js"
    with _one_at_a_time:
        with suppress(OSError):
            found = kept.read_bytes()
            if found.endswith(_END):
                return found
        # In a process of its own: while it is made, this one answers.
        made = subprocess.run([sys.executable, "-c", _MAKE], capture_output=True, check=True).stdout + _END
        with suppress(OSError):
            kept.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=kept.parent, delete=False) as partial:
                partial.write(made)
            Path(partial.name).replace(kept)
    return made


_one_at_a_time = Lock()
_END = b"\n// whole\n"
_MAKE = """
import sys, vl_convert
made = vl_convert.javascript_bundle("window.vegaEmbed=vegaEmbed;window.vega=vega;window.vegaLite=vegaLite;")
sys.stdout.buffer.write(made.encode())
"""


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "dphist"
