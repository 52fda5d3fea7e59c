"""CuPy's own product by its own call of cuBLAS: which matrices, which call, the same bits."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime import signatures, worth
from mixpert_py.runtime.api import dot, matmul
from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.gpu.native import Gemm, _product, gemm_of

Array = np.ndarray[Any, Any]


def by_columns(memory: Array, rows: int, columns: int, leading: int) -> Array:
    """The matrix that cuBLAS sees in memory: columns `leading` elements apart."""
    last = leading * (columns - 1) + rows
    assert last <= memory.size
    return np.array([memory[j * leading : j * leading + rows] for j in range(columns)]).T


def called(gemm: Gemm, a: Array, b: Array) -> Array:
    """What cuBLAS makes of a call, as CuPy's rows."""
    n, m, k = gemm.n, gemm.m, gemm.k
    left, right = a.ravel(order="K"), b.ravel(order="K")
    x = by_columns(right, *((k, n) if gemm.transposes_b else (n, k)), gemm.b_leading)
    y = by_columns(left, *((m, k) if gemm.transposes_a else (k, m)), gemm.a_leading)
    return ((x.T if gemm.transposes_b else x) @ (y.T if gemm.transposes_a else y)).T


@pytest.mark.parametrize("shape", [(2, 3, 4), (5, 2, 2), (7, 64, 3)])
@pytest.mark.parametrize("orders", ["CC", "CF", "FC", "FF"])
def test_the_call_is_the_product(shape: tuple[int, int, int], orders: str) -> None:
    m, k, n = shape
    rng = np.random.default_rng(0)
    a = np.asarray(rng.integers(-9, 9, (m, k)), "d", order=orders[0])
    b = np.asarray(rng.integers(-9, 9, (k, n)), "d", order=orders[1])
    gemm = gemm_of(a.shape, a.strides, b.shape, b.strides, 8)
    assert gemm is not None
    assert gemm.shape == (m, n)
    np.testing.assert_array_equal(called(gemm, a, b), a @ b)


X = np.zeros((6, 6), "f")


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (X[0], X),
        (X, X[:, 0]),
        (X[:1], X),
        (X, X[:, :1]),
        (X[:, :1], X[:1]),
        (X[:, :4], X[:4]),
        (X, X[:5]),
        (X[::2], X),
        (X, X[::-1]),
        (X[:0], X),
        (X[None], X),
    ],
    ids=str,
)
def test_what_cupy_has_to_make_as_a_whole(a: Array, b: Array) -> None:
    assert gemm_of(a.shape, a.strides, b.shape, b.strides, 4) is None


class Matrix(np.ndarray[Any, Any]):
    """An array that is made as CuPy's are: of a shape and a type."""


def matrix(shape: tuple[int, ...], dtype: str = "f") -> Matrix:
    found = Matrix(shape, dtype)
    found[...] = 1
    return found


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Operands of all calls, of which each makes zeros."""
    found: list[Any] = []

    def call(*given: Any) -> None:
        found.append((given[7], given[5]))
        given[9][...] = 0

    monkeypatch.setitem(signatures.native_product_of, Matrix, _product(Matrix, call))
    monkeypatch.setitem(signatures.device_of, Matrix, lambda x: 0)
    monkeypatch.setitem(worth.size_of, Matrix, lambda x: x.size)
    with use(Context()) as context:
        context.passing.add("s")
        yield found


def test_a_site_that_passes_makes_the_call(calls: list[Any]) -> None:
    a, b = matrix((4, 5)), matrix((5, 6))
    for count in (1, 2):
        value = matmul(a, b, site="s")
        assert type(value) is Matrix
        assert not value.any()
        assert len(calls) == count
    assert calls[0][0] is a
    assert calls[0][1] is b


@pytest.mark.parametrize("dtypes", ["fd", "ii", "ee", "Fd"])
def test_other_types_are_the_operators(calls: list[Any], dtypes: str) -> None:
    a, b = matrix((4, 5), dtypes[0]), matrix((5, 6), dtypes[1])
    assert (matmul(a, b, site="s") == 5).all()
    assert not calls


def test_other_functions_make_their_product(calls: list[Any]) -> None:
    """A program, or a test, may have put its own in their place."""
    a, b = matrix((4, 5)), matrix((5, 6))

    def mine(x: Any, y: Any) -> str:
        return "mine"

    assert matmul(a, b, site="s", native=mine) == "mine"
    assert dot(a, b, site="s", native=mine) == "mine"
    assert not calls


def test_a_cupy_that_takes_other_arguments_makes_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def call(one: Any) -> None:
        raise AssertionError

    a, b = matrix((4, 5)), matrix((5, 6))
    monkeypatch.setitem(signatures.native_product_of, Matrix, _product(Matrix, call))
    monkeypatch.setitem(signatures.device_of, Matrix, lambda x: 0)
    monkeypatch.setitem(worth.size_of, Matrix, lambda x: x.size)
    with use(Context()) as context:
        context.passing.add("s")
        for _ in range(2):
            assert (matmul(a, b, site="s") == 5).all()
    assert Matrix not in signatures.native_product_of


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", "fdFD")
@pytest.mark.parametrize("shape", [(2, 2, 2), (64, 64, 64), (100, 33, 57), (300, 700, 2)])
def test_the_bits_of_cupys_operator(shape: tuple[int, int, int], dtype: str) -> None:
    import cupy

    m, k, n = shape
    rng = cupy.random.default_rng(1)
    for orders in ("CC", "CF", "FC", "FF"):
        a = cupy.asarray(rng.standard_normal((m, k)).astype(dtype), order=orders[0])
        b = cupy.asarray(rng.standard_normal((k, n)).astype(dtype), order=orders[1])
        matmul(a, b, site="s")
        made = signatures.native_product_of[cupy.ndarray](a, b)
        assert made.flags.c_contiguous
        assert made.get().tobytes() == (a @ b).get().tobytes()
        assert matmul(a, b, site="s").get().tobytes() == (a @ b).get().tobytes()


@pytest.mark.gpu
def test_settings_of_cupys() -> None:
    """TF32 where CuPy was told so."""
    import cupy

    linalg = cupy._core._routines_linalg
    rng = cupy.random.default_rng(1)
    a, b = (rng.standard_normal((256, 256), dtype="float32") for _ in range(2))
    exact = matmul(a, b, site="s")
    make = signatures.native_product_of[cupy.ndarray]
    before = linalg.get_compute_type("f")
    linalg.set_compute_type("f", linalg.COMPUTE_TYPE_TF32)
    try:
        coarse = make(a, b)
        assert coarse.get().tobytes() == (a @ b).get().tobytes()
    finally:
        linalg.set_compute_type("f", before)
    assert coarse.get().tobytes() != exact.get().tobytes()
