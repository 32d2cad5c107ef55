"""What is said of a release that is handed in: how it was made, what it can tell of one person, its limits.

All of it follows from the release alone. Reports, exported tables and their metadata take their words here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dphist.domain import Addresses, Axis, Categories, Codes, Hashed, Instants, Integers
from dphist.domain.declare import EVERY
from dphist.release.grouped import GroupedRelease
from dphist.release.release import STAMP, Release
from dphist.release.show import NOT_JOURNALED, decimal, not_journaled, plain_name, short_id
from dphist.release.sparse import SparseRelease

AnyRelease = Release | GroupedRelease | SparseRelease
GUESSES = (Fraction(1, 100), Fraction(1, 10), Fraction(1, 2))  # how sure somebody is before seeing a release
UNKNOWN_TO_SOFTWARE = (
    ("collection", "How, when and from whom the records were collected, and with whose consent."),
    ("access", "Who can still see the records themselves, and under which rules."),
    ("retention", "When the records, and any copies of them, are deleted."),
    ("other releases", "Whether other tables about the same people were published outside the ledger."),
    ("the choice of epsilon", "Who decided on epsilon, on the unit and on the bins, and for which reasons."),
)
_MOST_CHARGES = 6  # that are named one by one


@dataclass(frozen=True)
class Published:
    """What the catalogue knows of a method."""

    summary: str
    citation: str
    data_dependent: bool


def column_names(release: AnyRelease) -> list[str]:
    """Return the columns or expressions that were counted, one for each axis; nothing if they are unknown."""
    found: Any = release.provenance.get("column")
    names = [found] if isinstance(found, str) else list(found) if isinstance(found, tuple | list) else []
    axes = 1 if isinstance(release, GroupedRelease) else len(release.domain.axes)
    names = names[-axes:]
    return names if len(names) == axes and all(isinstance(name, str) for name in names) else []


def draws_of(release: AnyRelease) -> tuple[str | None, str | None]:
    """Return what tells a release from others: its charge, and which histogram of a publication it is."""
    published = release.provenance.get("publication") or {}
    return release.id, published.get("histogram")


def usual_title(release: AnyRelease) -> str:
    """Return a title where the person gave none: what was counted, never an SQL expression."""
    names = column_names(release)
    names = [plain_name(name) for name in names]
    if not names or not all(names):
        names = ["bin"] if len(names) < 2 else ["two axes"]
    title = f"Records by {' and '.join(names)}"
    if isinstance(release, GroupedRelease):
        return f"{title}, for each {release.hierarchy.names[-1]}"
    group = release.parameters.get("group")
    return f"{title}: {group['label']}" if group else title


# ---- how it was made --------------------------------------------------------------------------------


def methods(release: AnyRelease, published: Published | None = None) -> list[str]:
    """Return what a statistician needs: data, guarantee, mechanism, post-processing, intervals, software."""
    stamp = [f"{STAMP} The noise came from a seed that can be guessed."] if release.simulated else []
    return [
        *stamp,
        _counted(release),
        _guarantee(release),
        _mechanism(release, published),
        _made_presentable(release, published),
        _intervals(release),
        _software(release),
    ]


def _counted(release: AnyRelease) -> str:
    source, names = release.provenance, column_names(release)
    domain = release.bins if isinstance(release, GroupedRelease) else release.domain
    axes = [bins_in_words(axis) for axis in domain.axes]
    by = [f"by {name}, " for name in names] or [""] * len(axes)
    parts = [f"{name}in {bins}" for name, bins in zip(by, axes, strict=True)]
    words = f"Records were counted {', and '.join(parts)}"
    if source.get("source") == "counts":
        return (
            f"{words}. The counts were handed over as such; how they came about is for the publisher to say."
        )
    if isinstance(release, GroupedRelease):
        tree = release.hierarchy
        levels = ", ".join(f"{size:,} of {name}" for name, size in zip(tree.names, tree.sizes, strict=True))
        words += f", for each of the declared groups ({levels})"
    words += f". All of these were declared before any record was read, and {_published(release)}."
    if source.get("where"):
        words += f" Only records that meet the condition {source['where']} were counted."
    if source.get("outside") == "clip":
        words += " Records outside the range were counted in the nearest bin."
    elif source.get("outside") == "drop":
        words += " Records that belong to no bin, or have no value, were left out."
    return words


def _published(release: AnyRelease) -> str:
    """Return which of the declared bins are published."""
    if not isinstance(release, SparseRelease):
        return "every one of them is published"
    if release.listing is None:
        return "they are published in groups of neighbours, which were found privately"
    return f"those whose noisy count reached {release.listing.threshold:,}, a public threshold, are published"


def bins_in_words(axis: Axis) -> str:
    """Return how the bins of an axis were declared."""
    n = axis.n
    if isinstance(axis, Addresses):
        return f"{n:,} prefixes of {axis.prefix} bits in the network {axis.network}"
    if isinstance(axis, Codes):
        return f"{n:,} codes of the form {axis.pattern}"
    if isinstance(axis, Hashed):
        return f"{n:,} hashes of keys, of which several keys may share one"
    if isinstance(axis, Categories):
        more = [
            text for has, text in ((axis.other, "all other labels"), (axis.null, "missing values")) if has
        ]
        extra = f" and {_one_bin(len(more))} for {' and for '.join(more)}" if more else ""
        return f"{len(axis.labels):,} declared categor{'ies' if len(axis.labels) > 1 else 'y'}{extra}"
    if isinstance(axis, Integers):
        return f"{n:,} whole numbers, from {axis.low} to {axis.high}"
    if isinstance(axis, Instants):
        clock = f"the clock of {axis.tz}" if axis.tz else "a clock without time zone"
        step = next(
            (f"{name}s" for name, freq in EVERY.items() if freq == axis.freq), f"steps of {axis.freq}"
        )
        start, stop = (end.removesuffix("T00:00:00") for end in (axis.start, axis.stop))
        return f"{n:,} {step} from {start} to {stop} by {clock}"
    even = "equal " if axis.kind == "regular" else ""
    return f"{n:,} {even}bin{'s' * (n > 1)} from {axis.edges[0]:g} to {axis.edges[-1]:g}"


def _one_bin(many: int) -> str:
    return "a bin" if many == 1 else "one bin each"


def person(release: AnyRelease) -> str:
    """Return whom the guarantee protects, without how many records are counted."""
    return re.sub(r" with at most [0-9]+ records?$", "", release.unit)


def _guarantee(release: AnyRelease) -> str:
    epsilon, at_most = decimal(release.epsilon), release.sensitivity
    words = (
        f"The release satisfies pure differential privacy with epsilon = {epsilon} (delta = 0) for adding or "
        f"removing {release.unit}: one such unit changes the counts by at most {at_most}, added over all "
        "bins (the sensitivity)."
    )
    if isinstance(release, GroupedRelease):
        words += " It holds for all groups together, by one charge."
    if doubt := _unprotected(release):
        words += f" That is so if its prior is public. {doubt}"
    if release.bounding:
        return f"{words} Records beyond that bound were left out at random. {release.bounding}"
    return f"{words} Whoever has k records is protected with k times this epsilon."


def method_that_ran(release: AnyRelease) -> str:
    """Return what the release's method chose, or the method itself."""
    chosen = (release.parameters.get("found") or {}).get("choice")
    return str(chosen or release.method)


def _mechanism(release: AnyRelease, published: Published | None) -> str:
    words, ran = f"The method is {release.method}", method_that_ran(release)
    if ran != release.method:
        words += f", which chose {ran} by the queries that were declared"
    if published is not None:
        words += f" ({published.summary.rstrip('.')}; {published.citation})"
    agrees = any(charge.purpose.endswith("groups on a tree") for charge in release.charges)
    tree = "; for totals of a tree, given that these agree (the K-norm mechanism)" if agrees else ""
    words += (
        f". All noise follows the discrete Laplace law{tree} or, for selections, the one-sided geometric "
        "law, and was sampled exactly"
    )
    words += "." if release.simulated else " from the operating system's entropy."
    error = release.levels[-1].errors[0] if isinstance(release, GroupedRelease) else release.error
    if isinstance(release, SparseRelease) and release.listing is not None:
        words += f" Every bin has independent noise of scale {release.listing.scale:.6g}."
    elif error.total_noise is not None and error.total_noise.law:
        words += f" Every measured total has {error.total_noise.law}."
    return f"{words} Epsilon was spent on {_spent(release)}."


def _spent(release: AnyRelease) -> str:
    parts = [f"{c.purpose} ({decimal(c.epsilon)})" for c in release.charges]
    more = len(parts) - _MOST_CHARGES
    return "; ".join(parts[:_MOST_CHARGES]) + (f"; and {more:,} further measurements" if more > 0 else "")


def is_averaged(release: AnyRelease) -> bool:
    """Return whether values were averaged or grouped after the measurement that intervals come from."""
    error = release.levels[-1].error(0) if isinstance(release, GroupedRelease) else release.error
    return error.measured_values is not None


def _made_presentable(release: AnyRelease, published: Published | None) -> str:
    if isinstance(release, SparseRelease) and release.listing is not None:
        return (
            "The estimates are as measured. Those below the threshold were left out, and are in no sum but "
            "that of all records. This is post-processing, which costs no epsilon."
        )
    bias = (
        "The estimates are as measured, and sums should be taken of them: they may be negative or fractional."
    )
    if is_averaged(release):
        bias = (
            "The values were averaged or grouped after the measurement, so that those of single bins may be "
            "biased; the unbiased measurement is part of the release, and answers to ranges are moved into "
            "its intervals."
        )
    elif published is not None:
        bias += (
            " Bins that the method treats together, if any, share what was measured, so that estimates of "
            "single bins may be biased."
            if published.data_dependent
            else " They are unbiased for the records that were counted."
        )
    made = {
        "none": _left_alone(release),
        "nonneg": "Beside them stand presentable values, from which negative numbers were removed, keeping "
        "the total; this makes them biased, and they are for reading.",
        "integer": "Beside them stand presentable values, which are whole numbers that are not negative, "
        "with the rounded total; this makes them biased, and they are for reading.",
    }[release.post]
    return f"{bias} {_followed(release)}{made} This is post-processing, which costs no epsilon."


def _left_alone(release: AnyRelease) -> str:
    """Return what was done to values that are not made presentable."""
    known = release.pieces if isinstance(release, SparseRelease) else release
    if is_averaged(release):
        low = isinstance(known, Release) and bool((known.raw >= 0).all())
        cut = ", and no value is below 0" if low else ""
        return (
            f"Where noisy counts look alike, values are averages of them{cut}. Nothing was rounded or left "
            "out afterwards."
        )
    if isinstance(known, Release) and not known.groups.are_singletons:
        return "Nothing was rounded or left out afterwards."
    return "Nothing was rounded, smoothed or left out afterwards."


def _followed(release: AnyRelease) -> str:
    """Return which prior the averages followed; nothing without one."""
    prior = release.provenance.get("prior")
    if not isinstance(prior, Mapping):
        return ""
    if prior.get("simulated"):
        of = "a simulated release"
    elif "release" in prior:
        of = f"the release {prior['release']}" if prior["release"] else "an earlier release"
    elif prior.get("public"):
        of = "counts that are declared public"
    else:
        of = "counts that were given as a prior, and are not declared public"
    file = f" ({prior['file']})" if prior.get("file") else ""
    return f"They follow the shape of {of}{file} where the measurement does not contradict it. "


def _unprotected(release: AnyRelease) -> str:
    """Return what no noise protects, as nobody declared it public: a prior; nothing without one."""
    prior = release.provenance.get("prior")
    if not isinstance(prior, Mapping):
        return ""
    if not prior.get("simulated") and ("release" in prior or prior.get("public")):
        return ""
    of, them = "counts that were not declared public", "they are private"
    if prior.get("simulated"):
        of, them = "a simulated release", "it was made from private counts"
    return (
        f"The values follow the shape of {of}, which no noise protects: if {them}, the release discloses "
        "these, and must not be handed out."
    )


def _intervals(release: AnyRelease) -> str:
    if isinstance(release, SparseRelease):
        return f"Intervals: {release.description}"
    error = release.levels[-1].error(0) if isinstance(release, GroupedRelease) else release.error
    words = error.description.strip()
    accuracy = f" {error.accuracy}" if isinstance(release, Release) and error.accuracy else ""
    return f"Intervals: {words.rstrip('.')}.{accuracy}"


def _software(release: AnyRelease) -> str:
    software = ", ".join(f"{name} {version}" for name, version in release.versions.items())
    named = f", release {release.id}" if release.id else ""
    words = f"Software: {software}. Published {release.created}{named}."
    if release.simulated:
        return words
    kept = f"The release is {NOT_JOURNALED}." if not_journaled(release) else "A ledger holds the charge."
    return f"{words} {kept}"


def citation(release: AnyRelease, title: str) -> str:
    """Return how a release is cited; who publishes it is for the person to say."""
    named = f", release {short_id(release.id)}" if release.id else ""
    version = release.versions.get("dphist", "")
    made = "SIMULATED, not private" if release.simulated else "counts under differential privacy"
    return (
        f"[Publisher] ({release.created[:4]}). {title} [{made}, epsilon = {decimal(release.epsilon)} for "
        f"{release.unit}]. Made with dphist {version}{named}, {release.created[:10]}."
    )


def holds_for_most(release: AnyRelease) -> bool:
    """Return whether intervals hold for most bins or ranges, and are no promise about each of them."""
    return not isinstance(release, SparseRelease) and release.holds_for_most


def of_most(release: AnyRelease, level: float) -> str:
    """Return for what part of all bins and ranges intervals hold, where they are no promise about each."""
    if not holds_for_most(release):
        return ""
    return f"intervals here hold for about {100 * level:g} % of all bins and ranges, not for each"


def limits(release: AnyRelease, *, joint: bool = False) -> list[tuple[str, str]]:
    """Return what a reader could take a release for, and should not.

    Args:
        joint: whether the intervals beside it hold all at once.
    """
    each = "Each interval holds by itself", "of twenty 95 % intervals, expect one to miss. "
    if joint:
        each = "All intervals hold at once", "in 95 of 100 releases. "
    elif holds_for_most(release):
        each = (
            "Intervals hold for most bins",
            (
                "about 95 % of all bins, and of all ranges, over releases; a bin that is unlike those it was "
                "measured with may be missed nearly always. "
            ),
        )
    add = "The ends of several must not be added up: ask for the interval of the sum with dphist query."
    found = [
        ("Intervals cover the noise", "not wrong or missing records, nor the choice of who was asked."),
        (each[0], each[1] + add),
        (
            "Facts about groups are not covered",
            "what is true of many people can be learnt of anybody, whether or not they are in the data.",
        ),
    ]
    if isinstance(release, SparseRelease) and release.listing is not None:
        curse = "a bin that is picked because it is listed has more noise than others (the winner's curse)."
        found.insert(0, ("Bins are listed because their noisy counts are high", curse))
    if release.bounding:
        found.insert(0, ("People with many records count less", release.bounding))
    if doubt := _unprotected(release):
        found.insert(0, ("The guarantee does not cover the prior", doubt))
    return found


# ---- what it can tell of one person -----------------------------------------------------------------


def chance_after(before: Fraction, epsilon: Fraction) -> float:
    """Return the most that a belief can become by seeing the output of an epsilon-private mechanism.

    Of two neighbouring data sets, one makes any output at most exp(epsilon) times as likely as the other. By
    Bayes' rule odds change by at most that factor: p becomes at most p e^epsilon / (1 - p + p e^epsilon).
    """
    odds = float((1 - before) / before)
    return 1.0 / (1.0 + odds * math.exp(-float(epsilon)))


def times_in_hundred(chance: float) -> float:
    """Return a chance in 100, rounded up to a tenth since it is an upper bound."""
    return min(math.ceil(1000 * chance - 1e-9) / 10, 100.0)


def of_hundred(chance: float) -> str:
    """Return the same in words, for a table."""
    times = times_in_hundred(chance)
    return "over 99.9" if times >= 100 else f"{times:g}"


def at_most_of_hundred(chance: float) -> str:
    """Return the same for a sentence that says "at most".

    >>> at_most_of_hundred(0.6225), at_most_of_hundred(0.999999)
    ('62.3', '100')
    """
    return f"{times_in_hundred(chance):g}"


def odds_in_words(epsilon: Fraction, unit: str) -> str:
    """Return in a sentence how much releases can change what somebody believes of one unit."""
    whom = "record" if unit == "one record" else "person"
    before = GUESSES[1]
    after = at_most_of_hundred(chance_after(before, epsilon))
    how = "can hardly" if epsilon <= Fraction(1, 10) else "can somewhat" if epsilon <= 1 else "can strongly"
    return (
        f"Whatever somebody knows already, this {how} change what they believe of one {whom}: who held, "
        f"before seeing it, that this {whom} is in the data with a chance of {float(100 * before):g} in 100, "
        f"can hold so afterwards with a chance of {after} in 100 at most."
    )


def unit_word(column: str | None) -> str:
    """Return a word for whom counts protect: the name of the column, without what marks it as a number.

    >>> unit_word("patient_id"), unit_word("personId"), unit_word("id"), unit_word(None)
    ('patient', 'person', 'person', 'record')
    """
    if column is None:
        return "record"
    word = re.sub(r"(?i:[\W_]+(id|no|nr|number|key|code))$|(?<=[a-z])I[Dd]$", "", column)
    letters = re.sub(r"[\W_]+", " ", word).strip()
    return letters.lower() if len(letters) > 2 and letters.replace(" ", "").isalpha() else "person"


def guess_in_words(epsilon: Fraction, whom: str, *, with_earlier: Fraction | None = None) -> str:
    """Return how often a guess whether one unit is in the data can be right, before and after a release.

    Args:
        whom: a word for the unit, such as patient.
        with_earlier: the epsilon of this release and all earlier ones together.
    """
    even = Fraction(1, 2)
    text = (
        f"Guessing whether one {whom} is in the data is right 50 times in 100. With this release, at most "
        f"{at_most_of_hundred(chance_after(even, epsilon))}"
    )
    if with_earlier is not None and with_earlier > epsilon:
        after = at_most_of_hundred(chance_after(even, with_earlier))
        text += f"; with all earlier ones too, at most {after}"
    return f"{text}."


def odds_rows(epsilons: Sequence[Fraction]) -> list[tuple[str, ...]]:
    """Return, for guesses before, the chances in 100 afterwards: at most these, one for each epsilon."""
    return [
        (f"{float(100 * p):g} in 100", *(of_hundred(chance_after(p, epsilon)) for epsilon in epsilons))
        for p in GUESSES
    ]
