"""CuPy's own product by a call of cuBLAS: which matrices, and which call."""

from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.gpu.native import Gemm, gemm_of

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
