"""The kernel that looks at crest factors: a thread block for each row that is looked at.

All loads of a thread wait for nothing, so that a row takes little more than one load does.
"""

# The bodies of kernels are Numba's to type.
# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
# mypy: disable-error-code="attr-defined"

from typing import Any

import numpy as np
from numba import cuda
from numba.cuda import types

from mixpert_py.runtime.packing.crest import THREADS
from mixpert_py.runtime.packing.intrinsics import device

ITEMS = 8  # that a thread reads before it uses them


def crest_kernel(left: str, right: str, threads: int = THREADS) -> tuple[Any, tuple[Any, ...]]:
    """The kernel, to be compiled, and the Numba types of its arguments. The types of A and B."""
    one = _row(left, threads)
    other = one if left == right else _row(right, threads)

    def kernel(
        a, b, found, a_lines, b_lines, k, stride,
        a_all, a_rows, a_batch, a_row, a_k, b_all, b_rows, b_batch, b_row, b_k,
    ):  # fmt: skip
        index = np.int64(cuda.blockIdx.x)
        if index < a_lines:
            line = index * a_all // a_lines
            start = line // a_rows * a_batch + line % a_rows * a_row
            one(a, start, a_k * stride, k, found, index)
        else:
            line = (index - a_lines) * b_all // b_lines
            start = line // b_rows * b_batch + line % b_rows * b_row
            other(b, start, b_k * stride, k, found, index)

    operands = [types.CPointer(getattr(types, name)) for name in (left, right, "float64")]
    return kernel, (*operands, *[types.int64] * 14)


def _row(memory: str, threads: int) -> Any:
    """The device function for the square of a row's crest factor. k: entries that it looks at."""
    THREADS = threads
    MEMORY = np.float32 if memory == "float32" else np.float64

    def row(x, start, between, k, found, index):
        tops = cuda.shared.array(THREADS, np.float64)
        powers = cuda.shared.array(THREADS, np.float64)
        counts = cuda.shared.array(THREADS, np.int32)
        values = cuda.local.array(ITEMS, MEMORY)
        thread = np.int64(cuda.threadIdx.x)
        top = 0.0
        power = 0.0
        count = np.int32(0)
        for first in range(thread, k, ITEMS * THREADS):
            for j in range(ITEMS):
                at = first + j * THREADS
                values[j] = x[start + min(at, k - 1) * between]
            for j in range(ITEMS):
                if first + j * THREADS < k:
                    value = np.float64(values[j])
                    top = max(top, abs(value))
                    power += value * value
                    count += np.int32(value != 0.0)
        tops[thread] = top
        powers[thread] = power
        counts[thread] = count
        half = THREADS // 2
        while half > 0:
            cuda.syncthreads()
            if thread < half:
                tops[thread] = max(tops[thread], tops[thread + half])
                powers[thread] += powers[thread + half]
                counts[thread] += counts[thread + half]
            half //= 2
        if thread == 0:
            square = 0.0
            if powers[0] > 0.0:
                square = counts[0] * tops[0] * tops[0] / powers[0]
            found[index] = square

    return device(row)
