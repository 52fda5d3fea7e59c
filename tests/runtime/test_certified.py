"""Stated bounds cover what products really lose, in exact arithmetic, and follow rows."""

from dataclasses import replace
from fractions import Fraction
from operator import mul
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.splitter import Digits
from tests.runtime.certified import multiply
from tests.runtime.emulations import EMULATIONS
from tests.runtime.families import FAMILIES


def test_bound_follows_rows_and_columns() -> None:
    """It scales with A(i,:) and B(:,j), and not with their neighbours."""
    a, b = FAMILIES["normal"](np.random.default_rng(3), 12, 200, 10)
    bound = multiply(a, b, EMULATIONS["int8x6"]).certificate.bound()
    a[3] *= 2.0**30
    b[:, 7] *= 2.0**-20
    scaled = multiply(a, b, EMULATIONS["int8x6"]).certificate.bound()
    bound[3] *= 2.0**30
    bound[:, 7] *= 2.0**-20
    np.testing.assert_allclose(scaled, bound, rtol=1e-9)


def test_bound_is_reached_when_errors_agree() -> None:
    """Constant operands: every element loses the same, and no two losses cancel."""
    a, b = np.full((2, 128), 1 + 0.4 / 128), np.full((128, 2), 1.0)
    product = multiply(a, b, EMULATIONS["int8x1"])
    error = np.abs(product.value - a @ b)
    bound = product.certificate.bound()
    assert (error <= bound).all()
    assert (bound <= 1.05 * error).all()


def exactly(a: Any, b: Any) -> list[list[Fraction]]:
    columns = [[Fraction(float(y)) for y in column] for column in b.T]
    rows = [[Fraction(float(x)) for x in row] for row in a]
    return [[sum(map(mul, row, column), Fraction()) for column in columns] for row in rows]


def is_covered(a: Any, b: Any, name: str) -> bool:
    """Whether the bound holds, in exact arithmetic."""
    product = multiply(a, b, EMULATIONS[name])
    bound = product.certificate.bound()
    return all(
        abs(Fraction(float(product.value[i, j])) - exact) <= Fraction(float(bound[i, j]))
        for i, row in enumerate(exactly(a, b))
        for j, exact in enumerate(row)
        if np.isfinite(bound[i, j]) and np.isfinite(product.value[i, j])
    )


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("name", EMULATIONS)
def test_norms_of_subnormal_rows_are_not_rounded_down(name: str, swapped: bool) -> None:
    a, b = np.full((1, 2), 5e-324), np.full((2, 1), 2.0**40 * (1 + 2.0**-22 / 3))
    assert is_covered(*(b.T, a.T) if swapped else (a, b), name)


@pytest.mark.parametrize("name", EMULATIONS)
def test_subnormal_rows_times_large_columns(name: str) -> None:
    rng = np.random.default_rng(5)
    for k in (1, 2, 3, 7):
        a = rng.integers(1, 60, (3, k)) * 5e-324 * rng.choice([-1, 1], (3, k))
        b = rng.standard_normal((k, 4)) * 2.0 ** rng.integers(0, 1000, (1, 4))
        assert is_covered(a, b, name)
        assert is_covered(b.T, a.T, name)


def test_what_both_operands_lose_meets() -> None:
    """All small entries are rounded up by two thirds of themselves: what A's slices hold is larger
    than A, and so is their product with what B loses.
    """
    k, scheme = 1 << 17, EMULATIONS["int8x1"]
    bare = Digits(1, block=None)
    a = np.full((1, k), 0.6)
    b = np.full((k, 1), 0.6)
    a[0, 0] = b[1, 0] = 127
    made = multiply(a, b, replace(scheme, left=bare, right=bare), rule="none")
    assert made.value[0, 0] == k - 2 + 2 * 127
    assert abs(made.value - a @ b) <= made.certificate.bound()
