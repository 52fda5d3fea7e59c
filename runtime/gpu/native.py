"""The native product of CuPy's matrices, without CuPy's overhead.

Before CuPy's `a @ b` calls cuBLAS, it reshapes, transposes and casts the operands, mostly without
effect, and looks up settings one by one. For plain matrices of one type, this module makes the call
that CuPy would make, with its handle and under its settings: the same bits, and some 4 µs less on
the host, more than it takes to find out that a call is native.

The functions used are private to CuPy. If one is missing, or takes other arguments, CuPy makes all
products.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any, Final, NamedTuple

import numpy as np

from mixpert_py.runtime.arrays import AnyArray, GpuArray
from mixpert_py.runtime.signatures import native_functions, native_product_of

# By type: cuBLAS's numbers for its elements, and for sums of them in full precision.
TYPES: Final = {"f": (0, 68), "d": (1, 70), "F": (4, 68), "D": (5, 70)}
# By type, 1 and 0, which cuBLAS reads at each call.
SCALARS: Final = {char: (np.ones(1, char), np.zeros(1, char)) for char in TYPES}
TENSOR_OP: Final = 99  # cuBLAS's choice of an algorithm, as CuPy asks for it from Ampere on
AMPERE: Final = 80
MOST: Final = 1024  # layouts of operands, after which the table begins anew

Dims = tuple[int, ...]
ProductLayouts = tuple[Dims, Dims, Dims, Dims, np.dtype[Any], np.dtype[Any]]


class VendorGemm(NamedTuple):
    """A call of cuBLAS, which stores columns where CuPy stores rows: Cᵀ = Bᵀ · Aᵀ."""

    shape: tuple[int, int]
    transposes_b: int
    transposes_a: int
    n: int
    m: int
    k: int
    b_leading: int
    a_leading: int


def gemm_of(a: Dims, a_strides: Dims, b: Dims, b_strides: Dims, itemsize: int) -> VendorGemm | None:
    """The call for matrices of these shapes and strides, in bytes; None if CuPy does more than
    call cuBLAS: for copies, vectors, or shapes that do not fit.
    """
    if len(a) != 2 or len(b) != 2 or a[1] != b[0] or min(*a, *b) < 2:
        return None
    left, right = _leading(a, a_strides, itemsize), _leading(b, b_strides, itemsize)
    if left is None or right is None:
        return None
    return VendorGemm((a[0], b[1]), right[0], left[0], b[1], a[0], a[1], right[1], left[1])


def _leading(shape: Dims, strides: Dims, itemsize: int) -> tuple[int, int] | None:
    """Whether a matrix is contiguous by columns (1) or by rows (0), and the length of a column
    or row; None if it is neither.
    """
    if strides == (shape[1] * itemsize, itemsize):
        return 0, shape[1]
    if strides == (itemsize, shape[0] * itemsize):
        return 1, shape[0]
    return None


def use_cupys_gemm() -> None:
    """Make native products of CuPy's matrices in this way, if this CuPy has the functions."""
    cupy = sys.modules["cupy"]
    linalg = getattr(getattr(cupy, "_core", None), "_routines_linalg", None)
    call = getattr(linalg, "tensordot_core_v11", None)
    if call is not None and not cupy.cuda.runtime.is_hip:
        native_product_of[cupy.ndarray] = _product(cupy.ndarray, _direct(cupy, linalg) or call)
        native_functions[:] = cupy.matmul, cupy.dot


def _direct(cupy: ModuleType, linalg: Any) -> Callable[..., None] | None:
    """The call of cuBLAS in `tensordot_core_v11`, with the same arguments; None if this CuPy
    works differently.
    """
    try:
        gemm_ex = import_module("cupy_backends.cuda.libs.cublas").gemmEx
        handle, setting = cupy.cuda.device.get_cublas_handle, linalg.get_compute_type
        default, whole = linalg.COMPUTE_TYPE_DEFAULT, linalg.tensordot_core_v11
        capability = cupy.cuda.device.get_compute_capability  # of the current device
    except (AttributeError, ImportError):
        return None
    constants = {
        np.dtype(char): (*numbers, *(x.ctypes.data for x in SCALARS[char]))
        for char, numbers in TYPES.items()
    }

    is_ampere: dict[int, bool] = {}

    def call(
        transposes_a: int, transposes_b: int, m: int, n: int, k: int,
        a: GpuArray, a_leading: int, b: GpuArray, b_leading: int, c: GpuArray, c_leading: int,
    ) -> None:  # fmt: skip
        dtype, device = c.dtype, c.data.device_id
        if device not in is_ampere:
            is_ampere[device] = int(capability()) >= AMPERE
        if setting(dtype) != default or not is_ampere[device]:
            whole(transposes_a, transposes_b, m, n, k, a, a_leading, b, b_leading, c, c_leading)
            return
        kind, sums, one, zero = constants[dtype]
        gemm_ex(
            handle(), transposes_a, transposes_b, m, n, k,
            one, a.data.ptr, kind, a_leading, b.data.ptr, kind, b_leading,
            zero, c.data.ptr, kind, c_leading, sums, TENSOR_OP,
        )  # fmt: skip

    return call


def _product(empty: type, call: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    gemms: dict[ProductLayouts, VendorGemm | None] = {}

    def product(a: AnyArray, b: AnyArray) -> Any:
        """A·B, or None if CuPy's own operator has to make it. b may be anything."""
        if type(b) is not type(a) or a.ndim != 2 or b.ndim != 2:
            return None
        dtype = a.dtype
        layouts = a.shape, b.shape, a.strides, b.strides, dtype, b.dtype
        try:
            gemm = gemms[layouts]
        except KeyError:
            gemm = None
            if dtype == b.dtype and dtype.char in TYPES:
                gemm = gemm_of(a.shape, a.strides, b.shape, b.strides, dtype.itemsize)
            if len(gemms) >= MOST:
                gemms.clear()
            gemms[layouts] = gemm
        if gemm is None:
            return None
        shape, transposes_b, transposes_a, n, m, k, b_leading, a_leading = gemm
        result = empty(shape, dtype)
        try:
            call(transposes_b, transposes_a, n, m, k, b, b_leading, a, a_leading, result, n)
        except TypeError:  # another version's, which takes other arguments
            native_product_of.pop(empty, None)
            return None
        return result

    return product
