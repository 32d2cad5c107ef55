"""Who may ask the studio, and how much: every item of its security list that needs no browser."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from dphist.errors import UsageError
from dphist.studio import guard, serve, service
from dphist.studio.guard import MOST_BYTES, POLICY
from shell import DPHIST
from studio_client import HOST, OURS, Page, studio_page, view_page


@pytest.fixture
def page(here):
    return studio_page(here)


def code(found):
    assert found.headers["content-security-policy"] == POLICY
    return found.json()["error"]["code"]


class TestWhoMayAsk:
    def test_its_own_page_may(self, page):
        assert page.ask("session")["mode"] == "edit"

    @pytest.mark.parametrize(
        "host", ["localhost:8765", "127.0.0.1", "127.0.0.1:80", "evil.example:8765", "[::1]:8765", ""]
    )
    def test_another_host_is_refused_for_files_too(self, page, host):
        """DNS rebinding: a foreign name that leads to this machine is sent as Host."""
        assert page.send("session", {}, headers={"host": host}).status_code == 403
        assert page.client.get("/", headers={"host": host}).status_code == 403
        assert page.client.get("/static/app.js", headers={"host": host}).status_code == 403

    @pytest.mark.parametrize(
        "origin", ["http://evil.example", "null", "https://127.0.0.1:8765", "http://localhost:8765", ""]
    )
    def test_another_origin_is_refused(self, page, origin):
        found = page.send("session", {}, headers={"origin": origin})
        assert (found.status_code, code(found)) == (403, "forbidden")
        assert "access-control-allow-origin" not in found.headers

    def test_a_question_without_an_origin_is_refused(self, page):
        headers = {name: value for name, value in OURS.items() if name != "origin"}
        assert page.client.post("/api/session", content="{}", headers=headers).status_code == 403

    def test_two_origins_are_refused(self, page):
        headers = [*OURS.items(), ("origin", "http://evil.example")]
        assert page.client.post("/api/session", content="{}", headers=headers).status_code == 403

    @pytest.mark.parametrize("site", ["cross-site", "same-site"])
    def test_a_request_from_elsewhere_is_refused(self, page, site):
        assert page.send("session", {}, headers={"sec-fetch-site": site}).status_code == 403
        assert page.client.get("/static/app.js", headers={"sec-fetch-site": site}).status_code == 403
        opened = {"sec-fetch-site": site, "sec-fetch-dest": "document"}
        assert page.client.get("/", headers=opened).status_code == 200  # a person follows the address

    def test_a_question_cannot_be_typed_into_the_address_bar(self, page):
        assert page.send("session", {}, headers={"sec-fetch-site": "none"}).status_code == 403
        assert page.client.get("/api/session", headers=OURS).status_code == 404

    @pytest.mark.parametrize(
        "token", ["", "Bearer", "Bearer x", "Bearer " + "t" * 63, "bearer " + "t" * 64, "Basic abc"]
    )
    def test_a_wrong_token_is_refused(self, page, token):
        found = page.send("session", {}, headers={"authorization": token})
        assert (found.status_code, code(found)) == (401, "unauthorized")

    def test_the_token_is_compared_in_constant_time(self, page, monkeypatch):
        seen = []
        monkeypatch.setattr(guard.hmac, "compare_digest", lambda a, b: seen.append((a, b)) or False)
        assert page.send("session", {}).status_code == 401
        assert seen

    def test_there_is_no_cookie_and_no_other_origin_is_allowed(self, page):
        for found in (page.send("session", {}), page.client.get("/"), page.client.get("/static/app.js")):
            assert not {"set-cookie", "access-control-allow-origin", "server"} & set(found.headers)

    @pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "HEAD", "PATCH"])
    def test_other_methods_are_refused(self, page, method):
        assert page.client.request(method, "/", headers=OURS).status_code == 405

    def test_only_json_is_a_question(self, page):
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
            assert page.send("session", "{}", headers={"content-type": kind}).status_code == 415

    def test_every_answer_has_our_headers(self, page):
        answers = [page.send("session", {}), page.send("nothing", {}), page.client.get("/")]
        answers += [page.client.get("/nowhere"), page.send("session", {}, headers={"host": "x"})]
        for found in answers:
            for name, value in guard.HEADERS.items():
                assert found.headers[name] == value
        assert "unsafe" not in POLICY and "http" not in POLICY

    def test_a_websocket_is_not_answered(self, page):
        said = []

        async def receive():
            return {"type": "websocket.connect"}

        async def send(message):
            said.append(message)

        asyncio.run(page.client.app({"type": "websocket", "path": "/", "headers": []}, receive, send))
        assert said == []


class TestHowMuch:
    def test_long_bodies_are_refused(self, page):
        found = page.send("session", json.dumps({"x": "a" * MOST_BYTES}))
        assert (found.status_code, code(found)) == (413, "too_large")

    def test_long_bodies_without_a_length_are_refused(self, page):
        async def parts():
            for _ in range(30):
                yield b" " * 100_000

        found = page.client.post("/api/session", content=parts(), headers=OURS)
        assert (found.status_code, code(found)) == (413, "too_large")

    @pytest.mark.parametrize("length", ["-1", "1e3", "9" * 20, "x"])
    def test_a_length_that_is_no_number_is_refused(self, page, length):
        assert page.send("session", "{}", headers={"content-length": length}).status_code == 400

    def test_deep_questions_are_refused(self, page):
        deep = lambda n: '{"x":' + "[" * n + "]" * n + "}"  # noqa: E731
        assert page.send("session", deep(15)).status_code == 200
        assert page.send("session", deep(16)).status_code == 400
        assert page.send("session", deep(900_000)).status_code == 400
        assert page.send("session", '{"x": "' + "[" * 100 + '\\"{"}').status_code == 200  # letters, no depth

    def test_long_lists_are_refused(self, page):
        assert page.send("session", {"x": [0] * 65_536}).status_code == 200
        assert page.send("session", {"x": {"y": [0] * 65_537}}).status_code == 413

    @pytest.mark.parametrize("body", ["", "[]", "1", "{", '{"x": NaN}', '{"x": Infinity}', b"\xff\xfe"])
    def test_what_is_no_object_is_refused(self, page, body):
        assert page.send("session", body).status_code == 400


class TestFiles:
    def test_the_page_is_there_without_a_token(self, page):
        found = page.client.get("/")
        assert found.headers["content-type"].startswith("text/html")
        assert "<style" not in found.text and " style=" not in found.text
        assert not re.search(r"<script(?![^>]*\bsrc=)", found.text)
        assert not re.search(r"(?:src|href)=\"(?:https?:)?//", found.text)

    @pytest.mark.parametrize(
        "name",
        ["../guard.py", "..%2fguard.py", "%2e%2e/guard.py", "guard.py", "/etc/passwd", "..\\guard.py", "app"],
    )
    def test_nothing_else_of_the_package_is_served(self, page, name):
        assert page.client.get(f"/static/{name}").status_code in (403, 404)

    def test_vega_comes_from_the_package_that_draws(self, page, tmp_path, monkeypatch):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        service.vega.cache_clear()
        found = page.client.get("/static/vega.js")
        assert found.headers["content-type"].startswith("text/javascript")
        assert "vegaEmbed" in found.text and len(found.content) > 500_000
        (kept,) = (tmp_path / "cache" / "dphist").glob("vega-*.js")
        service.vega.cache_clear()
        kept.write_bytes(kept.read_bytes()[:1000])  # cut short: it is made again
        monkeypatch.setattr(service, "_MAKE", "print('anew')")
        assert page.client.get("/static/vega.js").content.startswith(b"anew")
        service.vega.cache_clear()


class TestPaths:
    @pytest.fixture
    def outside(self, here, tmp_path_factory):
        other = tmp_path_factory.mktemp("elsewhere")
        (other / "plan.toml").write_text('epsilon = 1\n[histograms.a]\ncolumn = "a"\nintegers = [0, 3]\n')
        (other / "people.csv").write_text("secret_column\n1\n")
        (here / "link.toml").symlink_to(other / "plan.toml")
        (here / "link.csv").symlink_to(other / "people.csv")
        (here / "linked").symlink_to(other)
        (here / "ring").symlink_to(here / "ring")
        return other

    def names(self, outside, file):
        return [
            str(outside / file),
            f"../{outside.name}/{file}",
            f"linked/{file}",
            f"x/../../{outside.name}/{file}",
            f"link{Path(file).suffix}",
            "/etc/passwd",
            "ring",
        ]

    def test_no_plan_outside_the_folder_is_opened_or_saved(self, page, outside):
        plan = {"epsilon": "1", "histograms": {"a": {"column": "a", "integers": [0, 3]}}}
        for name in self.names(outside, "plan.toml"):
            assert page.refused("plan/open", path=name, status=403)["code"] == "forbidden"
            assert page.refused("plan/save", path=name, plan=plan, base_digest=None, status=403)
        assert page.refused("plan/open", path="a\0b", status=400)
        assert page.refused("plan/open", path="x" * 5000, status=400)
        assert (outside / "plan.toml").read_text().startswith("epsilon = 1\n")

    def test_no_records_labels_or_ledgers_outside_the_folder_are_named(self, page, outside):
        for name in [*self.names(outside, "people.csv"), "postgresql://a:b@localhost/x"]:
            assert "secret" not in json.dumps(page.refused("columns", data=name, status=403))
            for plan in (
                {"data": name},
                {"ledger": name},
                {"histograms": {"a": {"column": "a", "categories": name}}},
                {"histograms": {"a": {"column": "a", "integers": [0, 3], "by": "b", "groups": name}}},
                {"histograms": {"a": {"column": "a", "integers": [0, 3], "prior": name}}},
            ):
                whole = {"epsilon": "1", "histograms": {"a": {"column": "a", "integers": [0, 3]}}} | plan
                if "://" in name and "data" not in plan:
                    continue
                assert page.refused("plan/check", plan=whole, status=403)["code"] == "forbidden"

    def test_no_release_or_list_outside_the_folder_is_opened(self, page, outside):
        for name in self.names(outside, "people.csv"):
            for question in ("release/open", "release/query", "release/table"):
                assert page.refused(question, path=name, status=403)
            assert page.refused("release/export", path=name, format="csv", status=403)
            assert page.refused("report", paths=[name], status=403)
        assert page.refused("files", under="..", status=403)
        assert page.refused("files", under="linked", status=403)
        listed = {file["path"] for file in page.ask("files")["files"]}
        assert "people.csv" in listed and not listed & {"linked", "link.csv", "link.toml", "ring"}

    def test_a_file_list_has_no_sizes_and_no_counts(self, page):
        assert page.ask("files")["files"] == [{"path": "people.csv", "kind": "data"}]


class TestErrors:
    def test_what_goes_wrong_inside_is_not_quoted(self, here, capsys):
        def fails(asked):
            raise RuntimeError("could not convert 'Xyzzy42'")

        page = Page(service.application(lambda: {"fails": fails}, port=lambda: 8765, token="t" * 64))
        error = page.refused("fails", status=500)
        assert error["code"] == "internal" and error["charged"] is False
        assert "Xyzzy" not in json.dumps(error)
        err = capsys.readouterr().err
        assert "RuntimeError" in err and "Xyzzy" not in err

    def test_neither_is_what_goes_wrong_in_the_middle_of_a_stream(self, capsys):
        def fails(asked):
            yield {"part": "first"}
            raise ValueError("Xyzzy42")

        page = Page(service.application(lambda: {"fails": fails}, port=lambda: 8765, token="t" * 64))
        first, last = page.lines("fails")
        assert first == {"part": "first"} and last["part"] == "failed"
        assert "Xyzzy" not in json.dumps(last) + capsys.readouterr().err


class TestView:
    def test_a_reader_has_no_question_that_plans_or_publishes(self, here):
        page = view_page(here)
        assert page.ask("session")["mode"] == "view"
        for name in ("publish", "publish/prepare", "plan/open", "plan/save", "columns", "ledger", "foresee"):
            assert page.refused(name, status=404)

    def test_a_reader_imports_nothing_of_the_private_half(self, here):
        import dphist

        dphist.from_counts([30, 20, 50], bins=[0, 1, 2, 3], epsilon=1, method="identity").save("r.json")
        asked = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import types  # the helper of these tests names both studios
sys.modules["dphist.studio.edit"] = types.SimpleNamespace(Studio=None)
from studio_client import view_page
page = view_page(Path.cwd())
assert page.ask("files")["files"]
assert page.ask("release/open", path="r.json")["shape"] == [3]
page.ask("release/query", path="r.json", ranges=[[0, 2]], quantiles=[0.5], joint=True)
page.ask("release/table", path="r.json")
for form in ("png", "svg", "csv", "xlsx", "json", "parquet", "html"):
    assert page.send("release/export", {"path": "r.json", "format": form}).status_code == 200, form
private = [m for m in sys.modules if m.startswith(("dphist.privacy", "dphist.records", "dphist.planning"))]
assert not private, private
"""
        run = subprocess.run(
            [sys.executable, "-c", asked, str(Path(__file__).parents[1])], capture_output=True, text=True
        )
        assert run.returncode == 0, run.stderr


class TestServer:
    @pytest.mark.parametrize("words", [(), ("--view", ".")])
    def test_the_program_listens_on_the_loopback_address_alone(self, here, words):
        command = [DPHIST, "studio", "--no-browser", "--allow-root", *words]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
            try:
                base, _, token = server.stderr.readline().split()[-1].partition("/#token=")
                assert re.fullmatch(r"http://127\.0\.0\.1:\d+", base) and re.fullmatch("[0-9a-f]{64}", token)
                headers = OURS | {"origin": base, "authorization": f"Bearer {token}"}
                found = _patiently(lambda: httpx.post(f"{base}/api/session", content="{}", headers=headers))
                assert found.status_code == 200
                assert httpx.post(f"{base}/api/session", content="{}", headers=OURS).status_code == 403
                with socket.socket() as other, pytest.raises(OSError):
                    other.settimeout(2)
                    other.connect((_own_address(), int(base.rpartition(":")[2])))
            finally:
                server.send_signal(signal.SIGINT)  # Ctrl-C
            assert server.stderr.read().splitlines()[-1] == "the studio was stopped."
        assert server.returncode == 0

    def test_root_is_refused_unless_that_is_wanted(self, monkeypatch):
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        with pytest.raises(UsageError, match="--allow-root"):
            serve.refuse_root(allowed=False)
        serve.refuse_root(allowed=True)
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        serve.refuse_root(allowed=False)

    def test_answers_are_sent_at_once(self):
        """Only of a socket that names its protocol are small answers not held back for 40 milliseconds."""
        with serve._listening(0) as listener:
            assert listener.proto == socket.IPPROTO_TCP and listener.getsockname()[0] == "127.0.0.1"

    def test_tokens_are_32_bytes_and_differ(self):
        tokens = {serve.new_token() for _ in range(20)}
        assert len(tokens) == 20 and all(re.fullmatch("[0-9a-f]{64}", token) for token in tokens)

    def test_the_token_is_no_argument_of_the_browser(self, monkeypatch):
        opened = []
        monkeypatch.setattr(serve.webbrowser, "open", opened.append)
        with serve._page("http://127.0.0.1:1/#token=abc") as page:
            serve._open(page, lambda text: None)
            assert "abc" in page.read_text() and page.parent.stat().st_mode & 0o077 == 0
        assert opened and "abc" not in opened[0]
        assert not page.exists()


def _patiently(ask):
    for _ in range(200):
        try:
            return ask()
        except httpx.TransportError:
            time.sleep(0.05)
    return ask()


def _own_address():
    """Return an address of this machine that is not the loopback one, or one of the loopback network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            asked.connect(("192.0.2.1", 9))
            found = asked.getsockname()[0]
        except OSError:
            found = "127.0.0.2"
    return "127.0.0.2" if found.startswith("127.") else found


def test_the_address_is_the_one_of_the_tests():
    assert OURS["origin"] == f"http://{HOST}"
