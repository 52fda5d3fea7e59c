"""Digits: exact to the last, as the definition says, for every sign, tie and exponent."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from mixpert_py.runtime.digits import split
from mixpert_py.runtime.packed import Packed
from mixpert_py.runtime.splitter import Digits
from tests.runtime.families import FAMILIES, Array

SPLITTERS = {
    "int8x1": Digits(1),
    "int8x3": Digits(2),
    "int8x6": Digits(3),
    "int8x10": Digits(4),
    "mixpert-IV": Digits(3, 7, 3, 16, 32),
    "mixpert-II, A": Digits(2, 7, 3, 16, 32),
    "mixpert-full, B": Digits(4, 7, 4, 8, 32),
}


def rebuilt(packed: Packed, splitter: Digits, k: int, block: int) -> Array:
    """Σ d_p · 2^(e − 7 − width · p) in float64, from slices laid out for the engine."""
    rows = packed.slices.shape[1]
    slices = packed.slices.transpose(1, 2, 0, 3).reshape(rows, splitter.count, -1)
    slices = slices.astype(np.float64)
    weights = 2.0 ** (-splitter.width * np.arange(splitter.count))
    value = np.einsum("rpk,p->rk", slices, weights)
    return np.ldexp(value, np.repeat(packed.exponents, block, axis=1))[:, :k]


@pytest.mark.parametrize("name", SPLITTERS)
@pytest.mark.parametrize("family", ["normal", "spread 4", "subnormal", "ties", "integers"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_digits_rebuild_what_was_rounded(name: str, family: str, dtype: type) -> None:
    """Every element, rounded to nearest even at its block's last digit, then cut to the slices."""
    splitter, k = SPLITTERS[name], 200
    block = splitter.block or k
    x = FAMILIES[family](np.random.default_rng(1), 37, k, 1)[0].astype(dtype)
    packed = split(x, splitter, min(block, 32), block, rule="none")
    unit = np.repeat(packed.exponents + 7 - splitter.shift, block, axis=1)[:, :k]
    integers = np.rint(np.ldexp(x.astype(np.float64), -unit))
    cut = 1 << splitter.width * (splitter.digits - splitter.count)
    integers = np.sign(integers) * (np.abs(integers) // cut * cut)
    np.testing.assert_array_equal(rebuilt(packed, splitter, k, block), np.ldexp(integers, unit))


@pytest.mark.parametrize("name", SPLITTERS)
def test_slices_are_bytes(name: str) -> None:
    splitter = SPLITTERS[name]
    x = FAMILIES["normal"](np.random.default_rng(2), 64, 256, 1)[0].astype(np.float32)
    slices = split(x, splitter, 32, splitter.block or 256).slices
    low, high = (-128, 127) if splitter.width == 8 else (-127, 127)
    assert slices.min() >= low
    assert slices.max() <= high
    assert (slices == np.rint(slices)).all()


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from([1, 2, 3, 4]),
    arrays.arrays(
        np.float32,
        st.tuples(st.integers(1, 3), st.integers(1, 9)),
        elements=st.floats(width=32, allow_nan=False, allow_infinity=False),
    ),
)
def test_digits_by_definition(count: int, x: Array) -> None:
    """q = RN(x · 2^(8s − 1 − e)); from its end d = ((q + 128) mod 256) − 128, q ← (q − d) / 256."""
    packed = split(x, Digits(count), x.shape[1], x.shape[1], rule="none")
    slices = packed.slices.reshape(len(x), count, x.shape[1])
    for row, exponent, digits in zip(x, packed.exponents[:, 0] + 7, slices, strict=True):
        largest = float(np.abs(row).max())
        e = int(np.frexp(largest)[1])
        top = 127 * (256**count - 1) // 255
        e += bool(np.rint(np.ldexp(largest, 8 * count - 1 - e)) > top)
        assert exponent == e
        for value, column in zip(row, digits.T, strict=True):
            q = int(np.rint(np.ldexp(float(value), 8 * count - 1 - e)))
            for digit in column[::-1]:
                d = (q + 128) % 256 - 128
                assert digit == d
                q = (q - d) // 256
            assert q == 0


@pytest.mark.parametrize("largest", [127.4 / 128, 127.6 / 128, 1.0, -127.6 / 128])
def test_exponent_rises_where_rounding_needs_room(largest: float) -> None:
    x = np.array([[largest, 0.25]], np.float32)
    packed = split(x, Digits(1), 2, 2)
    assert packed.exponents[0, 0] + 7 == (1 if abs(largest) * 128 > 127.5 else 0)
    assert np.abs(packed.slices).max() <= 127


def test_tile_rounding_up_to_the_next_power_raises_the_exponent() -> None:
    x = np.full((16, 32), np.float32(2 - 2.0**-23))  # rounds to 2^21 units of 2^-20
    splitter = SPLITTERS["mixpert-IV"]
    packed = split(x, splitter, 32, 32)
    assert (packed.exponents + 7 == 2).all()
    assert (rebuilt(packed, splitter, 32, 32) == 2).all()


def test_rows_share_exponents_in_groups() -> None:
    x = FAMILIES["scaled rows"](np.random.default_rng(3), 40, 64, 1)[0].astype(np.float32)
    exponents = split(x, SPLITTERS["mixpert-IV"], 32, 32).exponents
    for start in (0, 16, 32):
        assert (exponents[start : start + 16] == exponents[start]).all()
    assert len(np.unique(split(x, Digits(3), 64, 64).exponents)) > 5


@pytest.mark.parametrize("name", SPLITTERS)
def test_norms_are_those_of_the_pieces(name: str) -> None:
    splitter = SPLITTERS[name]
    block = splitter.block or 128
    x = FAMILIES["spread 1"](np.random.default_rng(4), 33, 256, 1)[0].astype(np.float32)
    packed = split(x, splitter, 32, block, rule="none")
    wide = x.astype(np.float64)
    lost = np.linalg.norm(wide - rebuilt(packed, splitter, 256, block), axis=1)
    np.testing.assert_allclose(packed.measured.residual, lost, rtol=1e-4)
    np.testing.assert_allclose(packed.measured.norm, np.linalg.norm(wide, axis=1), rtol=1e-4)
    assert packed.measured.slices.shape == (splitter.count, 33)


def test_nonfinite_rows_are_zeros() -> None:
    x = np.ones((3, 8), np.float32)
    x[1, 2], x[2, 0] = np.nan, -np.inf
    packed = split(x, Digits(3), 8, 8)
    assert packed.nonfinite.tolist() == [False, True, True]
    assert not packed.slices[:, 1:].any()


@pytest.mark.parametrize("power", [0, -900, 900])
def test_blocks_of_zeros_do_not_widen_the_range(power: int) -> None:
    x = FAMILIES["normal"](np.random.default_rng(5), 6, 96, 1)[0]
    x[:, 32:64] = x[2] = x[:3, :32] = 0
    scaled = split(np.ldexp(x, power), Digits(3), 32, 32)
    plain = split(x, Digits(3), 32, 32)
    np.testing.assert_array_equal(scaled.slices, plain.slices)
    for ours, theirs in (
        (scaled.measured.norm, plain.measured.norm),
        (scaled.measured.residual, plain.measured.residual),
    ):
        np.testing.assert_array_equal(ours, np.ldexp(theirs, power))
    assert not scaled.outlier.any()
