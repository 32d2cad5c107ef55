"""The page's one file: built from its modules, small, and without what the policy of the studio forbids."""

import importlib.util
import os
import re
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
STATIC = ROOT / "src" / "dphist" / "studio" / "static"
TOOLS = Path(os.environ.get("DPHIST_PAGE_TOOLS", ROOT / ".venv" / "page-tools"))
ESBUILD = TOOLS / "node_modules" / ".bin" / "esbuild"


def builder():
    spec = importlib.util.spec_from_file_location("page", ROOT / ".ci" / "page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_was_built_from_these_modules():
    first = (STATIC / "app.js").read_text("utf-8").split("\n", 1)[0]
    assert first == f"// make studio-page: {builder().digest()}", "run: make studio-page"


@pytest.mark.skipif(not ESBUILD.exists(), reason="esbuild is not installed; make test-studio installs it")
def test_the_build_gives_the_same_file_again(tmp_path):
    builder().build(str(ESBUILD), tmp_path / "app.js")
    assert (tmp_path / "app.js").read_bytes() == (STATIC / "app.js").read_bytes()


def test_the_page_is_small():
    assert (STATIC / "app.js").stat().st_size < 60_000
    assert (STATIC / "style.css").stat().st_size < 20_000


def test_no_rule_is_about_a_class_that_nothing_has():
    rules = re.sub(r"\{[^{}]*\}", "{}", (STATIC / "style.css").read_text("utf-8"))
    named = set(re.findall(r"\.([a-z][\w-]*)", rules)) - {
        f"{a}{i}" for a in ("ink", "k", "n") for i in range(6)
    }
    used = "".join(
        path.read_text("utf-8") for path in [*(STATIC.parent / "page").glob("*.js"), STATIC / "index.html"]
    )
    assert not [one for one in named if not re.search(rf"(?<![\w-]){one}(?![\w-])", used)]


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_every_module_is_javascript():
    import subprocess

    for path in sorted((STATIC.parent / "page").glob("*.js")):
        text = path.read_text("utf-8")
        done = subprocess.run(
            ["node", "--check", "--input-type=module"], input=text, text=True, capture_output=True, timeout=60
        )
        assert done.returncode == 0, (path.name, done.stderr)


@pytest.mark.parametrize(
    "planted",
    [
        "<p style='color:red'>",
        "<script>1</script>",
        "<a onclick='f()'>",
        "box.innerHTML = label",
        "eval('1')",
        "new Function('1')",
        'node.setAttribute("style", x)',
        "document.write(x)",
        "src='https://elsewhere.example/x.js'",
    ],
)
def test_the_rule_about_html_and_code_finds_what_is_planted(planted):
    assert forbidden(planted)


def forbidden(text):
    return re.findall(
        r"""innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|"""
        r"""setAttribute\(["']style|<[^>]*\sstyle=|<script>|<[^>]*\son[a-z]+=|https?://(?!www\.w3\.org/)""",
        text,
    )


def test_labels_become_text_and_nothing_is_evaluated():
    for path in [*(STATIC.parent / "page").glob("*.js"), STATIC / "index.html", STATIC / "style.css"]:
        assert forbidden(path.read_text("utf-8")) == [], path.name
