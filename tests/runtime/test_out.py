"""`out=`: what takes the result of an emulated product, and what only NumPy writes to."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.api import matmul
from mixpert_py.runtime.reasons import Reason
from tests.runtime.operands import traced
from tests.runtime.without_gpu import no_gpu as no_gpu


def test_float32_takes_no_memory_beside_out() -> None:
    a, b, out = np.random.default_rng(4).standard_normal((3, 300, 300))
    wanted = matmul(a, b, scheme="float32")
    tracemalloc.start()
    try:
        assert matmul(a, b, scheme="float32", out=out) is out
        assert tracemalloc.get_traced_memory()[1] < out.nbytes / 4
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(out, wanted)
    assert matmul(a, b, scheme="float32", out=a) is a
    np.testing.assert_array_equal(a, wanted)


PLACES: dict[str, Callable[[], Any]] = {
    "C order": lambda: np.zeros((4, 4)),
    "Fortran": lambda: np.zeros((4, 4), order="F"),
    "a block": lambda: np.zeros((8, 8))[2:6, 1:5],
    "strides": lambda: np.zeros((8, 8))[::-2, ::2],
    "misaligned": lambda: np.zeros(129, np.uint8)[1:].view(float).reshape(4, 4),
    "float32": lambda: np.zeros((4, 4), np.float32),
}


@pytest.mark.parametrize("place", PLACES)
def test_np_matmul_writes_to_any_array_of_the_results_shape_and_type(place: str) -> None:
    a, b = np.random.default_rng(2).standard_normal((2, 4, 4))
    out = PLACES[place]()
    takes = place not in ("misaligned", "float32")
    result, ran, reason = traced(a, b, "int8x3", "reference", out=out, native=np.matmul)
    assert result is out
    assert (ran, reason) == (("int8x3", None) if takes else ("native", Reason.OUT))
    wanted = matmul(a, b, scheme="int8x3" if takes else "native", backend="reference")
    np.testing.assert_array_equal(out, wanted.astype(out.dtype))


@pytest.mark.parametrize(("native", "step"), [(np.matmul, 2), (np.dot, 1)])
@pytest.mark.parametrize("vector", [False, True])
def test_stacks_of_products_have_an_out(native: Any, step: int, vector: bool) -> None:
    stack = np.random.default_rng(2).standard_normal((3, 4, 4))
    a, b = (stack[0, 0], stack) if vector else (stack, stack[0])
    out = np.zeros((3 * step, *native(a, b).shape[1:]))[::step]
    assert traced(a, b, "int8x3", "reference", out=out, native=native)[1:] == ("int8x3", None)
    np.testing.assert_allclose(out, native(a, b), atol=1e-3)
    np.testing.assert_array_equal(out, matmul(a, b, scheme="int8x3", backend="reference"))
