"""Products of small integers: exact, as FP32 makes them, wherever FP32 holds the result."""

import numpy as np
import pytest

from mixpert_py.runtime.reference.reference import multiply
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes import emulation_of
from tests.runtime.emulations import EMULATIONS
from tests.runtime.families import Array

TWO = 32_639  # what two balanced digits hold
EXACT = {"int8x3": (127, TWO), "int8x6": (TWO, TWO), "int8x8": (TWO, TWO), "int8x10": (TWO, TWO)}


def integers(m: int, k: int, n: int, left: int, right: int, seed: int = 0) -> tuple[Array, Array]:
    """Integers up to ±left and ±right; every row and column reaches its bound."""
    rng = np.random.default_rng(seed)
    a, b = rng.integers(-left, left + 1, (m, k)), rng.integers(-right, right + 1, (k, n))
    a[np.arange(m), rng.integers(0, k, m)] = left
    b[rng.integers(0, k, n), np.arange(n)] = -right
    return a, b


def check(a: Array, b: Array, scheme: Scheme, dtype: type, block: int | None = None) -> None:
    product = multiply(a.astype(dtype), b.astype(dtype), scheme, block=block)
    assert product.outliers.fraction == 0
    assert product.value.dtype == dtype
    np.testing.assert_array_equal(product.value, (a @ b).astype(dtype))


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("k", [20, 100, 3000])
@pytest.mark.parametrize("block", [None, 64])
def test_integers_of_two_digits(name: str, swapped: bool, k: int, block: int | None) -> None:
    """In float64, which holds them all."""
    a, b = integers(13, k, 9, *EXACT[name])
    check(*((b.T, a.T) if swapped else (a, b)), EMULATIONS[name], np.float64, block)


@pytest.mark.parametrize("name", [*EXACT, "int8x1"])
@pytest.mark.parametrize(
    ("left", "right", "k"),
    [(1, 1, 5000), (9, 9, 1000), (127, 127, 1000), (127, 9, 4000), (127, 2000, 60)],
)
def test_small_integers_in_single_precision(name: str, left: int, right: int, k: int) -> None:
    if name != "int8x1" or right <= 127:
        check(*integers(13, k, 9, left, right, seed=1), EMULATIONS[name], np.float32)


@pytest.mark.parametrize("name", ["int8x6", "int8x8"])
def test_what_single_precision_does_not_hold_is_rounded(name: str) -> None:
    """Once per accumulator that is converted or added; nothing else is lost."""
    a, b = integers(30, 2000, 20, TWO, TWO, seed=3)
    value = multiply(a.astype(np.float32), b.astype(np.float32), EMULATIONS[name]).value
    error = np.abs(value - (a @ b).astype(np.float64))
    assert (error <= 8 * 2.0**-24 * (np.abs(a) @ np.abs(b)) / np.sqrt(2000)).all()


@pytest.mark.parametrize("k", [16, 500, 2500, 5200])
@pytest.mark.parametrize(("left", "right"), [(31, 127), (2048, 3)])
def test_faithful_keeps_integers(k: int, left: int, right: int) -> None:
    """One FP16 slice holds integers up to 2048."""
    check(*integers(40, k, 30, left, right, seed=4), emulation_of("faithful"), np.float32)
