"""`out=`: what takes the result of an emulated product, and what only NumPy writes to."""

import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.api import dot, matmul
from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.precision import precision
from mixpert_py.runtime.reasons import Reason
from tests.runtime.operands import SPELLINGS, Tagged, outcome, same, traced
from tests.runtime.without_gpu import no_gpu as no_gpu


@pytest.mark.parametrize("spelling", ["np.matmul", "np.dot", "x.dot"])
@pytest.mark.parametrize("by", ["position", "keyword"])
@pytest.mark.parametrize("scheme", [None, "int8x6"])
def test_out_is_native(spelling: str, by: str, scheme: str | None) -> None:
    native, ours = SPELLINGS[spelling]
    a = np.arange(16.0).reshape(4, 4)
    read_only = np.zeros((4, 4))
    read_only.flags.writeable = False
    outs: dict[str, Callable[[], Any]] = {
        "fits": lambda: np.full((4, 4), 7.0),
        "Fortran": lambda: np.zeros((4, 4), order="F"),
        "strided": lambda: np.zeros((8, 8))[::2, ::2],
        "float32": lambda: np.zeros((4, 4), np.float32),
        "int": lambda: np.zeros((4, 4), int),
        "shape": lambda: np.zeros((3, 3)),
        "dimensions": lambda: np.zeros((1, 4, 4)),
        "read-only": lambda: read_only,
        "subclass": lambda: np.zeros((4, 4)).view(Tagged),
        "tuple": lambda: (np.zeros((4, 4)),),
        "number": lambda: 5,
    }
    for name, make in outs.items():
        theirs, mine = make(), make()
        if by == "position":
            wanted, _ = outcome(native, a, a, theirs)
        else:
            wanted, _ = outcome(partial(native, out=theirs), a, a)
        with use(Context(scheme=scheme, backend="reference")):
            if by == "position":
                result, _ = outcome(ours, a, a, mine)
            else:
                result, _ = outcome(partial(ours, out=mine), a, a)
        if isinstance(wanted, np.ndarray):
            assert result is (mine[0] if isinstance(mine, tuple) else mine), name
            np.testing.assert_allclose(result, wanted, rtol=1e-5)
        else:
            assert same(result, wanted), name


@pytest.mark.parametrize("spelling", ["np.matmul", "np.dot", "x.dot"])
@pytest.mark.parametrize("operand", [0, 1])
def test_out_may_be_an_operand(spelling: str, operand: int) -> None:
    native, ours = SPELLINGS[spelling]
    pair = np.random.default_rng(3).standard_normal((2, 5, 5))
    wanted = native(*pair)
    for scheme in ("native", "int8x6"):
        a, b = pair.copy()
        out = (a, b)[operand]
        with precision(scheme, backend="reference"):
            assert ours(a, b, out) is out
        np.testing.assert_allclose(out, wanted, atol=1e-5)


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


def test_out_of_no_dimension_is_native() -> None:
    v, out = np.ones(3), np.zeros(())
    with precision("int8x6", backend="reference"):
        assert matmul(v, v, out=out) is out
        assert type(dot(v, v, out=out)) is np.float64


def test_an_operator_with_out_becomes_a_function() -> None:
    a, out = np.eye(2), np.zeros((2, 2))
    assert matmul(a, a, out=out) is matmul(a, a, out) is out


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


@pytest.mark.parametrize("place", [name for name in PLACES if name != "C order"])
def test_np_dot_wants_c_order(place: str) -> None:
    a = np.eye(4)
    with pytest.raises(ValueError, match="output array is not acceptable"):
        traced(a, a, "int8x3", "reference", out=PLACES[place](), native=np.dot)


@pytest.mark.parametrize(("native", "step"), [(np.matmul, 2), (np.dot, 1)])
@pytest.mark.parametrize("vector", [False, True])
def test_stacks_of_products_have_an_out(native: Any, step: int, vector: bool) -> None:
    stack = np.random.default_rng(2).standard_normal((3, 4, 4))
    a, b = (stack[0, 0], stack) if vector else (stack, stack[0])
    out = np.zeros((3 * step, *native(a, b).shape[1:]))[::step]
    assert traced(a, b, "int8x3", "reference", out=out, native=native)[1:] == ("int8x3", None)
    np.testing.assert_allclose(out, native(a, b), atol=1e-3)
    np.testing.assert_array_equal(out, matmul(a, b, scheme="int8x3", backend="reference"))


def test_out_of_another_shape_is_numpys_to_refuse() -> None:
    a = np.eye(4)
    with pytest.raises(ValueError, match="mismatch"):
        traced(a, a, "float64", "reference", out=np.zeros((3, 3)), native=np.matmul)
