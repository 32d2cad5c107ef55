"""The six tasks of docs/office.md, as they stand there, on a made-up table of 200,000 visits."""

import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dphist as package
from shell import dphist

PAGE = (Path(__file__).parents[2] / "docs" / "office.md").read_text("utf-8")
COMMANDS = [
    shlex.split(line)[1:]
    for block in re.findall(r"```sh\n(.*?)```", PAGE, re.S)
    for line in block.splitlines()
]
WARDS = ["Surgery", "Medicine", "Children", "Maternity", "Emergency"]
MOST = 4


def made_up(visits, start, days, seed):
    rng = np.random.default_rng(seed)
    patient = rng.integers(0, 60_000, visits)
    ages = np.clip(rng.normal(50, 22, 60_000), 0, 109).astype(int)
    minutes = rng.integers(0, days * 24 * 60, visits)
    return pd.DataFrame(
        {
            "patient": patient,
            "age": ages[patient],
            "ward": rng.choice(WARDS, visits, p=[0.2, 0.3, 0.1, 0.1, 0.3]),
            "admitted": np.datetime64(start, "m") + minutes.astype("timedelta64[m]"),
            "cost": np.round(np.exp(rng.normal(6.5, 1.4, visits)), 2),
        }
    )


@pytest.fixture(scope="module")
def office(tmp_path_factory):
    """Run every command of the page; return the folder, the tables, and what each command said."""
    folder = tmp_path_factory.mktemp("office")
    year, month = made_up(200_000, "2024-01-01", 366, 1), made_up(15_000, "2025-01-01", 31, 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("DPHIST_LEDGER", raising=False)
        year.to_csv("visits.csv", index=False)
        month.to_csv("january.csv", index=False)
        Path("wards.txt").write_text("\n".join(WARDS))
        said = [dphist(*command) for command in COMMANDS]
        yield folder, year, month, said


def kept(table):
    """Return how many records of a table remain if at most four of each patient do."""
    return int(np.minimum(table.groupby("patient").size(), MOST).sum())


def test_each_task_is_one_command():
    assert len(re.findall(r"^\*\*\d\. ", PAGE, re.M)) == sum(c[0] == "publish" for c in COMMANDS) == 6


@pytest.mark.parametrize("name", ["ages", "wards", "weeks", "costs", "january"])
def test_a_release_counts_the_records_that_were_kept(office, name):
    folder, year, month, _ = office
    release = package.load(folder / f"{name}.json")
    records = kept(month if name == "january" else year)
    noise = (MOST / float(release.epsilon)) * 2**0.5 * release.domain.n**0.5
    assert abs(release.values().sum() - records) < 20 * noise + 1
    assert (folder / f"{name}.png").stat().st_size > 10_000
    assert release.unit == "one patient with at most 4 records"


def test_ages_by_ward_have_a_histogram_for_each_ward(office):
    folder, year, _, _ = office
    release = package.load(folder / "ages-by-ward.parquet")
    assert set(release.hierarchy.leaves) == set(WARDS)
    left = kept(year) / len(year)
    for ward, visits in year.groupby("ward").size().items():
        found = release[ward].sum(0, 110).value
        assert abs(found - visits * left) < 0.03 * visits + 1_000, ward


def test_bins_speak_in_the_words_of_their_axis(office):
    folder, _, _, said = office
    assert package.load(folder / "weeks.json").domain.axes[0].names()[:2] == ["2024-01-01", "2024-01-08"]
    text = "\n".join(run.stdout + run.stderr for run in said)
    assert "2024-01-08" in text and "Maternity" in text and "2025-01-31" in text


def test_the_budget_is_charged_once_per_task(office):
    folder, _, _, said = office
    assert "spent 1.4 of 2, 0.6 left" in said[6].stderr + said[6].stdout
    run = dphist("ledger", "show", folder / "hospital.db")
    assert "1.4" in run.stdout


def test_what_does_not_fit_the_budget_is_refused_and_costs_nothing(office, monkeypatch):
    folder, *_ = office
    monkeypatch.chdir(folder)
    changed = {"0.2": "0.7", "ages.json": "more.json", "ages.png": "more.png"}
    over = [changed.get(word, word) for word in COMMANDS[1]]
    run = dphist(*over, code=3)
    assert "0.6" in run.stderr and not Path("more.json").exists()
    assert "1.4" in dphist("ledger", "show", "hospital.db").stdout


def test_it_can_be_handed_in(office):
    folder, _, _, said = office
    page = (folder / "visits.html").read_text("utf-8")
    assert "Visits to the hospital" in page and page.count("<svg") >= 6
    assert (folder / "weeks.xlsx").read_bytes()[:2] == b"PK"
    assert said[-1].stdout.strip()
