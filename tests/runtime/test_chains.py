"""What exact chains are held against: rational numbers."""

from fractions import Fraction

import numpy as np
import pytest

from tests.runtime.chains import chained, fma


def nearest(x: Fraction) -> np.float32:
    """x as float32, to nearest even, by whole numbers; no overflow."""
    if x == 0:
        return np.float32(0)
    size = abs(x)
    exponent = max((size.numerator.bit_length() - size.denominator.bit_length()) - 1, -126)
    if size >= Fraction(2) ** (exponent + 1):
        exponent += 1
    units = round(size / Fraction(2) ** (exponent - 23))  # ties to even
    value = np.ldexp(np.float64(units), exponent - 23)
    return np.float32(-value if x < 0 else value)


@pytest.mark.parametrize("power", [0, -60, -126, 30])
def test_rounded_once(power: int) -> None:
    draw = np.random.default_rng(0)
    x, y, z = (draw.standard_normal(2000).astype(np.float32) for _ in range(3))
    z = np.ldexp(z, draw.integers(-60, 60, 2000))
    x, z = np.ldexp(x, power), np.ldexp(z, power)
    wanted = [
        nearest(Fraction(float(p)) * Fraction(float(q)) + Fraction(float(r)))
        for p, q, r in zip(x, y, z, strict=True)
    ]
    np.testing.assert_array_equal(fma(x, y, z), wanted)


def test_what_float64_would_round_twice() -> None:
    small = 2.0**-12 * np.array([1 + 2.0**-23, 1 - 2.0**-23]).astype(np.float32)
    odd = np.float32(1 + 2.0**-23)  # and 2^-24 - 2^-70 more, just below the tie
    x, y = np.array([small[0], -small[0]]), np.array([small[1], small[1]])
    z = np.array([odd, -odd])
    np.testing.assert_array_equal(fma(x, y, z), z)
    assert ((x.astype(np.float64) * y + z).astype(np.float32) != z).all()


def test_what_is_not_finite() -> None:
    big, inf, nan = np.float32(3e38), np.float32(np.inf), np.float32(np.nan)
    x = np.array([big, -big, inf, inf, nan, big], np.float32)
    y = np.array([2, 2, 1, 0, 1, 1], np.float32)
    z = np.array([0, 0, -inf, 1, 1, -big], np.float32)
    np.testing.assert_array_equal(fma(x, y, z), [inf, -inf, nan, nan, nan, 0])


def test_chains() -> None:
    a, b = (np.random.default_rng(i).integers(-9, 9, (3, 4, 4)).astype(np.float32) for i in (0, 1))
    np.testing.assert_array_equal(chained(a, b), a @ b)
    np.testing.assert_array_equal(chained(a[0], b), a[0] @ b)
