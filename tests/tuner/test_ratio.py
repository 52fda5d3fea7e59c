"""Ratios of times measured in turn: their intervals, and what these tell."""

import random
from collections.abc import Sequence
from math import exp, sqrt

import msgspec
import pytest

from mixpert_py.tuner.ratio import LOOKS, OF_RUNS, SMALLEST_GAIN, STUDENT, Pace, Ratio


def test_without_a_pair_nothing_is_known() -> None:
    assert Ratio.of([]) == Ratio()
    assert msgspec.json.decode(msgspec.json.encode(Ratio()), type=Ratio) == Ratio()
    assert Ratio.of([(0.0, 1.0), (1.0, 0.0)]).pace is Pace.UNCLEAR


def test_one_pair_has_a_mean_and_no_interval() -> None:
    assert Ratio.of([(2.0, 1.0)]) == Ratio(0.5)
    assert Ratio.of([(2.0, 1.0)]).pace is Pace.UNCLEAR


def test_the_interval_is_students() -> None:
    found = Ratio.of([(1.0, exp(-1.0)), (1.0, exp(-2.0)), (1.0, exp(-3.0))])
    half = 9.925 / sqrt(3)  # two degrees of freedom, a deviation of 1
    expected = (exp(-2), exp(-2 - half), exp(-2 + half))
    assert (found.mean, found.least, found.most) == pytest.approx(expected)


def test_of_eight_pairs_the_ends_are_trimmed_and_the_variance_is_winsorised() -> None:
    found = Ratio.of([(1.0, exp(x)) for x in (5.0, 2.0, 7.0, 0.0, 3.0, 1.0, 6.0, 4.0)])
    # Left are 2, 3, 4, 5; the variance is that of 2, 2, 2, 3, 4, 5, 5, 5: 2, by seven.
    half = 5.841 * sqrt(14 / 7) * sqrt(8) / 4
    expected = (exp(3.5), exp(3.5 - half), exp(3.5 + half))
    assert (found.mean, found.least, found.most) == pytest.approx(expected)


def test_a_few_disturbed_pairs_hardly_count() -> None:
    quiet = [(1.0, 0.8), (1.0, 0.82)] * 6
    found = Ratio.of([*quiet, (1.0, 50.0), (30.0, 0.8)])
    assert found.pace is Pace.FASTER
    assert found.mean == pytest.approx(Ratio.of(quiet).mean, rel=0.02)


def test_two_measurements_of_one_ratio_are_pooled_by_their_precision() -> None:
    wide, narrow = Ratio(0.7, 0.35, 1.4), Ratio(0.8, 0.8 / 1.1, 0.88)
    found = wide.pooled(narrow)
    assert found.pace is Pace.FASTER
    assert 0.78 < found.mean < 0.8
    assert found.most / found.least < narrow.most / narrow.least
    assert narrow.pooled(wide).mean == pytest.approx(found.mean)


def test_what_contradicts_a_measurement_is_not_pooled_with_it() -> None:
    other = Ratio(0.8, 0.78, 0.82)
    for found in (Ratio(1.0, 0.95, 1.05), Ratio(0.5, 0.45, 0.55)):
        assert found.pooled(other) == found


@pytest.mark.parametrize("disturbed", [0.0, 0.15])
@pytest.mark.parametrize(
    ("counts", "student"), [(LOOKS, STUDENT), ((3, 4), OF_RUNS), ((3, 6), OF_RUNS)]
)
def test_looking_again_calls_equal_times_faster_in_no_more_than_one_of_forty_trials(
    counts: Sequence[int], student: Sequence[float], disturbed: float
) -> None:
    draw = random.Random(5)

    def time() -> float:
        late = abs(draw.gauss(0, 1)) if draw.random() < disturbed else 0.0
        return exp(draw.gauss(0, 0.05) + late)

    # The smallest gain is where both verdicts are right; chance adds to 25 of 1000 there.
    for old, most in ((1.0, 25), (1 / (1 - SMALLEST_GAIN), 35)):
        faster = 0
        for _ in range(1000):
            pairs = [(old * time(), time()) for _ in range(counts[-1])]
            looks = [Ratio.of(pairs[:count], student).pace for count in counts]
            faster += next((p for p in looks if p is not Pace.UNCLEAR), None) is Pace.FASTER
        assert faster <= most


@pytest.mark.parametrize(
    ("ratio", "pace"),
    [
        (Ratio(0.5, 0.4, 0.6), Pace.FASTER),
        (Ratio(0.97, 0.96, 0.98), Pace.FASTER),
        (Ratio(0.98, 0.97, 0.99), Pace.UNCLEAR),
        (Ratio(0.985, 0.98, 0.99), Pace.NOT_FASTER),  # for certain, and by too little
        (Ratio(1.2, 1.1, 1.3), Pace.NOT_FASTER),
        (Ratio(1.0, 0.99, 1.01), Pace.NOT_FASTER),
        (Ratio(0.9, 0.7, 1.1), Pace.UNCLEAR),
        (Ratio(1.2, 0.7, 1.9), Pace.UNCLEAR),
    ],
)
def test_what_an_interval_tells(ratio: Ratio, pace: Pace) -> None:
    assert ratio.pace is pace
