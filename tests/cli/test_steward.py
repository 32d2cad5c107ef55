"""What a data steward meets on the first day: nothing paid for is lost, and every word is true."""

import json
import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

import dphist as package
from dphist.cli import publish as publishing
from dphist.cli.ledger import mixed
from dphist.errors import DphistError, OutputError
from dphist.planning import advise as advising
from dphist.uncertainty.models import Unknown
from shell import PUBLISH, dphist

README = (Path(__file__).parents[2] / "README.md").read_text("utf-8")


class TestNothingPaidForIsReplaced:
    @pytest.mark.parametrize("ending", [".json", ".csv", ".parquet"])
    def test_one_release_never_replaces_another_unasked(self, here, ending):
        first, second = (package.from_counts([5, 6, n], epsilon=1) for n in (7, 7000))  # never alike
        kept = first.save(f"r{ending}").read_bytes()
        with pytest.raises(OutputError, match=r"is not this release.*overwrite=True"):
            second.save(f"r{ending}")
        with pytest.raises(OutputError, match="is not this release"):
            first.rebin(3).save(f"r{ending}")  # the same name in the ledger, and less in it
        assert first.save(f"r{ending}").read_bytes() == kept
        assert second.save(f"r{ending}", overwrite=True).read_bytes() != kept

    def test_a_picture_of_another_release_stays(self, here):
        first, second = (package.from_counts([n, 6, 7], epsilon=1) for n in (10**6, 2 * 10**6))
        first.plot("p.svg")
        first.plot("p.svg")
        with pytest.raises(OutputError, match="is not this picture"):
            second.plot("p.svg")
        kept = Path("p.svg").read_bytes()
        second.plot("p.svg", overwrite=True)
        assert Path("p.svg").read_bytes() != kept

    def test_the_shell_and_the_python_of_the_readme_write_different_files(self):
        shell, python = (re.findall(rf"```{kind}\n(.*?)```", README, re.S) for kind in ("sh", "python"))
        written = set(re.findall(r"--(?:out|plot) (\S+)", " ".join(shell)))
        again = set(re.findall(r"\.(?:save|plot)\(\"([^\"]+)", " ".join(python)))
        assert written and again and not written & again


class TestAdvice:
    def test_it_takes_a_method_with_error_bars(self):
        found = package.advise(64, records=2000, epsilon="0.02", methods=["efpa", "identity"], like="smooth")
        assert [row.method for row in found.rows] == ["efpa", "identity"]
        assert [row.intervals for row in found.rows] == [False, True]
        assert found.best.method == "identity" == found.to_dict()["best"]
        assert found.words().startswith("Take identity")
        assert re.search(r"efpa is off by \d+ % less, without error bars\.", found.words())

    def test_what_a_silent_method_would_save_is_said(self):
        def row(method, epsilon, error):
            return advising.Expected(
                method=method, epsilon=Fraction(epsilon), error=error, least=1.0, most=9.0, trials=3,
                intervals=method != "efpa", competitive=False, shapes=(), curve=(),
            )  # fmt: skip

        costs = [row("efpa", "0.3", 5.0), row("hb", "0.4", 5.0)]
        assert advising._silent(costs) == " efpa is 25 % cheaper, without error bars."
        assert advising._silent(costs[1:]) == ""
        assert "has no intervals" in advising._silent(costs[:1])

    def test_the_next_line_names_ledger_and_place(self, here):
        ask = ("advise", "--bins", "64", "--records", "2000", "--epsilon", "0.02", "--like", "smooth")
        said = dphist(*ask, "--method", "identity", "--method", "efpa").stderr
        (line,) = (line for line in said.splitlines() if line.startswith("next:"))
        assert line.endswith("--method identity --workload points --epsilon 0.02 "
                             "--ledger LEDGER.db --out RELEASE.json")  # fmt: skip


@pytest.mark.parametrize("counts", [[5, 900, 40], [[5, 9], [7, 8]]], ids=["line", "grid"])
def test_a_picture_without_intervals_says_so_and_why(counts):
    known = package.from_counts(counts, epsilon=1)
    blind = replace(known, error=Unknown("the bins were chosen by looking."))
    told = [" ".join(r.plot().spec["title"]["subtitle"]) for r in (known, blind)]
    assert "not known" not in told[0]
    assert "How far these values are off is not known: the bins were chosen by looking." in told[1]
    assert str(blind.total()).count("no interval") == 1


class TestOptionsAreGivenOnce:
    @pytest.mark.parametrize(
        ("twice", "advice"),
        [
            (("--where", "age > 1", "--where", "age > 2"), "with AND"),
            (("--epsilon", "1", "--epsilon", "2"), "--epsilon was given more than once.*once"),
            (("--range", "0", "9", "--range", "0", "99"), "--range was given more than once"),
        ],
    )
    def test_publish(self, here, twice, advice):
        said = dphist(*PUBLISH, "--epsilon", "1", *twice, code=2).stderr
        assert re.search(advice, said) and not (here / "dphist-ledger.db").exists()

    def test_every_command(self, here):
        labels = ("--column", "kind", "--categories", "a", "--categories", "b")
        assert "commas: --categories A,B" in dphist("check", "people.csv", *labels, code=2).stderr
        assert "--bins" in dphist("advise", "--bins", "2", "--bins", "3", "--records", "9", code=2).stderr
        assert "--limit" in dphist("ledger", "create", "x.db", "--limit", "1", "--limit", "2", code=2).stderr
        assert "--level" in dphist("query", "r.json", "0", "--level", ".9", "--level", ".8", code=2).stderr
        assert not (here / "x.db").exists()
        dphist("methods", "--json", "--json")


def test_a_full_disk_is_no_reason_to_pay_twice(here, monkeypatch):
    def full(*_):
        raise OutputError("'r.csv' cannot be written: the disk is full.")

    monkeypatch.setattr("dphist.release.save_fresh", full)
    said = dphist(*PUBLISH, "--epsilon", "1", "--out", "r.csv", code=OutputError.exit_code).stderr
    assert "Do not publish again: that would be charged again." in said
    rescue, target = re.search(r"Move it: mv (\S+) (\S+)", said).groups()
    assert target == "r.json" and package.load(rescue).epsilon == 1


def test_only_different_kinds_of_unit_spoil_a_sum():
    one, three = "one patient with at most 1 record", "one patient with at most 3 records"
    assert mixed([one, three]) == mixed(["one record"]) == mixed([three]) == mixed([]) == ""
    for other in ("one record", "one ward with at most 3 records", "a unit not stated"):
        assert f"different units ({'; '.join(sorted([other, three]))})" in mixed([three, other])


class TestDryRun:
    def test_it_names_the_file_that_would_be_written(self, here):
        (here / "release.json").touch()
        dry = json.loads(dphist(*PUBLISH, "--epsilon", "1", "--dry-run", "--json").stdout)
        assert dry["release"] == "release-2.json"
        dphist(*PUBLISH, "--epsilon", "1")
        assert (here / "release-2.json").exists()

    def test_its_words(self, here):
        dphist("ledger", "create", "l.db")
        dphist(*PUBLISH, "--epsilon", "1", "--ledger", "l.db")
        labels = ("publish", "people.csv", "--column", "kind", "--categories", "a,b", "--epsilon", "1")
        text = dphist(*labels, "--dry-run", "--unit", "person", "--ledger", "l.db").stdout
        assert "at most 1 record\n" in text and "labels:" in text and "range:" not in text
        assert "different units (one person with at most 1 record; one record)" in text
        text = dphist(*PUBLISH, "--epsilon", "1", "--dry-run", "--ledger", "l.db").stdout
        assert "range:" in text and "different units" not in text
        assert "Check all" not in dphist("publish", "--help").stdout


def test_an_interrupt_after_saving_says_what_was_charged_and_how_to_draw(here, monkeypatch):
    def pressed(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(publishing, "_draw", pressed)
    said = dphist(*PUBLISH, "--epsilon", "0.5", "--plot", "p.png", code=130).stderr
    assert "the release is safe in release.json, and epsilon 0.5 was charged." in said
    assert "Draw it with: dphist plot release.json p.png" in said


def test_a_date_in_a_range_is_told_what_to_do(here):
    ask = ("publish", "people.csv", "--column", "age", "--bins", "3", "--epsilon", "1", "--range")
    said = dphist(*ask, "2024-01-01", "2025-01-01", code=2).stderr
    assert "--range has dates" in said and "--every week, instead of --bins" in said


def test_methods_that_do_the_same_are_named():
    found = package.advise(4, records=2000, epsilon=1, methods=["identity", "hb"], like="smooth")
    assert len(found.rows) == 1
    assert "hb has exactly the same error here as identity." in found.words() or (
        "identity has exactly the same error here as hb." in found.words()
    )


def test_who_names_no_column_is_told_how(here):
    with pytest.raises(DphistError, match=r'such as column="age"'):
        package.histogram("people.csv", bins=3, range=(0, 9), epsilon=1)


def test_what_is_no_release_is_called_so(here):
    package.from_counts([1, 2], epsilon=1).save("visits.json")
    assert "Did you mean 'visits.json'?" in dphist("query", "vists.json", "0", code=4).stderr
    assert "is not a dphist release" in dphist("query", "people.csv", "0", code=4).stderr


def test_a_ledger_in_memory_shows_itself():
    book = package.MemoryLedger(limit=2)
    package.from_counts([1, 2], epsilon="0.5", ledger=book, dataset="a")
    assert repr(book) == "MemoryLedger(limit 2, spent {'a': 0.5}; ends with the process)"


def test_labels_obey_nobody_in_a_csv(tmp_path):
    release = package.from_counts([1, 2, 3], bins=["\x1b[31mred", "a\rb", "plain"], epsilon=1)
    text = release.save(tmp_path / "r.csv").read_bytes().decode()
    assert "\x1b" not in text and "\r" not in text and "\\u001b[31mred" in text and "\nplain," in text


class TestCheck:
    def test_an_unclosed_quote_is_noticed(self, here):
        rows = [f"{i % 100},x\n" for i in range(300)]
        rows[20] = '5,"x\n'
        Path("a.csv").write_text("age,note\n" + "".join(rows))
        ask = ("check", "a.csv", "--column", "age", "--bins", "2", "--range", "0", "100")
        assert "never closed" in dphist(*ask, "--well-formed").stdout
        assert "never closed" not in dphist(*ask).stdout
        Path("a.csv").write_text("age,note\n" + '5,"x\ny"\n' * 300)
        assert "never closed" not in dphist(*ask, "--well-formed").stdout

    def test_nearly_all_is_not_all(self, here):
        Path("a.csv").write_text("age\n" + "x\n" * 999 + "5\n")
        ask = ("check", "a.csv", "--column", "age", "--bins", "2", "--range", "0", "100")
        assert "99.9% have no number" in dphist(*ask).stdout

    def test_labels_that_nobody_has_are_named(self, here):
        Path("a.csv").write_text("kind\n" + "a\n" * 50 + "gr\xfcn\n" * 50, "latin-1")
        ask = ("check", "a.csv", "--column", "kind", "--categories", "a,grün")
        said = dphist(*ask).stdout
        assert "--encoding latin-1" in said
        Path("a.csv").write_text("kind\n" + "a\n" * 50 + "grün\n" * 50, "utf-8")
        said = dphist(*ask, "--encoding", "latin-1").stdout
        assert "No record has 'grün'." in said and "and the encoding (--encoding)" in said
        said = dphist(*ask, "--encoding", "latin-1", "--where", "kind = 'grün'").stdout
        assert "no record meets the condition" in said and "--encoding" in said


def test_a_run_that_fails_makes_no_ledger(here):
    wrong = (
        "publish",
        "people.csv",
        "--column",
        "agee",
        "--bins",
        "3",
        "--range",
        "0",
        "9",
        "--epsilon",
        "1",
    )
    dphist(*wrong, code=4)
    with pytest.raises(DphistError):
        package.histogram("people.csv", column="agee", bins=3, range=(0, 9), epsilon=1)
    assert not (here / "dphist-ledger.db").exists()
    assert "a new ledger was made" in dphist(*PUBLISH, "--epsilon", "1").stderr
    assert package.Ledger.open("dphist-ledger.db").spent("default") == 1
    assert "a new ledger was made" not in dphist(*PUBLISH, "--epsilon", "1").stderr
