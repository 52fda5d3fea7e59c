"""What stands in for an FP32 product: never worse than it on plain data, bounded on all data."""

from collections.abc import Callable

import numpy as np
import pytest

from mixpert_py.runtime.emulation.emulation import emulate
from mixpert_py.runtime.emulation.reference import Product, multiply
from mixpert_py.runtime.faithful import CREST, Vendor, choose, settle, settled
from mixpert_py.runtime.schemes.fp16x3 import FP16X3
from mixpert_py.runtime.schemes.int8 import INT8X6, INT8X8, INT8X10
from tests.runtime.families import FAMILIES, Array
from tests.runtime.grades import grades

PLAIN = ["normal", "uniform [0, 1)", "uniform [-1, 1)"]
# cuBLAS FP32 on an H200, m = n = K: its Frobenius error, the least of four layouts.
CUBLAS = {
    ("normal", 1024): 2.9e-7,
    ("normal", 2048): 8.1e-7,
    ("normal", 4096): 8.1e-7,
    ("normal", 8192): 9.3e-7,
    ("normal", 16384): 1.3e-6,
    ("uniform [0, 1)", 4096): 2.2e-7,
    ("uniform [-1, 1)", 4096): 1.1e-6,
}


def operands(family: str, m: int, k: int, n: int, dtype: type) -> tuple[Array, Array]:
    a, b = FAMILIES[family](np.random.default_rng(k), m, k, n)
    return a.astype(dtype), b.astype(dtype)


def faithful(a: Array, b: Array, vendor: Vendor, m: int = 4096, n: int = 4096) -> Product:
    """The product by the scheme chosen for A (m, k) times B (k, n), of which these are parts."""
    k = a.shape[1]
    scheme = choose(np.broadcast_to(a[:1, :1], (m, k)), np.broadcast_to(b[:1, :1], (k, n)), vendor)
    return multiply(a, b, scheme)


def frobenius(value: Array, exact: Array) -> float:
    return float(np.linalg.norm(value - exact) / np.linalg.norm(exact))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k", [2, 5, 16, 40, 128, 300, 1024, 2048, 4096])
@pytest.mark.parametrize("family", FAMILIES)
def test_bounded_by_rows_and_columns(family: str, k: int, dtype: type) -> None:
    a, b = operands(family, 20, k, 16, dtype)
    assert "B" in grades(a, b, faithful(a, b, "blas").value)
    assert "B" in grades(a, b, faithful(a, b, "cublas").value)


@pytest.mark.parametrize("k", [128, 600, 1024, 2048, 4096, 33_000])
def test_grade_is_proved_by_the_certificate(k: int) -> None:
    """Rows ruled by one entry, with the largest lower digits that stay: still below k · 2^-24."""
    a, b = (FAMILIES["normal"](np.random.default_rng(k + i), 12, k, 1)[0] * 2.0**-9 for i in (0, 1))
    a[:, 3] = b[:, 7] = 1.0
    a[::2], b[::2] = np.sign(a[::2]) * 2.0**-9, np.sign(b[::2]) * 2.0**-9
    a[::2, 3] = b[::2, 7] = 1.0
    a, b = a.astype(np.float32), b.T.astype(np.float32)
    bound = faithful(a, b, "cublas").certificate.bound()
    norms = np.outer(np.linalg.norm(a, axis=1), np.linalg.norm(b, axis=0))
    assert (bound <= k * 2.0**-24 * norms).all()


@pytest.mark.parametrize("family", PLAIN)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k", [16, 64, 128, 256, 1024, 2048, 4096, 8192])
def test_no_worse_than_the_native_product(family: str, k: int, dtype: type) -> None:
    a, b = operands(family, 64, k, 64, dtype)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    native = frobenius(a.astype(np.float32) @ b.astype(np.float32), exact)
    assert frobenius(faithful(a, b, "blas").value, exact) <= native


@pytest.mark.parametrize("family", PLAIN)
@pytest.mark.parametrize("k", [40, 128, 512])
@pytest.mark.parametrize("length", [64, 128])
def test_no_worse_than_sums_cut_short(family: str, k: int, length: int) -> None:
    """Small products on a GPU may be made of short chains, added up."""
    a, b = operands(family, 64, k, 64, np.float32)
    exact = a.astype(np.float64) @ b
    chains = np.zeros((-(-k // length), 64, 64), np.float32)
    for position in range(k):
        chains[position // length] += np.outer(a[:, position], b[position])
    native = frobenius(chains.sum(axis=0), exact)
    assert frobenius(faithful(a, b, "cublas").value, exact) <= native


@pytest.mark.parametrize(("family", "k"), CUBLAS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_worse_than_cublas(family: str, k: int, dtype: type) -> None:
    a, b = operands(family, 64, k, 64, dtype)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    product = faithful(a, b, "cublas", m=k, n=k)
    assert frobenius(product.value, exact) <= CUBLAS[family, k]
    assert product.outliers.fraction == 0


@pytest.mark.parametrize(
    ("m", "k", "n", "vendor", "name", "block"),
    [
        (64, 64, 64, "blas", "int8x10", 64),
        (64, 128, 64, "blas", "int8x8", 128),
        (4096, 4096, 4096, "blas", "int8x8", 4096),
        (1024, 512, 1024, "cublas", "int8x10", 512),
        (1024, 1024, 1024, "cublas", "int8x8", 1024),
        (2048, 2047, 2048, "cublas", "int8x8", 2048),
        (2048, 2048, 2048, "cublas", "int8x6", 2048),
        (2048, 2048, 2050, "cublas", "int8x8", 2048),
        (4096, 2048, 2050, "cublas", "int8x6", 2048),
        (1448, 4096, 1448, "cublas", "int8x8", 4096),
        (1448, 5120, 1448, "cublas", "int8x6", 1024),
        (1448, 8192, 1448, "cublas", "int8x6", 8192),
        (8192, 8192, 8192, "cublas", "int8x6", 8192),
        (256, 8192, 256, "cublas", "int8x8", 8192),
    ],
)
def test_choice(m: int, k: int, n: int, vendor: Vendor, name: str, block: int) -> None:
    scheme = choose(np.empty((3, m, k)), np.empty((k, n)), vendor)
    assert (scheme.name, scheme.lengths(k)[1]) == (name, block)


def triangular_inverse(k: int) -> Array:
    """Of a Cholesky factor: a column's diagonal entry is far above the rest of it."""
    x = np.random.default_rng(k).uniform(0, 8, (k, 4))
    near = np.exp(-0.5 * ((x[:, None] - x) ** 2).sum(axis=2))
    inverse: Array = np.linalg.inv(np.linalg.cholesky(near + np.eye(k)))
    return inverse.astype(np.float32)


def circuit(k: int) -> Array:
    """A unitary of gates on two qubits each, its real part."""
    rng, count = np.random.default_rng(k), k.bit_length() - 1
    unitary = np.eye(k, dtype=complex)
    for at in (*range(0, count - 1, 2), *range(1, count - 1, 2)):
        gate, _ = np.linalg.qr(rng.standard_normal((4, 4)) + 1j * rng.standard_normal((4, 4)))
        parts = unitary.reshape(2**at, 4, -1)
        unitary = np.einsum("ij,ajb->aib", gate, parts).reshape(k, k)
    return np.ascontiguousarray(unitary.real, np.float32)


def chained(a: Array, b: Array) -> Array:
    """FP32 sums along all of K, as a vendor's kernel makes them."""
    value = np.zeros((len(a), b.shape[1]), np.float32)
    for position in range(a.shape[1]):
        value += np.outer(a[:, position], b[position])
    return value


@pytest.mark.parametrize("ruled", [triangular_inverse, circuit])
@pytest.mark.parametrize("turned", [False, True])
def test_where_a_few_entries_rule(ruled: Callable[[int], Array], turned: bool) -> None:
    """No worse than the vendor's sums, and no rows have to leave the slices for that."""
    a = ruled(1024)
    b = np.ascontiguousarray(a.T if ruled is circuit else a)[:, :256]
    if turned:
        a, b = b.T, a.T
    exact = a.astype(np.float64) @ b
    value = emulate(a, b, "faithful")
    assert frobenius(value, exact) <= frobenius(chained(a, b), exact)
    assert settled(INT8X6, a, b) is settled(INT8X8, a, b) is FP16X3
    assert frobenius(multiply(a, b, INT8X6).value, exact) > 3 * frobenius(value, exact)


@pytest.mark.parametrize("family", PLAIN)
@pytest.mark.parametrize("k", [128, 4096, 100_000])
def test_nothing_rules_plain_data(family: str, k: int) -> None:
    a, b = operands(family, 64, k, 64, np.float32)
    assert settled(INT8X6, a, b) is INT8X6


def test_settle() -> None:
    limit = CREST**2
    for scheme in (INT8X6, INT8X8, INT8X6.with_block(1024)):
        assert settle(scheme, limit, 1) is settle(scheme, 0, 1e9) is scheme
        assert settle(scheme, limit * 1.01, 1) is settle(scheme, 2, limit) is FP16X3
    assert settle(INT8X10, 1e9, 1e9) is INT8X10


@pytest.mark.parametrize("k", [128, 600, 1024, 4096])
def test_fp16x3_holds_the_grade_where_it_is_chosen(k: int) -> None:
    a, b = (FAMILIES["normal"](np.random.default_rng(k + i), 12, k, 1)[0] * 2.0**-9 for i in (0, 1))
    a[:, 3] = b[:, 7] = 1.0
    a, b = a.astype(np.float32), b.T.astype(np.float32)
    assert settled(INT8X8, a, b) is FP16X3
    product = multiply(a, b, FP16X3)
    assert "B" in grades(a, b, product.value)
    norms = np.outer(np.linalg.norm(a, axis=1), np.linalg.norm(b, axis=0))
    assert (product.certificate.bound() <= k * 2.0**-24 * norms).all()
