"""The part of inputs that may be over the budget where none of those drawn was."""

import pytest

from mixpert_py.tuning.hold_out import highest_rate


@pytest.mark.parametrize(
    ("inputs", "percent"),
    [(0, 100.0), (1, 95.0), (29, 9.8), (59, 5.0), (299, 1.0)],  # 59 and 299: of Wilks (1941)
)
def test_known_bounds(inputs: int, percent: float) -> None:
    assert 100 * highest_rate(inputs) == pytest.approx(percent, abs=0.05)


@pytest.mark.parametrize("tightened", range(4))
@pytest.mark.parametrize("inputs", [1, 10, 59])
def test_a_higher_rate_would_have_shown(inputs: int, tightened: int) -> None:
    rate = highest_rate(inputs, tightened)
    assert (1 - rate) ** inputs == pytest.approx(0.05 / 2**tightened)
