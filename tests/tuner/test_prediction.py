"""Times of operators: measured, predicted, or estimated from the rung."""

import pytest

from mixpert_py.tuner.prediction import SAVED_BY_A_RUNG, TimeModel
from mixpert_py.tuner.records import Ladder, Measurement, Operator, Problem
from mixpert_py.tuner.search import SearchState

A = Operator("a", seconds=9.0, predicted={"x6": 2.0})
LADDER = Ladder((("native",), ("x6",), ("x3",)))


@pytest.fixture
def times() -> TimeModel:
    def measure(plan: object) -> Measurement:
        return Measurement(8.0, 0.0, {"a": 8.0})

    return TimeModel(
        SearchState(measure, Problem((A,), frozenset(), LADDER, 1.0, 0.0, {"a": "native"}))
    )


def test_the_profile_counts_until_runs_are_learned(times: TimeModel) -> None:
    assert times.seconds(A, "native") == 9.0
    for seconds in (8.0, 1.0, 7.0):
        run = Measurement(9.0, 0.0, {"a": seconds, "elsewhere": 1.0})
        times.learn({"a": "native", "elsewhere": "x6"}, run)
    assert times.seconds(A, "native") == 7.0


def test_predictions_count_for_what_was_not_run(times: TimeModel) -> None:
    assert times.seconds(A, "x6") == 2.0


@pytest.mark.parametrize(("share", "saves"), [(0.0, False), (0.009, False), (0.05, True)])
def test_what_outliers_take_is_taken_to_be_saved_a_rung_above(share: float, saves: bool) -> None:
    def measure(plan: object) -> Measurement:
        return Measurement(90.0, 0.0, {"a": 90.0})

    operator, ladder = Operator("a", seconds=90.0), Ladder((("native",), ("x8",), ("x6",), ("x3",)))
    times = TimeModel(
        SearchState(measure, Problem((operator,), frozenset(), ladder, 1.0, 0.0, {"a": "native"}))
    )
    guesses = {scheme: times.seconds(operator, scheme) for scheme in ("x8", "x6", "x3")}
    times.learn({"a": "x6"}, Measurement(9.0, 0.0, {"a": 9.0}, outliers={"a": share}))
    above = 9.0 * (1 - SAVED_BY_A_RUNG) if saves else guesses["x8"]
    found = [times.seconds(operator, scheme) for scheme in ("native", "x8", "x6", "x3")]
    assert found == [90.0, pytest.approx(above), 9.0, guesses["x3"]]
    times.learn({"a": "x8"}, Measurement(5.0, 0.0, {"a": 5.0}))
    assert times.seconds(operator, "x8") == 5.0


def test_a_rung_is_taken_to_save_its_part_where_nothing_is_known(times: TimeModel) -> None:
    assert times.seconds(A, "x3") == pytest.approx(8.0 * (1 - SAVED_BY_A_RUNG) ** 2)
