"""What stands in for an FP32 product: never worse than it on plain data, bounded on all data."""

from typing import Literal

import numpy as np
import pytest

from mixpert_py.runtime.faithful import choose, peak
from mixpert_py.runtime.reference import multiply
from tests.runtime.families import FAMILIES, Array
from tests.runtime.grades import grades

PLAIN = ["normal", "uniform [0, 1)", "uniform [-1, 1)"]
# cuBLAS FP32 on an H200, normal data, m = n = K: its Frobenius error.
CUBLAS = {1024: 2.4e-7, 2048: 4.1e-7, 4096: 5.7e-7, 8192: 1.15e-6}


def operands(family: str, m: int, k: int, n: int, dtype: type) -> tuple[Array, Array]:
    a, b = FAMILIES[family](np.random.default_rng(k), m, k, n)
    return a.astype(dtype), b.astype(dtype)


def frobenius(value: Array, exact: Array) -> float:
    return float(np.linalg.norm(value - exact) / np.linalg.norm(exact))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k", [2, 5, 16, 40, 128, 300, 1024, 4096])
@pytest.mark.parametrize("family", FAMILIES)
def test_bounded_by_rows_and_columns(family: str, k: int, dtype: type) -> None:
    a, b = operands(family, 20, k, 16, dtype)
    assert "B" in grades(a, b, multiply(a, b, choose(a, b)).value)
    assert "B" in grades(a, b, multiply(a, b, choose(a, b, "cublas")).value)


@pytest.mark.parametrize("family", PLAIN)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k", [16, 64, 128, 256, 1024, 2048, 4096, 8192])
def test_no_worse_than_the_native_product(family: str, k: int, dtype: type) -> None:
    a, b = operands(family, 64, k, 64, dtype)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    native = frobenius(a.astype(np.float32) @ b.astype(np.float32), exact)
    assert frobenius(multiply(a, b, choose(a, b)).value, exact) <= native


@pytest.mark.parametrize("k", CUBLAS)
def test_no_worse_than_cublas(k: int) -> None:
    a, b = operands("normal", 64, k, 64, np.float32)
    exact = a.astype(np.float64) @ b
    assert frobenius(multiply(a, b, choose(a, b, "cublas")).value, exact) <= CUBLAS[k]


@pytest.mark.parametrize(
    ("family", "k", "dtype", "vendor", "name"),
    [
        ("normal", 64, np.float32, "blas", "int8x10"),
        ("normal", 1024, np.float32, "blas", "fp16x3"),
        ("normal", 1024, np.float64, "blas", "int8x8"),
        ("normal", 4096, np.float32, "blas", "int8x8"),
        ("normal", 4096, np.float32, "cublas", "int8x6"),
        ("spread 4", 4096, np.float32, "cublas", "int8x8"),
        ("uniform [0, 1)", 4096, np.float64, "cublas", "int8x6"),
    ],
)
def test_choice(
    family: str, k: int, dtype: type, vendor: Literal["blas", "cublas"], name: str
) -> None:
    a, b = operands(family, 8, k, 8, dtype)
    assert choose(a, b, vendor).name == name


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (np.ones((3, 16)), 1.0),
        (np.eye(4, 16), 4.0),
        (np.zeros((2, 9)), 1.0),
        (np.array([[1e300, 1e-300, 0, 0]]), 2.0),
        (np.array([[np.inf, 1.0], [np.nan, 1.0]]), 1.0),
        (np.empty((0, 5)), 1.0),
        (np.empty((5, 0)), 1.0),
    ],
)
def test_peak(x: Array, expected: float) -> None:
    assert peak(x) == pytest.approx(expected)
