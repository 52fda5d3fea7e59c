"""Floating-point slices against NumPy's own FP16 and against bit arithmetic."""

import numpy as np
import pytest

from mixpert_py.runtime.reference.slices import Packed
from mixpert_py.runtime.reference.slices import into_floats as split
from mixpert_py.runtime.splitter import BF16, FP16, TF32, FloatSlices
from tests.runtime.families import FAMILIES, Array

IN_RANGE = ["normal", "spread 1", "half's low range", "below half's range", "ties", "integers"]


def parts(packed: Packed, splitter: FloatSlices) -> Array:
    """(count, rows, k) float32 from one chunk."""
    rows = packed.slices.shape[1]
    return packed.slices.reshape(rows, splitter.count, -1).transpose(1, 0, 2)


def operand(family: str, dtype: type) -> Array:
    return FAMILIES[family](np.random.default_rng(1), 30, 60, 1)[0].astype(dtype)


@pytest.mark.parametrize("family", IN_RANGE)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_half_rounds_as_numpy_does(family: str, dtype: type) -> None:
    x, splitter = operand(family, dtype), FloatSlices(FP16, 2)
    high, low = parts(split(x, splitter, 60, 60), splitter)
    np.testing.assert_array_equal(high, x.astype(np.float16))
    rest = x.astype(np.float64) - high
    np.testing.assert_array_equal(low, rest.astype(np.float16))


@pytest.mark.parametrize("family", IN_RANGE)
def test_truncation_never_grows(family: str) -> None:
    x, splitter = operand(family, np.float64), FloatSlices(FP16, 1, rounding="zero")
    (cut,) = parts(split(x, splitter, 60, 60), splitter)
    nearest = x.astype(np.float16)
    towards_zero = np.where(
        np.abs(nearest.astype(np.float64)) > np.abs(x),
        np.nextafter(nearest, np.float16(0)),
        nearest,
    )
    np.testing.assert_array_equal(cut, towards_zero)


@pytest.mark.parametrize(("element", "spare"), [(BF16, 16), (TF32, 13)])
@pytest.mark.parametrize("family", ["normal", "spread 4", "ties", "scaled inside"])
def test_wide_elements_round_to_nearest_even(element: object, spare: int, family: str) -> None:
    assert element in (BF16, TF32)
    splitter = FloatSlices(BF16 if element == BF16 else TF32, 1)
    x = operand(family, np.float32)
    bits = x.view(np.uint32).astype(np.uint64)
    half = (1 << (spare - 1)) - 1 + (bits >> spare & 1)
    expected = ((bits + half) >> spare << spare).astype(np.uint32).view(np.float32)
    (value,) = parts(split(x, splitter, 60, 60), splitter)
    np.testing.assert_array_equal(value, expected)


def test_rows_beyond_the_range_leave() -> None:
    x = np.ones((4, 5))
    x[1, 1], x[2, 2], x[3, 3] = 65504.0, 65505.0, np.inf
    packed = split(x, FloatSlices(FP16, 1), 5, 5)
    assert packed.outlier[:, 0].tolist() == [False, False, True, False]
    assert packed.nonfinite.tolist() == [False, False, False, True]
    assert not packed.slices[:, 2:].any()
