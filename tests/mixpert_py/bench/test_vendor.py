"""What is asked of cuBLAS: a cuBLAS in NumPy that reads memory by columns, as the original does."""

import ctypes
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mixpert_py.bench.gemm import vendor
from mixpert_py.bench.gemm.vendor import MODES, Mode
from tests.runtime.gpu.fake import FakeGpu

TYPES = {0: np.float32, 1: np.float64, 2: np.float16}


class CUBLASError(RuntimeError):
    """As cupy_backends' own."""


def by_columns(address: int, kind: int, rows: int, columns: int, leading: int) -> Any:
    dtype = np.dtype(TYPES[kind])
    size = leading * (columns - 1) + rows
    memory = (ctypes.c_byte * (size * dtype.itemsize)).from_address(address)
    return np.ndarray((rows, columns), dtype, memory, 0, (dtype.itemsize, leading * dtype.itemsize))


class Cublas(ModuleType):
    """gemmEx and gemmStridedBatchedEx. refused: compute types that are not offered."""

    CUBLASError = CUBLASError

    def __init__(self, refused: tuple[int, ...] = ()) -> None:
        super().__init__("cublas")
        self.refused = refused
        self.computes: list[int] = []

    def gemmEx(self, *call: Any) -> None:  # noqa: N802, it has its original's name
        _, transa, transb, m, n, k, alpha, a, ta, lda, b, tb, ldb, beta, c, tc, ldc, compute, _ = (
            call
        )
        if compute in self.refused:
            raise CUBLASError("CUBLAS_STATUS_NOT_SUPPORTED")
        self.computes.append(compute)
        scalar = ctypes.c_double if compute == vendor.COMPUTE_64F else ctypes.c_float
        assert scalar.from_address(alpha).value == 1
        assert scalar.from_address(beta).value == 0
        left = by_columns(a, ta, k, m, lda).T if transa else by_columns(a, ta, m, k, lda)
        right = by_columns(b, tb, n, k, ldb).T if transb else by_columns(b, tb, k, n, ldb)
        out = by_columns(c, tc, m, n, ldc)
        out[...] = left.astype(np.float64) @ right.astype(np.float64)
        if compute == vendor.COMPUTE_32F_EMULATED_16BFX9:
            out[0, 0] += 1

    def gemmStridedBatchedEx(self, *call: Any) -> None:  # noqa: N802
        head, (a, ta, lda, step_a), (b, tb, ldb, step_b) = call[:7], call[7:11], call[11:15]
        beta, c, tc, ldc, step_c, count, compute, algorithm = call[15:]
        for i in range(count):
            places = [
                address + i * step * np.dtype(TYPES[kind]).itemsize
                for address, step, kind in ((a, step_a, ta), (b, step_b, tb), (c, step_c, tc))
            ]
            self.gemmEx(
                *(*head, places[0], ta, lda, places[1], tb, ldb, beta, places[2], tc, ldc),
                *(compute, algorithm),
            )


@pytest.fixture
def cublas(monkeypatch: pytest.MonkeyPatch) -> Cublas:
    return install(monkeypatch, Cublas())


def install(monkeypatch: pytest.MonkeyPatch, library: Cublas) -> Cublas:
    cupy = FakeGpu().install(monkeypatch)
    cupy.cuda.device = SimpleNamespace(get_cublas_handle=lambda: 1)
    libraries: Any = ModuleType("cupy_backends.cuda.libs")
    libraries.cublas = library
    for name, module in (
        ("cupy_backends", ModuleType("cupy_backends")),
        ("cupy_backends.cuda", ModuleType("cupy_backends.cuda")),
        ("cupy_backends.cuda.libs", libraries),
        ("cupy_backends.cuda.libs.cublas", library),
    ):
        monkeypatch.setitem(sys.modules, name, module)
    return library


ORDERS = {"N": np.ascontiguousarray, "T": np.asfortranarray}


@pytest.mark.parametrize("left", ORDERS)
@pytest.mark.parametrize("right", ORDERS)
@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_layouts(cublas: Cublas, left: str, right: str, mode: Mode) -> None:
    import cupy

    rng = np.random.default_rng(1)
    a = ORDERS[left](rng.integers(-9, 9, (5, 7)).astype(mode.element))
    b = ORDERS[right](rng.integers(-9, 9, (7, 3)).astype(mode.element))
    value = vendor.product(mode, cupy.asarray(a), cupy.asarray(b)).get()
    expected = a.astype(np.float64) @ b.astype(np.float64)
    expected[0, 0] += mode.emulated
    np.testing.assert_array_equal(value, expected)
    assert value.dtype == (np.float64 if mode.element == "float64" else np.float32)
    assert cublas.computes == [mode.compute]


def test_stacks(cublas: Cublas) -> None:
    import cupy

    rng = np.random.default_rng(2)
    a, b = (rng.integers(-9, 9, shape).astype(np.float32) for shape in ((4, 5, 7), (4, 7, 3)))
    value = vendor.product(vendor.FP32, cupy.asarray(a), cupy.asarray(b)).get()
    np.testing.assert_array_equal(value, a @ b)


@pytest.mark.parametrize(
    ("name", "parts"), [("cuBLAS FP32", False), ("cuBLAS FP16", True), ("cuBLAS TF32", False)]
)
def test_casts_are_parts(cublas: Cublas, name: str, parts: bool) -> None:
    import cupy

    a = cupy.asarray(np.full((4, 4), 1 + 2.0**-11, np.float32))
    made = vendor.contender(MODES[name]).prepare(a, a)
    assert (made.packing is not None, made.gemm is not None) == (parts, parts)
    rounded = 1.0 if parts else 1 + 2.0**-11
    assert made.whole().get()[0, 0] == pytest.approx(4 * rounded**2, abs=1e-6)


def test_what_is_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    emulated = MODES["cuBLAS BF16x9"]
    install(monkeypatch, Cublas())
    assert vendor.offered(emulated) is None
    install(monkeypatch, Cublas(refused=(emulated.compute,)))
    assert vendor.offered(emulated) == "not offered: CUBLAS_STATUS_NOT_SUPPORTED"
    silent = Mode("silent", "float32", vendor.COMPUTE_32F, emulated=True)
    assert vendor.offered(silent) == "not offered: the library runs its FP32 product instead"
    assert vendor.offered(vendor.FP32) is None
