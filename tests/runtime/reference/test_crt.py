"""`crt`: as many moduli as float64 operands need to be multiplied as accurately as FP64 does."""

from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.reference.emulation import multiply
from mixpert_py.runtime.reference.residues import rows_of
from mixpert_py.runtime.request import Request
from mixpert_py.runtime.schemes.crt import FEWEST, LEAST, UNFIT, density, moduli_for
from mixpert_py.runtime.schemes.residues import MODULI
from mixpert_py.runtime.splitter import Residues
from tests.benchmarks.families import spread
from tests.runtime.families import EVERYDAY, FAMILIES

ALL = {**FAMILIES, **EVERYDAY}
M, K, N = 40, 1000, 30
UNIT64 = 2.0**-53

# How many moduli operands of K = 1000 take; all others are multiplied natively.
NEEDED = {
    **dict.fromkeys(("normal", "uniform [0, 1)", "uniform [-1, 1)", "scaled rows"), 14),
    **dict.fromkeys(("integers", "constant", "low-rank"), 14),
    **dict.fromkeys(("crowded", "log-normal 1", "spread 0.5", "softmax 1"), 15),
    **dict.fromkeys(("subnormal-rich",), 15),
}


def operands(family: str, seed: int = 0) -> Any:
    return ALL[family](np.random.default_rng(seed), M, K, N)


def needed(a: Any, b: Any) -> int | None:
    return moduli_for(rows_of(a), rows_of(b.T))


def made(a: Any, b: Any) -> Any:
    return multiply(Request(a, b, "crt"))


@pytest.mark.parametrize("family", ALL)
def test_moduli_of_every_family(family: str) -> None:
    assert needed(*operands(family)) == NEEDED.get(family)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("family", NEEDED)
def test_errors_are_below_the_bound_and_those_of_float64(family: str, seed: int) -> None:
    a, b = operands(family, seed)
    product = made(a, b)
    if product is Reason.SPREAD:  # other numbers of the same family
        return
    x, y = a.astype(np.longdouble), b.astype(np.longdouble)
    exact, size = x @ y, abs(x) @ abs(y)
    error = abs(product.value - exact)
    assert (error <= (1 + 5 * K**0.5) * UNIT64 * size).all()
    if family == "constant":
        return  # one sum, again and again: which of the two is closer to it is luck
    # Sums in pairs or blocks may round an exact product's last bit alone: that much is allowed.
    rounded = UNIT64 * np.linalg.norm(size.astype(float))
    native = np.linalg.norm((a @ b - exact).astype(float))
    assert np.linalg.norm(error.astype(float)) <= max(native, rounded)


def test_sixteen_moduli_for_skewed_rows() -> None:
    a, b = spread(0.95)(np.random.default_rng(0), M, 4 * K, N)
    assert needed(a, b) == 16
    x, y = a.astype(np.longdouble), b.astype(np.longdouble)
    allowed = (1 + 5 * (4 * K) ** 0.5) * UNIT64 * (abs(x) @ abs(y))
    assert (abs(made(a, b).value - x @ y) <= allowed).all()


def test_the_constant_of_the_bound() -> None:
    assert 2.2 / LEAST * 2.0 ** -Residues(MODULI[:FEWEST]).bits <= 5 * UNIT64


@pytest.mark.parametrize("family", ALL)
def test_density_is_a_bound_from_below(family: str) -> None:
    a, b = operands(family)
    norms = np.linalg.norm(a, axis=1)[:, None] * np.linalg.norm(b, axis=0)
    with np.errstate(all="ignore"):
        found = (abs(a) @ abs(b)) / norms
    plain = (norms > 0) & np.isfinite(norms)
    least = density(rows_of(a), rows_of(b.T))
    assert (found[plain] >= least * (1 - 1e-12)).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_native(value: float) -> None:
    a, b = operands("normal")
    a[3, 5] = value
    assert rows_of(a) == UNFIT
    assert made(a, b) is Reason.SPREAD


def test_integers_are_exact_however_sparse() -> None:
    rng = np.random.default_rng(0)
    a, b = ((rng.random(shape) < 0.01).astype(float) for shape in ((M, K), (K, N)))
    assert needed(a, b) is None
    np.testing.assert_array_equal(made(a, b).value, a.astype(int) @ b.astype(int))
    assert made(a, b * 0.5) is Reason.SPREAD
    assert made(a, b * 2.0**21) is Reason.SPREAD
