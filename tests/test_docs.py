"""The documentation keeps up with the program: pages, index, links and examples."""

import doctest
import importlib.util
import inspect
import re
from pathlib import Path

import pytest

import dphist
from dphist.methods.catalogue import CATALOGUE
from dphist.planning.grouped_advice import GroupedAdvice
from dphist.planning.grouped_preview import GroupedPreview

ROOT = Path(__file__).parent.parent
PAGES = [p for p in sorted((ROOT / "docs" / "methods").glob("*.md")) if p.name != "README.md"]
TEXTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
PARTS = ("What it does", "When to use it", "Error", "Cost", "Privacy", "Citation")


def names_of(page):
    """Return the methods a page is about: its title, between commas."""
    return re.split(r",\s*", page.partition("\n")[0].removeprefix("# "))


def parts_of(page):
    """Return the paragraphs that begin with a heading in bold."""
    return dict(re.findall(r"^\*\*([\w ]+)\.\*\*\s+(.*?)(?=^\*\*[\w ]+\.\*\*|\Z)", page, re.M | re.S))


def faults_of(page):
    """Return what is wrong with a method's page."""
    known, parts = {name: m for m in CATALOGUE.values() for name in (m.name, *m.aliases)}, parts_of(page)
    faults = [f"no {part}" for part in PARTS if part not in parts]
    faults += [f"no method {name}" for name in names_of(page) if name not in known]
    if not re.search(r"O\(.+\)", parts.get("Cost", "")):
        faults.append("no complexity")
    for name in set(names_of(page)) & set(known):
        author = re.split(r"[,; ]", known[name].citation)[0]
        if author not in parts.get("Citation", ""):
            faults.append(f"{author} is not cited")
    return faults


def targets_of(text):
    """Return the files that a text links to, or names in backticks by a path from the top."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", prose)]
    paths = re.findall(r"`((?:docs|src|tests)/[\w./+-]+)`", prose)
    return [link for link in links if link and ":" not in link], paths


def missing_from(path, text):
    links, paths = targets_of(text)
    broken = [link for link in links if not (path.parent / link).exists()]
    return broken + [named for named in paths if not (ROOT / named).exists()]


def anchors_of(text):
    """Return the anchors of a page's headings, as they are commonly made."""
    heads = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def examples_of(text):
    return re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)


def test_every_method_has_exactly_one_page():
    described = [name for page in PAGES for name in names_of(page.read_text("utf-8"))]
    assert sorted(described) == sorted(name for m in CATALOGUE.values() for name in (m.name, *m.aliases))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_a_page_says_what_it_must(page):
    assert faults_of(page.read_text("utf-8")) == []


def test_a_page_that_leaves_something_out_is_caught():
    good = "# s2\n\n" + "\n\n".join(f"**{part}.** O(n), by Kellaris." for part in PARTS)
    assert faults_of(good) == []
    assert faults_of(good.replace("**Privacy.**", "")) == ["no Privacy"]
    assert faults_of(good.replace("O(n)", "little")) == ["no complexity"]
    assert faults_of(good.replace("Kellaris", "someone")) == ["Kellaris is not cited"]
    assert faults_of(good.replace("# s2", "# s2, s9")) == ["no method s9"]


def test_the_index_is_the_catalogue():
    spec = importlib.util.spec_from_file_location("make_index", ROOT / "docs" / "methods" / "make.py")
    make = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make)
    (written,) = make.TABLE.findall(make.README.read_text("utf-8"))
    assert written == make.table(), "run python docs/methods/make.py"
    assert written.count("\n| [") == len(CATALOGUE)


@pytest.mark.parametrize("path", TEXTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_link_leads_somewhere(path):
    text = path.read_text("utf-8")
    assert missing_from(path, text) == []
    for link, anchor in re.findall(r"\]\(([\w./+-]*\.md|)#([\w-]+)\)", text):
        target = path.parent / link if link else path
        assert anchor in anchors_of(target.read_text("utf-8")), f"{link}#{anchor}"


def test_a_link_to_nowhere_is_caught():
    text = "[a](docs/flow.md) [b](gone.md#x) [c](https://a.org/x.md) [d](#top) `docs/gone.md` `docs/flow.md`"
    assert missing_from(ROOT / "README.md", text) == ["gone.md", "docs/gone.md"]
    assert missing_from(ROOT / "README.md", f"```\n{text}\n```") == []
    assert anchors_of("## What, and (why)\n") == {"what-and-why"}


# The rule for examples: every block marked ```python runs, those of one text one after the other, in an empty
# folder with the data that the texts take as given. A fragment that cannot run is marked ```text.
# These need a server and Spark: tests/records/test_engines.py runs the first, the second is for a cluster.
ELSEWHERE = {ROOT / "docs" / "records.md", ROOT / "docs" / "scale.md"}
EXAMPLES = [path for path in TEXTS if path not in ELSEWHERE and examples_of(path.read_text("utf-8"))]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_example_runs(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DPHIST_LEDGER", raising=False)
    ages = [(7 * i) % 97 for i in range(600)]
    rows = [f"{i // 4},{age},H{i % 5}\n" for i, age in enumerate(ages)]
    Path("visits.csv").write_text("patient_id,age,hospital\n" + "".join(rows), "utf-8")
    given: dict[str, object] = {}
    for number, example in enumerate(examples_of(path.read_text("utf-8")), 1):
        exec(compile(example, f"{path.name}, example {number}", "exec"), given)


def test_examples_are_found_and_an_error_in_one_is_seen():
    assert ROOT / "README.md" in EXAMPLES
    (example,) = examples_of("words\n\n```python\nassert 1 == 2\n```\n\n```sh\nls\n```\n")
    with pytest.raises(AssertionError):
        exec(compile(example, "example", "exec"), {})


# Everything in `dphist.__all__` is described with an example that runs, and so is every public method of the
# classes that people hold in their hands. A method's example goes on from the example of its class.
CLASSES = (dphist.Release, dphist.Plan, dphist.Ledger, dphist.MemoryLedger, dphist.Preview, dphist.Advice)
CLASSES += (dphist.GroupedPlan, GroupedPreview, GroupedAdvice, dphist.Publication, dphist.SparseRelease)
FORMER = {"Release.load"}  # deprecated names, described by the warning that they give


def methods_of(kind):
    """Return the public methods of a class; properties only need a sentence."""
    found = inspect.getmembers_static(kind, lambda x: inspect.isfunction(x) or isinstance(x, classmethod))
    return {f"{kind.__name__}.{name}": getattr(kind, name) for name, _ in found if not name.startswith("_")}


# A method that two classes inherit is tried on the first.
METHODS = {each: (name, kind) for kind in CLASSES[::-1] for name, each in methods_of(kind).items()}
METHODS = {name: (kind, each) for each, (name, kind) in METHODS.items() if name not in FORMER}
NAMES = {name: getattr(dphist, name) for name in dphist.__all__ if name != "CATALOGUE"}


def run_examples(text, given, name):
    """Run the examples of a docstring; return how many there are and what failed."""
    test = doctest.DocTestParser().get_doctest(text or "", given, name, None, 0)
    test.globs = given  # and not a copy: the next examples go on with what these define
    said = []
    result = doctest.DocTestRunner().run(test, out=said.append, clear_globs=False)
    return result.attempted, "".join(said)


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("DPHIST_LEDGER", raising=False)
    return {"dphist": dphist}


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_has_an_example_that_runs(name, elsewhere):
    attempted, failed = run_examples(inspect.getdoc(NAMES[name]), elsewhere, name)
    assert attempted and not failed, failed or f"{name} has no example"


@pytest.mark.parametrize("name", METHODS)
def test_every_public_method_has_an_example_that_runs(name, elsewhere):
    kind, method = METHODS[name]
    run_examples(inspect.getdoc(kind), elsewhere, kind.__name__)
    attempted, failed = run_examples(inspect.getdoc(method), elsewhere, name)
    assert attempted and not failed, failed or f"{name} has no example"


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_public_property_is_described(kind):
    properties = inspect.getmembers_static(kind, lambda x: isinstance(x, property) or hasattr(x, "attrname"))
    assert not [name for name, each in properties if not name.startswith("_") and not each.__doc__]


def test_an_example_that_fails_is_seen():
    assert run_examples(">>> 1 + 1\n2\n", {}, "good") == (1, "")
    attempted, failed = run_examples(">>> 1 + 1\n3\n", {}, "wrong")
    assert attempted == 1 and "Expected" in failed
    assert run_examples("Without any example.", {}, "none") == (0, "")
