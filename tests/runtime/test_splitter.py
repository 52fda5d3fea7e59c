"""What a splitter derives from its declaration."""

import pytest

from mixpert_py.runtime.splitter import FP16, Digits, FloatSlices


@pytest.mark.parametrize(
    ("splitter", "shift", "largest"),
    [
        (Digits(1), 7, 127),
        (Digits(3), 23, 0x7F7F7F),
        (Digits(4), 31, 0x7F7F7F7F),
        (Digits(3, 7), 21, 2**21 - 1),
        (Digits(2, 7, depth=3), 21, 2**21 - 1),
        (Digits(4, 7), 28, 2**28 - 1),
    ],
)
def test_integers_that_are_rounded_to(splitter: Digits, shift: int, largest: int) -> None:
    assert splitter.shift == shift
    assert splitter.largest == largest


@pytest.mark.parametrize(
    ("splitter", "power"),
    [
        (Digits(1), -2),
        (Digits(2), -10),
        (Digits(3), -18),
        (Digits(4), -18),
        (Digits(2, 7, depth=3), -18),
    ],
)
def test_loss_limit(splitter: Digits, power: int) -> None:
    assert splitter.loss_limit == 2.0**power


def test_range() -> None:
    assert FloatSlices(FP16, 1).range == 65504
    assert FloatSlices(FP16, 1, scaled=True).range == float("inf")
