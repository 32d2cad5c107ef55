"""How a grid is asked how many of its cells hold records, what that decides, and what is spent."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist.domain import Domain, Integers
from dphist.domain.groups import Groups
from dphist.domain.workload import make_workload
from dphist.errors import UsageError
from dphist.kernels.trees.pyramids import grid_gain
from dphist.methods import rehearsal
from dphist.methods.catalogue import make_pipeline
from dphist.privacy.counts import Counts
from dphist.privacy.curator import Curator
from dphist.steps import estimate, questions
from dphist.steps.estimate import averaged_trees

SHARE = Fraction(3, 4)
SIDES = (24, 22)
ASKING = estimate.AveragedTree(asks=True)


def domain_of(shape):
    return Domain(tuple(Integers(0, n - 1) for n in shape))


def curator(x, *, epsilon="1", seed=0, sensitivity=1):
    return Curator.simulated(
        Counts(np.asarray(x), domain_of(np.shape(x)), sensitivity), epsilon=Fraction(epsilon), seed=seed
    )


def estimated(step, made, *, workload="rectangles:300", groups=None):
    groups = groups or Groups.singletons(made.domain.n)
    return step(made, None, groups, make_workload(workload, made.domain), share=SHARE)


def law(found):
    return type(found.error).__name__


@given(st.lists(st.integers(0, 60), min_size=1, max_size=30), st.integers(1, 40), st.sampled_from([1, 3]))
def test_records_up_to_a_level_are_counted_in_every_bin(counts, level, sensitivity):
    x = np.array(counts)
    made = curator(x, epsilon="10000", sensitivity=sensitivity)
    assert questions.below(made, level, Fraction(1, 2)) == pytest.approx(np.minimum(x, level).sum(), abs=0.1)
    assert [part.share for part in made.spent] == [Fraction(1, 4), Fraction(1, 4)]


class TestWhatIsSpent:
    @pytest.mark.parametrize(("shape", "part"), [(SIDES, Fraction(12, 528)), ((16, 16), Fraction(1, 32))])
    @pytest.mark.parametrize("held", [0, 1000])
    def test_twelve_parts_in_n_ask_and_the_rest_measures(self, shape, part, held):
        made = curator(np.full(shape, held), epsilon="0.5", sensitivity=2)
        estimated(ASKING, made)
        asked = SHARE * part / 2
        assert [each.share for each in made.spent] == [asked, asked, SHARE - 2 * asked]

    def test_the_values_have_the_noise_that_was_paid(self):
        for held, width in ((0, 1), (1000, 4096)):
            made = curator(np.full(SIDES, held), epsilon="0.5")
            found = estimated(ASKING, made)
            scale = made.scale(SHARE * (1 - Fraction(12, 528)))
            assert np.allclose(found.error.scale, width * scale)

    @pytest.mark.parametrize(
        ("step", "workload", "epsilon"),
        [
            (estimate.AveragedTree(), "rectangles:300", "0.5"),
            (estimate.AveragedTree(asks=True, slight=3.0), "rectangles:300", "0.5"),
            (ASKING, "points", "0.5"),
            (ASKING, "rectangles:300", "1e-10"),
        ],
    )
    def test_nothing_is_asked_that_would_not_be_heeded(self, step, workload, epsilon):
        made = curator(np.full(SIDES, 5), epsilon=epsilon)
        estimated(step, made, workload=workload)
        assert [part.share for part in made.spent] == [SHARE]

    def test_noise_too_wide_for_a_question_is_not_drawn(self, monkeypatch):
        made = curator(np.full(SIDES, 5), epsilon="0.5")
        monkeypatch.setattr(questions, "WIDEST_SCALE", made.scale(SHARE * Fraction(6, 528)) * 0.99)
        assert law(estimated(ASKING, made)) == "PyramidTotals"
        assert [part.share for part in made.spent] == [SHARE]

    def test_groups_are_not_asked(self):
        made = curator(np.full(SIDES, 5))
        estimated(ASKING, made, groups=Groups(np.arange(0, 529, 4)))
        assert [part.share for part in made.spent] == [SHARE]

    def test_noise_is_never_too_wide_after_a_question(self):
        # The same noise is refused whether or not it was asked before, and by an error before any charge.
        for digits in range(8, 19):
            made = curator(np.full(SIDES, 5), epsilon=f"1e-{digits}")
            try:
                estimated(ASKING, made)
            except UsageError:
                assert not made.spent
            else:
                assert sum(part.share for part in made.spent) == SHARE


class TestWhatItDecides:
    @pytest.mark.parametrize("seed", range(4))
    @pytest.mark.parametrize(("held", "found"), [(0, "GroupTotals"), (1000, "PyramidTotals")])
    def test_among_few_cells_with_records_each_has_noise_of_its_own(self, held, found, seed):
        assert law(estimated(ASKING, curator(np.full(SIDES, held), epsilon="0.5", seed=seed))) == found

    @pytest.mark.parametrize("flat", [False, True])
    def test_the_answer_is_heeded_whatever_would_be_done_unasked(self, monkeypatch, flat):
        laws = set()
        for few in (False, True):
            monkeypatch.setattr(averaged_trees, "_few_are_held", lambda *_, few=few: few)
            laws.add(law(estimated(estimate.AveragedTree(asks=True, flat=flat), curator(np.full(SIDES, 9)))))
        assert len(laws) == 2

    @pytest.mark.parametrize("sensitivity", [1, 3])
    @pytest.mark.parametrize(("epsilon", "level"), [("0.1", 15), ("0.5", 3), ("1", 1), ("9", 1)])
    def test_the_bar_is_so_many_cells_times_the_level(self, monkeypatch, epsilon, level, sensitivity):
        level = int(1.5 * sensitivity / float(epsilon)) or 1
        bar = 0.45 * grid_gain(*SIDES) ** 2 * level * 528
        made, asked = curator(np.zeros(SIDES, dtype=np.int64), epsilon=epsilon, sensitivity=sensitivity), []
        for found, few in ((0.99 * bar, True), (1.01 * bar, False)):
            monkeypatch.setattr(averaged_trees, "below", lambda *a, found=found: asked.append(a) or found)
            assert averaged_trees._few_are_held(made, Fraction(1, 9)) is few
        assert asked == [(made, level, Fraction(1, 9))] * 2

    @pytest.mark.parametrize("shape", [(1, 600), (2, 300), (300, 2), (3, 200)])
    def test_narrow_grids_are_asked_or_not_and_have_an_estimate(self, shape):
        for held in (0, 500):
            made = curator(np.full(shape, held), epsilon="0.5")
            found = estimated(ASKING, made)
            assert np.isfinite(found.values).all() and sum(part.share for part in made.spent) == SHARE


class TestTheMethods:
    @pytest.mark.parametrize(
        ("shape", "asks"), [((20, 20), False), ((401, 1), False), ((21, 20), True), ((70, 70), True)]
    )
    @pytest.mark.parametrize("name", ["auto", "dawa3"])
    def test_grids_of_more_than_400_cells_ask(self, name, shape, asks):
        domain = domain_of(shape)
        made = make_pipeline(name, domain, make_workload("rectangles:50", domain))
        assert made.estimate.asks is asks

    def test_lines_do_not_ask(self):
        domain = domain_of((5000,))
        assert not make_pipeline("dawa3", domain, make_workload("ranges", domain)).estimate.asks

    def test_both_ways_are_rehearsed(self, monkeypatch):
        domain = domain_of((30, 30))
        workload = make_workload("rectangles:50", domain)
        tried = []
        step = estimate.AveragedTree.__call__

        def watched(self, *args, **options):
            found = step(self, *args, **options)
            tried.append((self.asks, self.flat, law(found)))
            return found

        monkeypatch.setattr(estimate.AveragedTree, "__call__", watched)
        pipeline = make_pipeline("dawa3", domain, workload)
        rehearsal.rehearse(pipeline, domain, workload, epsilon=Fraction(1), sensitivity=1)
        assert {*tried} >= {(False, False, "PyramidTotals"), (False, True, "GroupTotals")}
