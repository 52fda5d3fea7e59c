"""The certificate: what it reports of each operand, and that it covers what is really lost."""

from dataclasses import replace
from fractions import Fraction
from operator import mul
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.reference.reference import multiply
from mixpert_py.runtime.splitter import Digits
from tests.runtime.emulations import EMULATIONS
from tests.runtime.families import FAMILIES


@pytest.mark.parametrize(("name", "bits"), [("int8x1", 7), ("int8x3", 15), ("int8x6", 23)])
def test_losses_are_relative_to_the_rows_own_norm(name: str, bits: int) -> None:
    """√(1/12) of a unit, 2^-bits of a largest entry of 2.2 to 4.5 root mean squares."""
    low, high = (2.0**-bits * peak / np.sqrt(12) for peak in (2.0, 5.0))
    a, b = (
        x.astype(np.float32) for x in FAMILIES["scaled rows"](np.random.default_rng(1), 30, 256, 20)
    )
    certificate = multiply(a, b, EMULATIONS[name]).certificate
    assert certificate.left_loss.shape == (30,)
    assert certificate.right_loss.shape == (20,)
    for loss in (certificate.left_loss, certificate.right_loss):
        assert low < loss.min() <= loss.max() < high


def test_exact_operands_lose_nothing() -> None:
    a, b = FAMILIES["integers"](np.random.default_rng(2), 9, 40, 8)
    certificate = multiply(a, b, EMULATIONS["int8x10"]).certificate
    assert not certificate.left_loss.any()
    assert not certificate.right_loss.any()
    assert certificate.bound().max() < 1e-11
    fitted = multiply(a + 2.0**-13, b, EMULATIONS["int8x6"]).certificate
    assert 0 < fitted.left_loss.min() <= fitted.left_loss.max() < 2.0**-22  # in units that follow 9
    assert not fitted.right_loss.any()  # two digits hold small integers


def test_zero_rows_have_no_bound_to_speak_of() -> None:
    a, b = np.zeros((3, 50)), np.ones((50, 4))
    certificate = multiply(a, b, EMULATIONS["int8x6"]).certificate
    assert not certificate.left_loss.any()
    assert certificate.bound().max() <= 1e-300


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


def test_norms_that_overflow_bound_nothing() -> None:
    a = np.full((2, 8), 1e308)
    a[1] = 1
    b = np.zeros((8, 2))
    b[:, 1] = 2.0**-40
    bound = multiply(a, b, EMULATIONS["int8x6"]).certificate.bound()
    assert np.isposinf(bound[0]).all()
    assert (bound[1] < 1e-15).all()


def exactly(a: Any, b: Any) -> list[list[Fraction]]:
    columns = [[Fraction(float(y)) for y in column] for column in b.T]
    rows = [[Fraction(float(x)) for x in row] for row in a]
    return [[sum(map(mul, row, column), Fraction()) for column in columns] for row in rows]


def is_covered(a: Any, b: Any, name: str, like: Any = None) -> bool:
    """Whether the certificate's bound holds, in exact arithmetic. like: see `multiply`."""
    product = multiply(a, b, EMULATIONS[name], like=like)
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
