"""On a GPU, too, what fits does not overflow for what digits and slices round up."""

from typing import Any

import numpy as np
import pytest

from mixpert_py import matmul
from mixpert_py.runtime.schemes.fp16x3 import FP16X3
from tests.runtime.certified import multiply
from tests.runtime.emulations import EMULATIONS

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy", reason="CuPy is not installed")

LARGEST = {"f": float(np.finfo(np.float32).max), "d": float(np.finfo(np.float64).max)}


@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("name", [*EMULATIONS, "faithful"])
@pytest.mark.parametrize(("m", "n"), [(1, 1), (70, 40)])
def test_the_largest_number(name: str, dtype: str, m: int, n: int) -> None:
    a, b = cupy.full((m, 1), LARGEST[dtype], dtype), cupy.ones((1, n), dtype)
    for x, y in ((a, b), (-b.T, a.T)):
        value = matmul(x, y, scheme=name, backend="cuda").get()
        bound = multiply(x.get(), y.get(), EMULATIONS.get(name, FP16X3)).certificate.bound()
        assert (abs(value.astype("d") - (x @ y).get()) <= 2 * bound).all()
    assert (matmul(a, 2 * b, scheme=name, backend="cuda") == np.inf).all()


@pytest.mark.parametrize("name", [*EMULATIONS, "faithful"])
@pytest.mark.parametrize("stack", [(), (3,)])
def test_sums_near_the_largest_number(name: str, stack: Any) -> None:
    rng = np.random.default_rng(4)
    for m, k, n in ((12, 1, 10), (12, 7, 10), (40, 40, 70), (130, 600, 140)):
        a, b = rng.standard_normal((*stack, m, k)), rng.standard_normal((*stack, k, n))
        b *= LARGEST["f"] * (1 - 2.0**-16) / (abs(a) @ abs(b)).max(axis=-2, keepdims=True)
        a, b = (cupy.asarray(x.astype(np.float32)) for x in (a, b))
        for x, y in ((a, b), (b.swapaxes(-1, -2), a.swapaxes(-1, -2))):
            assert cupy.isfinite(matmul(x, y, scheme=name, backend="cuda")).all()
