"""The remainder theorem in parts: against Python's integers."""

import math
import random
from fractions import Fraction
from itertools import combinations

import pytest

from mixpert_py.runtime.schemes.residues import (
    MODULI,
    MOST_MODULI,
    PART_BITS,
    fewest_moduli,
    theorem,
)
from mixpert_py.runtime.splitter import Residues


def test_moduli_have_no_common_factors() -> None:
    assert len(MODULI) == MOST_MODULI
    assert all(math.gcd(p, q) == 1 for p, q in combinations(MODULI, 2))
    assert list(MODULI) == sorted(MODULI, reverse=True)
    left_out = set(range(MODULI[-1], 257)) - set(MODULI)
    assert all(any(math.gcd(p, q) > 1 for q in MODULI if q > p) for p in left_out)


@pytest.mark.parametrize("count", range(1, MOST_MODULI + 1))
def test_parts_are_the_weights(count: int) -> None:
    moduli = MODULI[:count]
    known, product = theorem(moduli), math.prod(moduli)
    assert sum(map(int, known.product)) == product
    for parts, p in zip(known.weights, moduli, strict=True):
        weight = sum(map(int, parts))
        assert 2 * abs(weight) <= product
        assert all(weight % q == (q == p) for q in moduli)


@pytest.mark.parametrize("count", range(1, MOST_MODULI + 1))
def test_sums_of_parts_are_exact(count: int) -> None:
    """The largest residues, and the quotient that these may have, less than 2^53 units."""
    known = theorem(MODULI[:count])
    for place, unit in enumerate(known.units):
        assert unit == 2.0 ** (PART_BITS * (len(known.units) - 1 - place))
        products = sum(p // 2 * abs(parts[place]) for p, parts in zip(MODULI, known.weights))  # noqa: B905 (the first moduli)
        quotient = sum(p // 2 for p in MODULI[:count]) // 2 + 1
        assert (products + quotient * abs(known.product[place])) / unit < 2**53


@pytest.mark.parametrize("count", [7, 8, 12, 18])
@pytest.mark.parametrize("k", [1, 100, 1 << 17, 1 << 23])
def test_rows_within_the_limit_stay_within_half_of_the_product(count: int, k: int) -> None:
    """Their norm, √K/2 more by rounding, squared: that bounds |Σ a'b'|."""
    splitter = Residues(MODULI[:count])
    root = math.isqrt(int(splitter.limit(k)))
    assert Fraction(2 * root + 1, 2) + Fraction(math.isqrt(k), 2) <= math.isqrt(splitter.largest)
    assert splitter.largest << 21 <= splitter.product * (2**20 - 1)
    assert 0.99 < splitter.limit(k) / 4**splitter.bits < 1


def test_the_fewest_moduli() -> None:
    """No fewer would tell the largest sum from another."""
    rng = random.Random(0)
    for _ in range(2000):
        a, b, k = (round(2 ** rng.uniform(0, bits)) for bits in (54, 54, 34))
        left, right = rng.choice([(-a, a // 2), (-a // 2, a)]), (0, b)
        found, largest = fewest_moduli(left, right, k), k * a * b
        if found is None:
            assert largest > Residues(MODULI).largest or max(a, b) > 2**53
        elif len(found) > 1:
            assert 2 * largest < math.prod(found)
            assert len(found) == 2 or largest > Residues(found[:-1]).largest
            assert max(a, b) > 127 or largest >= 2**31
        else:
            assert largest < 2**31
            assert max(a, b) < 256
