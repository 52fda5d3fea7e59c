"""Every scheme's stated bound on every input family, and the semantics of a product."""

import numpy as np
import pytest

from mixpert_py.errors import ShapeError
from mixpert_py.runtime.reference.reference import multiply
from mixpert_py.runtime.scheme import Scheme
from tests.benchmarks.stress import Case, faults
from tests.every_check import sweep
from tests.runtime.emulations import EMULATIONS
from tests.runtime.families import FAMILIES, normal

SHAPES = [(1, 1, 1), (3, 7, 2), (17, 129, 9), (40, 300, 33)]
TYPES = [np.float32, np.float64]
every_scheme = pytest.mark.parametrize("scheme", EMULATIONS.values(), ids=EMULATIONS)


@every_scheme
@pytest.mark.parametrize("family", FAMILIES)
def test_stated_bound(scheme: Scheme, family: str) -> None:
    rng = np.random.default_rng(1)
    for (m, k, n), dtype in sweep(SHAPES, TYPES, together=1):
        a, b = (x.astype(dtype) for x in FAMILIES[family](rng, m, k, n))
        value = multiply(a, b, scheme).value
        assert value.dtype == dtype
        assert value.shape == (m, n)
        given = family, np.dtype(dtype).name, m, k, n, ((), ()), ("C", "C"), "", False
        assert not [*faults(Case(0, scheme.name, *given), a, b, value)]


@every_scheme
def test_declared_error(scheme: Scheme) -> None:
    a, b = (x.astype(np.float32) for x in normal(np.random.default_rng(4), 64, 1024, 64))
    exact = a.astype(np.float64) @ b
    error = np.linalg.norm(multiply(a, b, scheme).value - exact) / np.linalg.norm(exact)
    assert error == pytest.approx(scheme.error, rel=0.1)


def test_wrong_operands() -> None:
    ones = np.ones((2, 3), np.float32)
    with pytest.raises(ShapeError, match=r"\(2, 3\) by \(2, 3\)"):
        multiply(ones, ones, EMULATIONS["int8x6"])
    with pytest.raises(ShapeError, match=r"\(3,\)"):
        multiply(ones, ones[0], EMULATIONS["int8x6"])
    with pytest.raises(TypeError, match="int64"):
        multiply(ones.astype(np.int64), ones.T, EMULATIONS["int8x6"])


LARGEST = {"f": float(np.finfo(np.float32).max), "d": float(np.finfo(np.float64).max)}


@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("name", EMULATIONS)
def test_what_fits_does_not_overflow(name: str, dtype: str) -> None:
    """Digits of the largest number round up, beyond it."""
    largest = np.array([[LARGEST[dtype]]], dtype)
    for a, b in ((largest, np.ones((1, 1), dtype)), (-np.ones((1, 1), dtype), largest)):
        value = multiply(a, b, EMULATIONS[name]).value
        np.testing.assert_allclose(value, a @ b, rtol=4 * EMULATIONS[name].error)
    assert multiply(largest, np.full((1, 1), 2, dtype), EMULATIONS[name]).value == np.inf


@pytest.mark.parametrize("name", EMULATIONS)
def test_sums_near_the_largest_number(name: str) -> None:
    rng = np.random.default_rng(4)
    for k in (1, 2, 7, 40):
        a, b = rng.standard_normal((12, k)), rng.standard_normal((k, 10))
        b *= LARGEST["f"] * (1 - 2.0**-16) / (abs(a) @ abs(b)).max(axis=0)
        a, b = a.astype(np.float32), b.astype(np.float32)
        value = multiply(a, b, EMULATIONS[name]).value
        assert np.isfinite(value).all()
