"""Digits: exact to the last, as the definition says, for every sign, tie and exponent."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from mixpert_py.runtime.reference.slices import Packed
from mixpert_py.runtime.reference.slices import into_digits as split
from mixpert_py.runtime.splitter import Digits
from tests.every_check import examples
from tests.runtime.emulations import lossless
from tests.runtime.families import FAMILIES, Array

SPLITTERS = {
    "int8x1": Digits(1),
    "int8x3": Digits(2),
    "int8x6": Digits(3),
    "int8x10": Digits(4),
    "fitted int8x1": Digits(1, fitted=True),
    "fitted int8x3": Digits(2, block=None, fitted=True),
    "fitted int8x6": Digits(3, block=None, fitted=True),
    "fitted, short blocks": Digits(3, block=64, fitted=True),
    "fitted mixpert-II, A": Digits(2, 7, 3, 16, 32, fitted=True),
    "mixpert-IV": Digits(3, 7, 3, 16, 32),
    "mixpert-II, A": Digits(2, 7, 3, 16, 32),
    "mixpert-full, B": Digits(4, 7, 4, 8, 32),
}


def rebuilt(packed: Packed, splitter: Digits, k: int, block: int) -> Array:
    """Σ d_p · g · 2^(e − 15 − width · p) in float64, from slices laid out for the engine."""
    rows = packed.slices.shape[1]
    slices = packed.slices.transpose(1, 2, 0, 3).reshape(rows, splitter.count, -1)
    slices = slices.astype(np.float64)
    weights = 2.0 ** (-splitter.width * np.arange(splitter.count))
    value = np.einsum("rpk,p->rk", slices, weights)
    value *= np.repeat(packed.significands, block, axis=1)
    return np.ldexp(value, np.repeat(packed.exponents, block, axis=1))[:, :k]


@pytest.mark.parametrize("name", SPLITTERS)
@pytest.mark.parametrize("family", ["normal", "spread 4", "subnormal", "ties", "integers"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_digits_rebuild_what_was_rounded(name: str, family: str, dtype: type) -> None:
    """Every element, rounded to nearest even at its block's last digit, then cut to the slices.

    Fitted, it is multiplied by 256 / g first, in its own precision.
    """
    splitter, k = SPLITTERS[name], 200
    block = splitter.block or k
    x = FAMILIES[family](np.random.default_rng(1), 37, k, 1)[0].astype(dtype)
    chunk = math.gcd(block, 32)
    packed = split(x, lossless(splitter), chunk, block)
    unit = np.repeat(packed.exponents + 7 - splitter.shift, block, axis=1)[:, :k]
    g = np.repeat(256 * packed.significands, block, axis=1)[:, :k].astype(dtype)
    scaled = np.ldexp(x.astype(np.float64), -unit).astype(dtype)
    integers = np.rint(scaled * (dtype(256) / g)).astype(np.float64)
    assert np.abs(integers).max() <= splitter.largest
    cut = 1 << splitter.width * (splitter.digits - splitter.count)
    integers = np.sign(integers) * (np.abs(integers) // cut * cut)
    value = np.ldexp(integers * (g / dtype(256)), unit)
    np.testing.assert_array_equal(rebuilt(packed, splitter, k, block), value)


@pytest.mark.parametrize("name", SPLITTERS)
@pytest.mark.parametrize("family", ["normal", "uniform [0, 1)", "spread 4", "ties", "subnormal"])
@pytest.mark.parametrize(("dtype", "loss"), [(np.float32, 1.25), (np.float64, 0.5 + 2.0**-20)])
def test_an_entry_loses_no_more_than_stated(
    name: str, family: str, dtype: type, loss: float
) -> None:
    """In units, (g / 256) · 2^(e − shift); units are within 1.3 % of the block's largest entry."""
    splitter, k = SPLITTERS[name], 384
    block = splitter.block or k
    x = FAMILIES[family](np.random.default_rng(6), 64, k, 1)[0].astype(dtype)
    packed = split(x, lossless(splitter), math.gcd(block, 32), block)
    unit = np.repeat(packed.significands, block, axis=1)[:, :k].astype(np.float64)
    exponent = np.repeat(packed.exponents + 7, block, axis=1)[:, :k]
    unit = np.ldexp(unit, exponent - splitter.shift)
    cut = 1 << splitter.width * (splitter.digits - splitter.count)
    lost = np.abs(x.astype(np.float64) - rebuilt(packed, splitter, k, block))
    assert (lost <= unit * ((loss if splitter.fitted else 0.5) + cut - 1)).all()
    if splitter.fitted:
        tiles = np.abs(x).reshape(-1, splitter.group, k // block, block).max(axis=(1, 3))
        largest = np.repeat(np.repeat(tiles, splitter.group, 0), block, 1)
        ratio = np.ldexp(unit, splitter.shift) / largest.astype(np.float64)
        assert (ratio[largest > 0] > 256 / 257).all()
        assert (ratio[largest > 0] <= 1.0127).all()


@pytest.mark.parametrize("name", SPLITTERS)
def test_slices_are_bytes(name: str) -> None:
    splitter = SPLITTERS[name]
    x = FAMILIES["normal"](np.random.default_rng(2), 64, 256, 1)[0].astype(np.float32)
    slices = split(x, splitter, 32, splitter.block or 256).slices
    low, high = (-128, 127) if splitter.width == 8 else (-127, 127)
    assert slices.min() >= low
    assert slices.max() <= high
    assert (slices == np.rint(slices)).all()


@settings(max_examples=examples(150), deadline=None)
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
    packed = split(x, lossless(Digits(count)), x.shape[1], x.shape[1])
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


def to_nearest(x: Fraction, bits: int) -> Fraction:
    """x rounded to a significand of so many bits, ties to even; exponents are not limited."""
    if not x:
        return x
    power = Fraction(2) ** (math.frexp(float(x))[1] - bits)
    while abs(x / power) < 2 ** (bits - 1):
        power /= 2
    while abs(x / power) >= 2**bits:
        power *= 2
    return round(x / power) * power


@settings(max_examples=examples(150), deadline=None)
@given(st.sampled_from([1, 2, 3]), st.sampled_from([(np.float32, 24), (np.float64, 53)]), st.data())
def test_fitted_digits_by_definition(
    count: int, precision: tuple[type, int], data: st.DataObject
) -> None:
    """g = floor(RN(f · 257.25)) + 1; q = RN(RN(x · 2^(shift − e) · RN(256 / g))), exactly; but
    g = 256 and e as without fitting where two digits then hold the row.
    """
    dtype, bits = precision
    x = data.draw(
        arrays.arrays(
            dtype,
            st.tuples(st.integers(1, 3), st.integers(1, 9)),
            elements=st.floats(
                -(2.0**100), 2.0**100, width=dtype().itemsize * 8, allow_subnormal=bits == 24
            ),
        )
    )
    shift = 8 * count - 1
    packed = split(x, lossless(Digits(count, fitted=True)), x.shape[1], x.shape[1])
    slices = packed.slices.reshape(len(x), count, x.shape[1])
    for row, exponent, significand, digits in zip(
        x, packed.exponents[:, 0] + 7, packed.significands[:, 0], slices, strict=True
    ):
        largest = Fraction(float(np.abs(row).max()))
        if not largest:
            assert significand == 1
            assert not digits.any()
            continue
        e = math.frexp(largest)[1]
        g = math.floor(to_nearest(largest / Fraction(2) ** e * Fraction(1029, 4), bits)) + 1
        bare = e + (largest * Fraction(2) ** (shift - e) > 127 * (256**count - 1) // 255)
        last = Fraction(2) ** (bare - (7 if count == 1 else 15))
        if all(Fraction(float(value)) % last == 0 for value in row):
            e, g = bare, 256
        assert (exponent, 256 * significand) == (e, g)
        ratio = to_nearest(Fraction(256, g), bits)
        for value, column in zip(row, digits.T, strict=True):
            scaled = Fraction(float(value)) * Fraction(2) ** (shift - e)
            q = round(to_nearest(scaled * ratio, bits))
            assert abs(q) <= 127 * (256**count - 1) // 255
            assert sum(int(d) * 256**p for p, d in enumerate(column[::-1])) == q
            assert all(-128 <= d <= 127 for d in column)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_fitted_digits_never_overflow(count: int, dtype: type) -> None:
    """At every g, 129 … 258, the largest and smallest entry of this precision that has it."""
    steps = (np.arange(129, 258) / 257.25).astype(dtype)
    below, above = np.nextafter(steps, dtype(0)), np.nextafter(steps, dtype(1))
    ends = np.array([0.5, 1 - 2.0**-24], dtype)
    largest = np.concatenate([below, steps, above, ends])
    x = np.stack([largest, np.full_like(largest, 2.0**-40)], axis=1)  # so that no row is held
    splitter = Digits(count, fitted=True)
    packed = split(x, splitter, 2, 2)
    g = 256 * packed.significands
    assert (g.min(), g.max()) == (129, 258)
    bits = 24 if dtype is np.float32 else 53
    for entry, unit in zip(largest, g[:, 0], strict=True):
        product = to_nearest(Fraction(float(entry)) * Fraction(1029, 4), bits)
        assert unit == math.floor(product) + 1
    q = np.abs(rebuilt(packed, splitter, 2, 2)[:, :1]) / packed.significands * 2.0**splitter.shift
    assert q.max() <= splitter.largest
    assert q.min() >= 0.985 * splitter.largest  # filled


def test_what_underflows_is_not_held() -> None:
    for dtype in (np.float32, np.float64):
        info = np.finfo(dtype)
        x = np.array([[2.0 ** (info.maxexp - 1), info.smallest_subnormal, 0]], dtype)
        assert split(x, Digits(3, fitted=True), 3, 3).significands != 1
        assert split(x[:, :1], Digits(3, fitted=True), 1, 1).significands == 1
        assert split(x[:, 1:], Digits(3, fitted=True), 2, 2).significands == 1


def test_groups_are_held_as_one() -> None:
    splitter = Digits(2, 7, 3, 16, 32, fitted=True)
    x = np.random.default_rng(11).integers(-99, 100, (40, 64)).astype(np.float32)
    x[::16, ::32] = 2.0**13
    x[17, 60] = 0.25
    fits = split(x, splitter, 32, 32).significands != 1
    assert fits[16:32, 1].all()
    assert fits.sum() == 16


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


def test_nonfinite_rows_are_zeros() -> None:
    x = np.ones((3, 8), np.float32)
    x[1, 2], x[2, 0] = np.nan, -np.inf
    packed = split(x, Digits(3), 8, 8)
    assert packed.nonfinite.tolist() == [False, True, True]
    assert not packed.slices[:, 1:].any()
