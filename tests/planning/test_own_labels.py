"""Labels that are listed in the file of the records itself are refused: they would be published."""

import pytest

import dphist
from dphist.errors import PrivacyError
from shell import dphist as shell

SECRET = "Hjordis-7781"


@pytest.fixture
def wards(here):
    (here / "wards.csv").write_text(f"ward\n{SECRET}\nB\n")
    (here / "again.csv").symlink_to("wards.csv")
    return here


@pytest.mark.parametrize("listed", ["wards.csv", "./wards.csv", "again.csv"])
def test_labels_are_not_read_off_the_records(wards, listed):
    bins = {"column": "ward", "epsilon": 1}
    grouped = {"by": "ward", "groups": listed, "column": "ward", "categories": ["B"], "epsilon": 1}
    plan = dphist.Plan(categories=listed, **bins)
    for make in (
        lambda: dphist.histogram("wards.csv", categories=listed, **bins),
        lambda: dphist.histogram("wards.csv", **grouped),
        lambda: dphist.Publication({"wards": plan}).release("wards.csv"),
    ):
        with pytest.raises(PrivacyError, match="from public knowledge") as refused:
            make()
        assert SECRET not in str(refused.value)
    assert not (wards / "dphist-ledger.db").exists()


@pytest.mark.parametrize("key", ["categories", "groups"])
def test_nor_by_a_plan_file_or_from_the_shell(wards, key):
    by = 'by = "ward"\nintegers = [0, 1]\n' if key == "groups" else ""
    one = f'[histograms.w]\ncolumn = "ward"\n{key} = "wards.csv"\n{by}'
    (wards / "plan.toml").write_text(f'data = "wards.csv"\nepsilon = 1\n{one}')
    with pytest.raises(PrivacyError, match="from public knowledge"):
        dphist.Publication.load("plan.toml")
    more = ["--by", "ward", "--integers", "0", "1"] if key == "groups" else []
    asked = ["publish", "wards.csv", "--column", "ward", f"--{key}", "wards.csv", *more, "--epsilon", "1"]
    done = shell(*asked, code=5)
    assert SECRET not in done.stdout + done.stderr
    assert not (wards / "dphist-ledger.db").exists()


def test_nor_is_a_prior(here):
    (here / "ages.csv").write_text("age\n" + "7\n" * 53)
    (here / "plan.toml").write_text(
        'data = "ages.csv"\nepsilon = 1\n[histograms.a]\ncolumn = "age"\nintegers = [0, 9]\n'
        'prior = "ages.csv"\npublic_prior = true\nmethod = "average"\n'
    )
    believed = {"prior": "ages.csv", "public_prior": True, "method": "average"}
    asked = {"column": "age", "integers": (0, 52), "epsilon": 1, **believed}
    for make in (
        lambda: dphist.histogram("ages.csv", **asked),
        lambda: dphist.Publication({"ages": dphist.Plan(**asked)}).release("ages.csv"),
        lambda: dphist.Publication.load("plan.toml"),
    ):
        with pytest.raises(PrivacyError, match="from public knowledge"):
            make()
    bins = ["--column", "age", "--integers", "0", "9", "--method", "average", "--epsilon", "1"]
    done = shell("publish", "ages.csv", *bins, "--prior", "ages.csv", "--public-prior", code=5)
    assert "53" not in done.stdout + done.stderr and not (here / "dphist-ledger.db").exists()
