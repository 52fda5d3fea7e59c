"""Every scheme's stated bound on every input family, and the semantics of a product."""

import numpy as np
import pytest

from mixpert_py.errors import ShapeError
from mixpert_py.runtime.reference.reference import multiply
from mixpert_py.runtime.scheme import Scheme
from tests.benchmarks.stress import Case, faults
from tests.every_check import sweep
from tests.runtime.emulations import EMULATIONS, with_block
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
        assert not [*faults(np, Case(0, scheme.name, *given), a, b, value)]


@every_scheme
def test_declared_error(scheme: Scheme) -> None:
    a, b = (x.astype(np.float32) for x in normal(np.random.default_rng(4), 64, 1024, 64))
    exact = a.astype(np.float64) @ b
    error = np.linalg.norm(multiply(a, b, scheme).value - exact) / np.linalg.norm(exact)
    assert error == pytest.approx(scheme.error, rel=0.1)


@pytest.mark.parametrize(
    ("name", "block", "errors"),  # at K = 1024 and 4096
    [
        ("int8x6", None, (3.9e-7, 4.6e-7)),  # normal entries peak higher in longer rows
        ("int8x6", 1024, (3.9e-7, 3.9e-7)),
        ("int8x6", 128, (3.0e-7, 3.2e-7)),
        ("int8x8", None, (1.9e-7, 2.0e-7)),
        ("int8x3", None, (7.5e-5, 8.8e-5)),
        ("int8x10", None, (6.2e-8, 10.9e-8)),  # promotions
        ("int8x10", 4096, (2.6e-8, 2.6e-8)),
        ("mixpert-IV", None, (8.2e-7, 8.7e-7)),
    ],
)
@pytest.mark.parametrize("long", [False, True])
def test_errors_as_designed(
    name: str, block: int | None, errors: tuple[float, float], long: bool
) -> None:
    k = 4096 if long else 1024
    a, b = (x.astype(np.float32) for x in normal(np.random.default_rng(5), 64, k, 64))
    exact = a.astype(np.float64) @ b
    value = multiply(a, b, with_block(EMULATIONS[name], block)).value
    error = np.linalg.norm(value - exact) / np.linalg.norm(exact)
    assert error == pytest.approx(errors[long], rel=0.07)


@every_scheme
def test_zeros_stay_zero(scheme: Scheme) -> None:
    """Where no two nonzero entries meet the product is exactly zero, as in Strassen's test."""
    a, b = (
        x.astype(np.float32) for x in FAMILIES["disjoint"](np.random.default_rng(7), 40, 96, 24)
    )
    value = multiply(a, b, scheme).value
    assert (value[:20, 12:] == 0).all()
    assert (multiply(np.zeros_like(a), b, scheme).value == 0).all()


@every_scheme
@pytest.mark.parametrize("shape", [(0, 4, 5), (3, 0, 2), (3, 4, 0), (0, 0, 0)])
def test_empty(scheme: Scheme, shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    for dtype in TYPES:
        value = multiply(np.ones((m, k), dtype), np.ones((k, n), dtype), scheme).value
        assert (value.shape, value.dtype, value.any()) == ((m, n), dtype, False)


@pytest.mark.parametrize("name", ["int8x6", "int8x10", "mixpert-full", "fp16x3", "bf16x9"])
@pytest.mark.parametrize(("dtype", "power"), [(np.float32, 100), (np.float64, 980)])
def test_scales_may_overflow_though_the_product_does_not(
    name: str, dtype: type, power: int
) -> None:
    a, b = (x.astype(dtype) for x in normal(np.random.default_rng(10), 20, 200, 20))
    expected = multiply(a, b, EMULATIONS[name]).value
    for sign in (power, -power):
        value = multiply(np.ldexp(a, sign), np.ldexp(b, -sign), EMULATIONS[name]).value
        np.testing.assert_array_equal(value, expected)


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
