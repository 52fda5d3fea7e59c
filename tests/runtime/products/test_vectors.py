"""`matvec`, `vecmat` and `vecdot`: what NumPy makes, and the scheme where one is in force."""

from functools import partial
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.products.inner import matvec, vecdot, vecmat
from mixpert_py.runtime.tracing.trace import Trace
from tests.runtime.operands import OPERANDS, outcome, same
from tests.runtime.without_gpu import FORCES, SITE
from tests.runtime.without_gpu import no_gpu as no_gpu

RNG = np.random.default_rng(0)
SHAPES = [
    (matvec, "matvec", (4, 6), (6,)),
    (matvec, "matvec", (3, 4, 6), (2, 1, 6)),
    (vecmat, "vecmat", (6,), (6, 4)),
    (vecmat, "vecmat", (3, 6), (3, 6, 4)),
    (vecdot, "vecdot", (6,), (6,)),
    (vecdot, "vecdot", (2, 6), (6,)),
]
pytestmark = pytest.mark.skipif(not hasattr(np, "matvec"), reason="they came with NumPy 2.2")


def operands(one: tuple[int, ...], other: tuple[int, ...], dtype: str) -> Any:
    values = (RNG.standard_normal((2, *shape)) for shape in (one, other))
    return [(x[0] + 1j * x[1] if dtype == "complex128" else x[0]).astype(dtype) for x in values]


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128", "int64"])
@pytest.mark.parametrize(("product", "name", "one", "other"), SHAPES)
def test_as_numpy(product: Any, name: str, one: Any, other: Any, dtype: str) -> None:
    native = getattr(np, name)
    a, b = operands(one, other, dtype)
    wanted = native(a, b)
    trace = Trace()
    with use(Context(scheme="int8x3", backend="reference", trace=trace)):
        result = product(a, b, native=native, site=SITE)
    assert type(result) is type(wanted)
    assert result.shape == wanted.shape
    assert result.dtype == wanted.dtype
    bound = 1e-3 * np.linalg.norm(a) * np.linalg.norm(b)
    error = np.abs(result - wanted).max()
    if dtype == "int64":
        assert error == 0
    else:
        assert 0 < error < bound
        assert trace.sites[SITE].schemes == {"int8x3": 1}


@pytest.mark.parametrize("context", FORCES)
@pytest.mark.parametrize(("product", "name", "one", "other"), SHAPES)
def test_a_call_that_passes_is_the_native_call(
    product: Any, name: str, one: Any, other: Any, context: str
) -> None:
    native = getattr(np, name)
    with use(FORCES[context]()):
        for pair in (operands(one, other, "float64"), operands(one, other[::-1], "float64")):
            for _ in range(2):
                wanted, _ = outcome(native, *pair)
                result, _ = outcome(partial(product, native=native, site=SITE), *pair)
                assert same(result, wanted)


@pytest.mark.parametrize(("product", "name", "one", "other"), SHAPES[::2])
def test_whatever_the_operands_are(product: Any, name: str, one: Any, other: Any) -> None:
    native, (a, b) = getattr(np, name), operands(one, other, "float64")
    with use(Context(scheme="int8x3", backend="reference")):
        for x in OPERANDS.values():
            for pair in ((x, b), (a, x)):
                if isinstance(x, np.ndarray) and type(x) is np.ndarray and x.dtype.kind in "fc":
                    continue  # may take the scheme
                wanted, _ = outcome(native, *pair)
                result, _ = outcome(partial(product, native=native, site=SITE), *pair)
                assert same(result, wanted)
