"""Prepares kernels for later products: compiles them, keeps them on disk, and loads them."""

from typing import NamedTuple

import numpy as np

from mixpert_py.runtime.gpu.compile_ahead import compiling_ahead
from mixpert_py.runtime.gpu.multiply import multiply
from mixpert_py.runtime.gpu.prepared import placeholder
from mixpert_py.runtime.kernels.recording import LEFT, RESULT, RIGHT, Recording
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.request import Request


class Expected(NamedTuple):
    """Expected products: of matrices of one type, under a scheme and a block length."""

    scheme: str
    block: int | None
    dtype: str


def compile_kernels(
    expected: Expected, shape: tuple[int, int, int], *, a_turned: bool, b_turned: bool
) -> Reason | None:
    """Compile and load the kernels for products of (m, k) and (k, n) matrices on the current
    device.

    Returns the reason if the device cannot make them. a_turned, b_turned: whether columns are
    contiguous. Nothing is launched, and no memory is used for operands and results.
    """
    import cupy

    device, (m, k, n) = cupy.cuda.Device().id, shape
    dtype = np.dtype(expected.dtype)

    def operand(base: int, rows: int, columns: int, turned: bool) -> object:
        strides = (1, rows) if turned else (columns, 1)
        apart = (strides[0] * dtype.itemsize, strides[1] * dtype.itemsize)
        return placeholder(base, (rows, columns), dtype, device, apart)

    request = Request(
        operand(LEFT, m, k, a_turned),
        operand(RIGHT, k, n, b_turned),
        expected.scheme,
        expected.block,
        placeholder(RESULT, (m, n), dtype, device),
    )
    with compiling_ahead(request):
        outcome = multiply(request, Recording())
    return outcome if isinstance(outcome, Reason) else None
