"""Who may ask the studio: the page that this process serves on this machine, and nobody else.

Every request is looked at here before anything else sees it:

* ``Host`` must be exactly ours: a name that was bound to 127.0.0.1 by a foreign page (DNS rebinding) is not;
* ``Origin`` must be ours where a question is asked, and ``Sec-Fetch-Site`` must not say that it comes from
  elsewhere; no answer allows another origin to read it;
* a question needs the token of this process in a header, which no foreign page can send: there is no cookie;
* questions are JSON of limited size and depth; files are only read, by GET.

What goes wrong inside is answered in our own words: an error's message may quote a record.
"""

from __future__ import annotations

import hmac
import json
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dphist.errors import DataError, DphistError, LedgerError, PrivacyError, UsageError

MOST_BYTES, MOST_VALUES, MOST_DEPTH = 2_000_000, 65_536, 16
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data: blob:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
}
_STATUS = {
    UsageError: (400, "usage"),
    LedgerError: (409, "refused"),
    DataError: (422, "bad_data"),
    PrivacyError: (422, "privacy_rule"),
}


class Refusal(Exception):  # noqa: N818 - it is the answer
    """An answer that is an error of the request itself."""

    def __init__(self, status: int, code: str, message: str, **more: Any) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.more = status, code, message, more


@dataclass(frozen=True)
class Answer:
    """What is sent: a status and the bytes of a body."""

    status: int
    body: bytes
    kind: str = "application/json"
    headers: Mapping[str, str] | None = None


def refusal(error: BaseException, *, charged: bool = False) -> Answer:
    """Return the answer for an error; what is not ours is not quoted."""
    return Answer(*described(error, charged=charged))


def described(error: BaseException, *, charged: bool = False) -> tuple[int, bytes]:
    """Return the status and the JSON for an error."""
    status, words = in_words(error, charged=charged)
    return status, json.dumps({"error": words}).encode()


def in_words(error: BaseException, *, charged: bool = False) -> tuple[int, dict[str, Any]]:
    """Return the status and what is said of an error."""
    told: dict[str, Any] = {"suggestion": None, "path": None, "charged": charged}
    if isinstance(error, Refusal):
        return error.status, {"code": error.code, "message": error.message} | told | error.more
    if isinstance(error, DphistError):
        for kind, (status, code) in _STATUS.items():
            if isinstance(error, kind):
                code = "locked" if code == "refused" and "another process" in str(error) else code
                return status, {"code": code, "message": str(error)} | told
        return 422, {"code": "failed", "message": str(error)} | told
    _log(error)
    words = "Something went wrong inside the studio. Its message is not shown, since it may quote a record."
    return 500, {"code": "internal", "message": words} | told


def _log(error: BaseException) -> None:
    """Say on stderr where an unexpected error arose, without its message, which may quote a record."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "nowhere"
    print(f"error: {type(error).__name__} in {where}", file=sys.stderr)


def to_json(said: object) -> bytes:
    """Return an answer as JSON text; a number that is none must have become null before."""
    return json.dumps(said, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", "backslashreplace"
    )


def read_json(body: bytes) -> dict[str, Any]:
    """Return the object that a body holds; too deep ones are refused before they are read."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        raise Refusal(400, "usage", "the request is not UTF-8.") from None
    if _depth(text) > MOST_DEPTH:
        raise Refusal(400, "usage", f"the request is nested deeper than {MOST_DEPTH} levels.")
    try:
        asked = json.loads(text, parse_constant=_no_number)
    except ValueError:
        raise Refusal(400, "usage", "the request is not JSON.") from None
    if not isinstance(asked, dict):
        raise Refusal(400, "usage", "the request must be a JSON object.")
    _refuse_long_lists(asked)
    return asked


def _no_number(word: str) -> float:
    raise ValueError(word)


def _depth(text: str) -> int:
    """Return how deep the brackets of a JSON text are nested, at most one more than is allowed."""
    depth = deepest = 0
    quoted = escaped = False
    for letter in text:
        if quoted:
            quoted = escaped or letter != '"'
            escaped = letter == "\\" and not escaped
        elif letter == '"':
            quoted = True
        elif letter in "[{":
            depth += 1
            deepest = max(deepest, depth)
            if deepest > MOST_DEPTH:
                return deepest
        elif letter in "]}":
            depth -= 1
    return deepest


def _refuse_long_lists(asked: Any) -> None:
    if isinstance(asked, list) and len(asked) > MOST_VALUES:
        raise Refusal(413, "too_large", f"a list has more than {MOST_VALUES:,} values.")
    inside = asked.values() if isinstance(asked, dict) else asked if isinstance(asked, list) else ()
    for part in inside:
        if isinstance(part, dict | list):
            _refuse_long_lists(part)


class Guard:
    """The outermost layer: refuses what the page of this process would not send, and adds our headers."""

    def __init__(self, app: ASGIApp, *, port: Callable[[], int], token: str) -> None:
        self.app, self._port, self._token = app, port, token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # no websockets

        async def headed(message: Message) -> None:
            if message["type"] == "http.response.start":
                ours = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                kept = [pair for pair in message["headers"] if pair[0].decode() not in (*HEADERS, "server")]
                message = {**message, "headers": kept + ours}
            await send(message)

        try:
            self._check(scope)
            await self.app(scope, _limited(scope, receive), headed)
        except Refusal as error:
            await answer(headed, refusal(error))

    def _check(self, scope: Scope) -> None:
        given: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            given.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        host = f"127.0.0.1:{self._port()}"
        if given.get("host") != [host]:
            raise Refusal(403, "forbidden", f"the studio answers at http://{host} alone.")
        asks = scope["method"] == "POST"
        origins = given.get("origin", [] if asks else [f"http://{host}"])
        if origins != [f"http://{host}"]:
            raise Refusal(403, "forbidden", "the studio answers its own page alone.")
        site = given.get("sec-fetch-site", ["same-origin"])
        opened = scope["path"] == "/" and given.get("sec-fetch-dest") == ["document"]  # by a person, in a tab
        if site != ["same-origin"] and (asks or not (opened or site == ["none"])):
            raise Refusal(403, "forbidden", "the studio answers its own page alone.")
        if not asks:
            if scope["method"] != "GET":
                raise Refusal(405, "usage", "files are read by GET, and questions are asked by POST.")
            return
        token = given.get("authorization", [""])
        wanted = b"Bearer " + self._token
        if len(token) != 1 or not hmac.compare_digest(token[0].encode("latin-1"), wanted):
            raise Refusal(
                401,
                "unauthorized",
                "open the studio by the address that `dphist studio` printed: it ends in a token.",
            )
        kinds = given.get("content-type", [""])
        if [kind.partition(";")[0].strip().lower() for kind in kinds] != ["application/json"]:
            raise Refusal(415, "usage", "questions are JSON: Content-Type: application/json.")
        length = given.get("content-length", ["0"])
        if len(length) != 1 or not length[0].isdecimal() or len(length[0]) > 12:
            raise Refusal(400, "usage", "the length of the request is not a number.")
        if int(length[0]) > MOST_BYTES:
            raise _too_large()


def _limited(scope: Scope, receive: Receive) -> Receive:
    """Return a receiver that gives at most as many bytes as are allowed."""
    seen = 0

    async def limited() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > MOST_BYTES:
            raise _too_large()
        return message

    return limited


def _too_large() -> Refusal:
    return Refusal(413, "too_large", f"a request has at most {MOST_BYTES:,} bytes.")


async def answer(send: Send, made: Answer) -> None:
    """Send an answer."""
    headers = {"content-type": made.kind, "content-length": str(len(made.body))} | dict(made.headers or {})
    encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": made.status, "headers": encoded})
    await send({"type": "http.response.body", "body": made.body})
