"""Logarithmic axes."""

from itertools import pairwise
from math import inf, log10, nan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixpert_py.tuner.report.scale import MAX_TICKS, LogScale, apart, tick_text

VALUES = st.lists(st.floats(1e-300, 1e300), min_size=1, max_size=5)


@settings(deadline=None)
@given(VALUES)
def test_every_value_lies_on_the_axis_in_order(values: list[float]) -> None:
    scale = LogScale.of(values, 100.0, 0.0)
    places = [scale(value) for value in sorted(values)]
    assert all(0 < place < 100 for place in places)
    assert all(one >= other for one, other in pairwise(places))


@settings(deadline=None)
@given(VALUES)
def test_there_are_ticks_to_read_it_by(values: list[float]) -> None:
    scale = LogScale.of(values, 0.0, 100.0)
    ticks = scale.ticks()
    assert 1 <= len(ticks) <= MAX_TICKS
    assert all(scale.low <= log10(tick) <= scale.high for tick in ticks)


@pytest.mark.parametrize("values", [[], [0.0], [nan, inf, -1.0]])
def test_without_a_value_there_is_an_axis_around_one(values: list[float]) -> None:
    assert LogScale.of(values, 0.0, 100.0)(1.0) == pytest.approx(50.0)


@pytest.mark.parametrize(
    ("values", "ticks"),
    [([1e-8, 1e-4], [1e-8, 1e-7, 1e-6, 1e-5, 1e-4]), ([1.5, 9.0], [2, 5, 10]), ([2.0], [1.5, 2])],
)
def test_ticks(values: list[float], ticks: list[float]) -> None:
    assert LogScale.of(values, 0.0, 1.0).ticks() == pytest.approx(ticks)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e-5, "1e-5"),
        (0.2, "0.2"),
        (500, "500"),
        (2e4, "20,000"),
        (2**18, "262,144"),
        (2e8, "2e8"),
        (1.5e-7, "1.5e-7"),
    ],
)
def test_tick_text(value: float, text: str) -> None:
    assert tick_text(value) == text


def test_ticks_without_room_have_no_text() -> None:
    ticks = [(0.0, "1,024"), (20.0, "2,048"), (48.0, "4,096"), (70.0, "8")]
    assert [text for _, text in apart(ticks, 7.0)] == ["1,024", "", "4,096", ""]
    assert apart(ticks, 1.0) == ticks
