"""Priors: what is taken as one, what is said of it, and what is refused before anything is charged."""

import hashlib
import warnings

import numpy as np
import pytest

import dphist
from dphist.domain import Categories, Domain, Regular, Variable
from dphist.errors import DataError, UsageError
from dphist.planning.prior import _are_the_same
from dphist.privacy.ledger import Ledger
from dphist.steps import estimate

LAST = np.array([400, 30, 900, 0, 77, 650, 12, 240] * 32)
NOW = LAST + np.arange(256) % 5


@pytest.fixture
def ledger(tmp_path):
    return Ledger.open(tmp_path / "l.db", create=True)


@pytest.fixture
def earlier(tmp_path):
    return dphist.from_counts(LAST, epsilon=100, ledger=Ledger.open(tmp_path / "old.db", create=True))


def publish(ledger, **how):
    options = {"epsilon": 0.05, "method": "average", "ledger": ledger, "dataset": "d"}
    return dphist.from_counts(NOW, **options | how)


def test_the_shape_of_a_prior_lowers_the_error():
    def error(**how):
        made = dphist.simulate(NOW, epsilon=0.05, method="average", trials=6, **how)
        return float(np.abs(made - NOW).mean())

    alone, wrong = error(), np.roll(LAST, 3)
    assert error(prior=LAST) < 0.3 * alone
    assert error(prior=LAST / 100) < 0.3 * alone
    assert error(prior=wrong) < 1.1 * alone
    mixed = np.where(np.arange(256) < 128, LAST, wrong)
    assert error(prior=mixed) < 0.8 * alone
    grid = dphist.simulate(NOW.reshape(16, 16), epsilon=0.05, method="average", prior=LAST.reshape(16, 16))
    assert np.abs(grid - NOW).mean() < 0.5 * alone


@pytest.mark.parametrize("shape", [(100,), (10, 10)])
def test_a_prior_is_not_believed_where_a_count_contradicts_it(shape):
    last = np.full(100, 250)
    now = np.random.default_rng(1).poisson(last)
    now[57] = 1500
    found = dphist.simulate(
        now.reshape(shape), epsilon=0.01, method="average", prior=last.reshape(shape), trials=20, seed=3
    ).reshape(20, 100)
    assert (abs(found[:, 57] - 1500) < 900).all(), "the noise has a scale of 100, and the prior says 250"
    assert np.median(found[:, 57]) > 1200
    assert abs(np.delete(found, 57, axis=1) - np.delete(now, 57)).mean() < 30, "the others follow it"


def test_a_release_says_which_release_it_follows(ledger, earlier, tmp_path):
    release = publish(ledger, prior=earlier)
    assert release.provenance["prior"] == {"release": earlier.id, "method": "auto", "simulated": False}
    assert earlier.id in release.parameters["estimate"]["prior"]
    path = earlier.save(tmp_path / "last.json")
    again = publish(ledger, prior=path)
    assert again.provenance["prior"]["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert again.provenance["prior"]["file"] == "last.json"
    assert dphist.load(again.save(tmp_path / "new.json")).provenance == again.provenance
    assert "prior" not in publish(ledger).provenance


def test_counts_that_are_not_said_to_be_public_are_warned_of(ledger, tmp_path):
    np.save(tmp_path / "last.npy", LAST)
    for given in (LAST, LAST.tolist(), tmp_path / "last.npy"):
        with pytest.warns(UserWarning, match=r"must be public.*discloses them.*public_prior=True") as said:
            release = publish(ledger, prior=given)
        assert said[0].filename == __file__, "Python shows it again for another line"
        assert not release.provenance["prior"]["public"] and "sha256" not in release.provenance["prior"]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            release = publish(ledger, prior=given, public_prior=True)
        assert release.provenance["prior"]["public"]
    assert release.provenance["prior"]["sha256"]
    assert "900" not in str(release.provenance)


def test_a_simulated_prior_is_warned_of(ledger):
    seen = dphist.Plan(bins=256, range=(0, 256), epsilon=1).preview(records=1000).releases[0]
    bins = seen.domain
    with pytest.warns(UserWarning, match="simulated"):
        release = publish(ledger, prior=seen, bins=bins)
    assert release.provenance["prior"]["simulated"]


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (LAST[:100], UsageError, "same bins"),
        (LAST.reshape(16, 16), UsageError, "same bins"),
        (-LAST, DataError, "0 or more"),
        (np.where(LAST > 0, np.inf, 1.0), DataError, "0 or more"),
        (LAST.astype(str), DataError, "one number for each bin"),
        ([[1, 2], [3]], DataError, "one number for each bin"),
        ("nowhere.json", UsageError, "there is no file"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_a_wrong_prior_is_refused_unpaid(ledger, given, error, words):
    with pytest.raises(error, match=words) as caught:
        publish(ledger, prior=given)
    assert "900" not in str(caught.value) and ledger.spent("d") == 0


def test_a_release_of_other_bins_is_refused_unpaid(ledger, earlier):
    other = dphist.from_counts(LAST, epsilon=1, bins=np.arange(257) / 2)
    with pytest.raises(UsageError, match="other bins"):
        publish(ledger, prior=other)
    with pytest.raises(UsageError, match="other bins"):
        dphist.histogram(
            [1, 2], bins=8, range=(0, 8), epsilon=1, method="average", prior=earlier, ledger=ledger
        )
    assert ledger.spent("d") == ledger.spent("default") == 0


@pytest.mark.parametrize("swapped", [False, True])
def test_bins_of_equal_edges_are_the_same_however_they_were_given(swapped):
    ways = [{"bins": 10, "range": (0, 100)}, {"bins": np.arange(0, 101, 10)}]
    one, other = reversed(ways) if swapped else ways
    last = dphist.histogram(np.arange(100), epsilon=1, **one)
    found = dphist.histogram(np.arange(100), epsilon=1, method="average", prior=last, **other)
    assert found.provenance["prior"]["method"] == last.method
    shifted = dphist.histogram(np.arange(100), epsilon=1, bins=np.arange(0, 101, 10) + 1e-9)
    with pytest.raises(UsageError, match="other bins"):
        dphist.histogram(np.arange(100), epsilon=1, method="average", prior=shifted, **other)


def test_all_axes_must_be_the_same_and_be_as_many():
    x, y, z = (Regular(lo=0, hi=hi, bins=3) for hi in (3, 6, 9))
    same = _are_the_same
    assert same(Domain((x, y)), Domain((x, Variable(edges=[0, 2, 4, 6]))))
    assert not same(Domain((x, y)), Domain((x, z))) and not same(Domain((y, x)), Domain((z, x)))
    assert not same(Domain((x,)), Domain((x, y))) and not same(Domain((x, y)), Domain((x,)))
    assert not same(Domain((x,)), Domain((Categories(["a", "b", "c"]),)))


@pytest.mark.parametrize("method", ["identity", "dawa2", "hats"])
def test_methods_that_do_not_average_refuse_a_prior_unpaid(ledger, earlier, method):
    with pytest.raises(UsageError, match=f"the method {method} takes no prior: use method='average'"):
        publish(ledger, prior=earlier, method=method)
    with pytest.raises(UsageError, match="groups have many"):
        dphist.histogram(
            {"x": [1], "g": ["a"]}, integers=(0, 255), column="x", by="g", groups=["a"], epsilon=1,
            method="average", prior=earlier,
        )  # fmt: skip
    assert ledger.spent("d") == 0
    with pytest.raises(UsageError, match="True or False"):
        publish(ledger, prior=earlier, public_prior="yes")
    with pytest.raises(UsageError, match="is of a prior"):
        publish(ledger, public_prior=True)
    assert ledger.spent("d") == 0


def test_records_are_published_with_a_prior(ledger, earlier):
    release = dphist.histogram(
        np.repeat(np.arange(256), NOW), integers=(0, 255), epsilon=0.05, method="average", prior=earlier,
        ledger=ledger,
    )  # fmt: skip
    assert release.provenance["prior"]["release"] == earlier.id
    assert all(np.isfinite(each).all() for each in release.intervals())
    grid = dphist.histogram2d(
        [1, 2], [3, 3], bins=(4, 4), range=((0, 4), (0, 4)), epsilon=1, method="average",
        prior=np.ones((4, 4)), public_prior=True,
    )  # fmt: skip
    assert grid.provenance["prior"]["public"]


def test_no_plan_shows_the_counts_of_its_prior(earlier):
    plan = dphist.Plan(bins=256, range=(0, 256), epsilon=1, method="average", prior=LAST, public_prior=True)
    assert "900" not in repr(plan) and "prior=..." in repr(plan)
    assert "900" not in repr(plan.pipeline) and isinstance(plan.pipeline.estimate, estimate.Averaged)


def test_a_plan_file_names_the_file_of_its_prior(tmp_path, earlier):
    earlier.save(tmp_path / "last.json")
    np.save(tmp_path / "last.npy", LAST)
    for prior, public in ((tmp_path / "last.json", False), (tmp_path / "last.npy", True)):
        plan = dphist.Plan(
            integers=(0, 255), column="x", epsilon=1, method="average", prior=prior, public_prior=public
        )
        file = plan.save(tmp_path / f"{prior.suffix[1:]}.toml")
        again = dphist.Plan.load(file)
        assert again.public_prior == public
        assert (again.pipeline.estimate.prior.counts == plan.pipeline.estimate.prior.counts).all()
    (tmp_path / "own.toml").write_text(
        'epsilon = 1\n[histograms.x]\ncolumn = "x"\nintegers = [0, 255]\n'
        'method = "average"\nprior = "last.json"\n'
    )
    assert dphist.Plan.load(tmp_path / "own.toml").pipeline.estimate.prior is not None
    with pytest.raises(UsageError, match="names the file of its prior"):
        dphist.Plan(integers=(0, 255), column="x", epsilon=1, method="average", prior=earlier).save(
            tmp_path / "no.toml"
        )
