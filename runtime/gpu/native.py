"""The native product of CuPy's arrays, without CuPy's overhead.

Before CuPy's `a @ b` calls cuBLAS, it reshapes, transposes and casts the operands, mostly without
effect, and looks up settings one by one. For plain matrices and stacks of one type, this module
makes the call that CuPy would make, with its handle and under its settings: the same bits, and some
4 µs less on the host, more than it takes to find out that a call is native.

The functions used are private to CuPy. If one is missing, or takes other arguments, CuPy makes all
products.
"""

import math
import sys
from importlib import import_module
from typing import Any, Final, NamedTuple

import numpy as np

from mixpert_py.runtime.arrays import GpuArray
from mixpert_py.runtime.signatures import NATIVE, native_functions, native_product_of
from mixpert_py.runtime.warned import call_method

# By type: cuBLAS's numbers for its elements, and for sums of them in full precision.
TYPES: Final = {"f": (0, 68), "d": (1, 70), "F": (4, 68), "D": (5, 70)}
# By type, 1 and 0, which cuBLAS reads at each call.
SCALARS: Final = {char: (np.ones(1, char), np.zeros(1, char)) for char in TYPES}
TENSOR_OP: Final = 99  # cuBLAS's choice of an algorithm, as CuPy asks for it from Ampere on
DEFAULT: Final = -1  # the same for stacks
AMPERE: Final = 80
MOST: Final = 1024  # layouts of operands, after which the table begins anew

Dims = tuple[int, ...]
ProductLayouts = tuple[Dims, Dims, Dims, Dims, np.dtype[Any], np.dtype[Any]]


class VendorGemm(NamedTuple):
    """A call of cuBLAS, which stores columns where CuPy stores rows: Cᵀ = Bᵀ · Aᵀ.

    shape: of C. matrices: how many a stack has; 0: there are no stacks.
    """

    shape: Dims
    matrices: int
    transposes_b: int
    transposes_a: int
    n: int
    m: int
    k: int
    b_leading: int
    a_leading: int


def gemm_of(a: Dims, a_strides: Dims, b: Dims, b_strides: Dims, itemsize: int) -> VendorGemm | None:
    """The call for arrays of these shapes and strides, in bytes; None if CuPy does more than
    call cuBLAS: for copies, two vectors, or shapes that do not fit.
    """
    if len(a) == len(b) > 2:
        (*stack, m, k), (*other, inner, n) = a, b
        if stack != other or k != inner or 0 in a + b:
            return None
        if (a_strides, b_strides) != (_in_order(a, itemsize), _in_order(b, itemsize)):
            return None
        return VendorGemm((*stack, m, n), math.prod(stack), 0, 0, n, m, k, n, k)
    if {len(a), len(b)} not in ({1, 2}, {2}) or a[-1] != b[0] or min(*a, *b) < 2:
        return None
    left, right = _leading(a, a_strides, itemsize), _leading(b, b_strides, itemsize)
    if left is None or right is None:
        return None
    if len(a) == 1:
        left = 0, a[0]  # one row
    m, n = (1, *a)[-2], (*b, 1)[1]
    return VendorGemm((*a[:-1], *b[1:]), 0, right[0], left[0], n, m, a[-1], right[1], left[1])


def _leading(shape: Dims, strides: Dims, itemsize: int) -> tuple[int, int] | None:
    """Whether a matrix is contiguous by columns (1) or by rows (0), and the length of a column
    or row; None if it is neither. A vector is one column.
    """
    if strides == (itemsize, shape[0] * itemsize)[: len(shape)]:
        return 1, shape[0]
    return (0, shape[1]) if strides == _in_order(shape, itemsize) else None


def _in_order(shape: Dims, itemsize: int) -> Dims:
    """The strides of an array in C order."""
    return tuple(itemsize * math.prod(shape[axis:]) for axis in range(1, len(shape) + 1))


def use_cupys_gemm() -> None:
    """Make native products of CuPy's arrays in this way, if this CuPy has the functions."""
    cupy = sys.modules["cupy"]
    try:
        linalg = cupy._core._routines_linalg
        setting, default = linalg.get_compute_type, linalg.COMPUTE_TYPE_DEFAULT
        handle = cupy.cuda.device.get_cublas_handle
        capability = cupy.cuda.device.get_compute_capability  # of the current device
        cublas = import_module("cupy_backends.cuda.libs.cublas")
        gemm_ex, of_stacks = cublas.gemmEx, cublas.gemmStridedBatchedEx
        if cupy.cuda.runtime.is_hip or not hasattr(linalg, "tensordot_core_v11"):
            return
    except (AttributeError, ImportError):
        return
    empty, gemms = cupy.ndarray, dict[ProductLayouts, VendorGemm | None]()
    constants = {
        np.dtype(char): (*numbers, *(x.ctypes.data for x in SCALARS[char]))
        for char, numbers in TYPES.items()
    }

    def product(a: GpuArray, b: GpuArray, out: GpuArray | None = None) -> Any:
        """A·B, in `out` where it is given, or NATIVE if CuPy's own function has to make it."""
        dtype = a.dtype
        layouts = a.shape, b.shape, a.strides, b.strides, dtype, b.dtype
        try:
            gemm = gemms[layouts]
        except KeyError:
            gemm = None
            if dtype == b.dtype and dtype.char in TYPES and int(capability()) >= AMPERE:
                gemm = gemm_of(a.shape, a.strides, b.shape, b.strides, dtype.itemsize)
            if len(gemms) >= MOST:
                gemms.clear()
            gemms[layouts] = gemm
        if gemm is None:
            return NATIVE
        shape, matrices, transposes_b, transposes_a, n, m, k, b_leading, a_leading = gemm
        if not matrices and setting(dtype) != default:
            return NATIVE
        if out is None:
            out = empty(shape, dtype)
        elif not _suits(out, shape, a, b):
            return NATIVE
        kind, sums, one, zero = constants[dtype]
        left, right, result = a.data.ptr, b.data.ptr, out.data.ptr
        try:
            if matrices:
                of_stacks(
                    handle(), 0, 0, n, m, k, one, right, kind, n, k * n, left, kind, k, m * k,
                    zero, result, kind, n, m * n, matrices, kind, DEFAULT,
                )  # fmt: skip
            else:
                gemm_ex(
                    handle(), transposes_b, transposes_a, n, m, k, one, right, kind, b_leading,
                    left, kind, a_leading, zero, result, kind, n, sums, TENSOR_OP,
                )  # fmt: skip
        except TypeError:  # another version's, which takes other arguments
            native_product_of.pop(empty, None)
            return NATIVE
        return out

    native_product_of[empty] = product
    native_functions[:] = cupy.matmul, cupy.dot, call_method


def _suits(out: GpuArray, shape: Dims, *operands: GpuArray) -> bool:
    """Return whether cuBLAS may write a product of this shape to `out`: an array of its type in C
    order that shares no memory with the operands.
    """
    if type(out) is not type(operands[0]) or out.shape != shape or not out.flags.c_contiguous:
        return False
    start, end = out.data.ptr, out.data.ptr + out.nbytes
    return out.dtype == operands[0].dtype and all(
        x.data.ptr >= end or x.data.ptr + x.nbytes <= start for x in operands
    )
