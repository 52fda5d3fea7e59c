"""Ways to multiply two arrays that are measured: our schemes, and every mode of cuBLAS."""

import ctypes
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

import mixpert_py
from mixpert_py.runtime.context import current, use
from mixpert_py.runtime.gpu import multiply as gpu_backend
from mixpert_py.runtime.packing import by_columns, by_rows
from mixpert_py.runtime.probes.gpu import TimedCall
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes import get
from mixpert_py.runtime.tracing.trace import Trace
from tests.benchmarks.arrays import Array, wide


@dataclass(frozen=True, slots=True)
class Parts:
    """A product ready to be called. packing, gemm: its two parts alone, where it has them."""

    whole: TimedCall
    packing: TimedCall | None = None
    gemm: TimedCall | None = None


@dataclass(frozen=True, slots=True)
class Contender:
    """A way to multiply float32 operands. prepare: a (…, m, k), b (…, k, n) → its calls."""

    name: str
    kind: Literal["scheme", "vendor"]
    prepare: Callable[[Array, Array], Parts]


def calls(parts: dict[str, Parts]) -> dict[str, TimedCall]:
    """Every call there is, by "name", "name packing" and "name gemm"."""
    found: dict[str, Any] = {}
    for name, part in parts.items():
        found[name] = part.whole
        if part.packing is not None:
            found[f"{name} packing"] = part.packing
        if part.gemm is not None:
            found[f"{name} gemm"] = part.gemm
    return found


def of_scheme(name: str, backend: str | None = None) -> Contender:
    """A scheme as a contender: `mixpert_py.matmul(a, b, scheme=name)`.

    backend: the backend that makes the product, whether it is profitable or not.
    """

    def prepare(a: Array, b: Array) -> Parts:
        def whole() -> Any:
            return mixpert_py.matmul(a, b, scheme=name, backend=backend)

        return Parts(whole, *_scheme_parts(a, b, name))

    return Contender(name, "scheme", prepare)


def ran(a: Array, b: Array, name: str) -> str:
    """The name of what runs for these operands, with the reason where it is not the scheme."""
    trace = Trace()
    with use(replace(current(), trace=trace)):
        mixpert_py.matmul(a, b, scheme=name)
    (site,) = trace.sites.values()
    (scheme,) = site.schemes
    return f"{scheme} ({', '.join(site.reasons)})" if site.reasons else scheme


def _scheme_parts(a: Array, b: Array, name: str) -> tuple[TimedCall, TimedCall] | tuple[()]:
    """The calls that pack both operands and that multiply them packed; none without a GPU."""
    scheme = get(name)
    if not isinstance(scheme, Scheme) or isinstance(a, np.ndarray):
        return ()
    kernels = gpu_backend.cuda_kernels()
    out = kernels.xp.empty((len(a) if a.ndim == 3 else 1, a.shape[-2], b.shape[-1]), a.dtype)
    stream = kernels.xp.cuda.get_current_stream().ptr

    def pack() -> Any:
        return kernels.pack(by_rows(a), by_columns(b), scheme, stream=stream)

    left, right = pack()
    return pack, lambda: kernels.gemm(left, right, scheme, out, stream=stream)


# cublasComputeType_t, cublasOperation_t, cudaDataType_t.
COMPUTE_32F, COMPUTE_32F_PEDANTIC, COMPUTE_64F = 68, 69, 70
COMPUTE_32F_FAST_TF32, COMPUTE_32F_EMULATED_16BFX9 = 77, 78
NO_TRANSPOSE, TRANSPOSE = 0, 1
DATA_TYPES = {"float32": 0, "float64": 1, "float16": 2}
DEFAULT_ALGORITHM = -1


@dataclass(frozen=True, slots=True)
class Mode:
    """A mode in which cuBLAS multiplies FP32 operands.

    element: what the operands are cast to, if they are not. The result is float64 for float64,
    else float32. emulated: whether the library may run something else in its place.
    """

    name: str
    element: str
    compute: int
    emulated: bool = False


MODES = {
    mode.name: mode
    for mode in (
        Mode("cuBLAS FP32", "float32", COMPUTE_32F),
        Mode("cuBLAS FP32 pedantic", "float32", COMPUTE_32F_PEDANTIC),
        Mode("cuBLAS TF32", "float32", COMPUTE_32F_FAST_TF32),
        Mode("cuBLAS FP16", "float16", COMPUTE_32F),
        Mode("cuBLAS FP64", "float64", COMPUTE_64F),
        Mode("cuBLAS BF16x9", "float32", COMPUTE_32F_EMULATED_16BFX9, emulated=True),
    )
}
FP32, TF32 = MODES["cuBLAS FP32"], MODES["cuBLAS TF32"]


def of_vendor(mode: Mode) -> Contender:
    """A mode of cuBLAS as a contender; operands are cast where the mode needs it."""

    def prepare(a: Array, b: Array) -> Parts:
        if mode.element == a.dtype:
            return Parts(lambda: product(mode, a, b))
        left, right = _cast(a, mode), _cast(b, mode)
        return Parts(
            lambda: product(mode, _cast(a, mode), _cast(b, mode)),
            lambda: (_cast(a, mode), _cast(b, mode)),
            lambda: product(mode, left, right),
        )

    return Contender(mode.name, "vendor", prepare)


def offered(mode: Mode) -> str | None:
    """The reason why this library does not offer a mode on this device; None where it does."""
    import cupy
    from cupy_backends.cuda.libs.cublas import CUBLASError

    a = cupy.asarray(np.random.default_rng(0).standard_normal((512, 512)).astype(np.float32))
    try:
        value = product(mode, a.astype(mode.element), a.astype(mode.element))
    except CUBLASError as error:
        return f"not offered: {error}"
    if mode.emulated and bool((value == product(FP32, a, a)).all()):
        return "not offered: the library runs its FP32 product instead"
    return None


def product(mode: Mode, a: Array, b: Array) -> Array:
    """C (…, m, n) of a (…, m, k) and b (…, k, n), of the mode's element type, on the device.

    The last two axes of each operand are contiguous in either order; stacks are evenly spaced.
    """
    import cupy
    from cupy_backends.cuda.libs import cublas

    (m, k), n = a.shape[-2:], b.shape[-1]
    out = cupy.empty((*a.shape[:-1], n), _result(mode))
    scalar = ctypes.c_double if mode.compute == COMPUTE_64F else ctypes.c_float
    one, zero = scalar(1), scalar(0)
    kind, result = DATA_TYPES[mode.element], DATA_TYPES[_result(mode)]
    # cuBLAS stores by columns: our C by rows is its Cᵀ = Bᵀ · Aᵀ.
    (transpose_b, ldb), (transpose_a, lda) = _place(b), _place(a)
    common = (cupy.cuda.device.get_cublas_handle(), transpose_b, transpose_a, n, m, k)
    alpha, beta = ctypes.addressof(one), ctypes.addressof(zero)
    if a.ndim == 2:
        cublas.gemmEx(
            *(*common, alpha, b.data.ptr, kind, ldb, a.data.ptr, kind, lda),
            *(beta, out.data.ptr, result, n, mode.compute, DEFAULT_ALGORITHM),
        )
    else:
        cublas.gemmStridedBatchedEx(
            *(*common, alpha, b.data.ptr, kind, ldb, _step(b), a.data.ptr, kind, lda, _step(a)),
            *(beta, out.data.ptr, result, n, m * n, math.prod(a.shape[:-2])),
            *(mode.compute, DEFAULT_ALGORITHM),
        )
    return out


def _cast(x: Array, mode: Mode) -> Array:
    return wide(x) if mode.element == "float64" else x.astype(mode.element)


def _result(mode: Mode) -> str:
    return "float64" if mode.element == "float64" else "float32"


def _place(x: Array) -> tuple[int, int]:
    """(operation, leading dimension) of a row-major matrix, or its transpose, seen by columns."""
    rows, columns = (stride // x.itemsize for stride in x.strides[-2:])
    if columns == 1:
        return NO_TRANSPOSE, max(rows, x.shape[-1])
    return TRANSPOSE, max(columns, x.shape[-2])


def _step(x: Array) -> Any:
    return x.strides[-3] // x.itemsize
