"""The scheme that stands in for an FP32 product: as accurate as it, on every input."""

from typing import Literal

import numpy as np

from mixpert_py.runtime.packed import Array, padded, panels
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes.fp16x3 import FP16X3
from mixpert_py.runtime.schemes.int8 import INT8X6, INT8X8, INT8X10

Vendor = Literal["blas", "cublas"]

SHORT = 128  # below it an FP32 product is nearly exact, and only int8x10 is as good
SHORT_WIDE = 256  # the same for float64 operands: past it int8x8, whose sums then are float64
LONG = 4096  # from here on FP32 sums, fp16x3's too, lose more than integers
LONG_BLOCK = 1024  # few promotions: on uniform [0, 1) they are all the error there is


def choose(a: Array, b: Array, vendor: Vendor = "blas") -> Scheme:
    """The cheapest scheme of FP32's own accuracy for A (m, k) times B (k, n), float32 or float64.

    |C − Ĉ|ij ≤ k · 2^-24 · ‖A(i,:)‖ ‖B(:,j)‖ on every finite input (grade B; at k = 1, where one
    rounding is all that is allowed, 2 % more). On normal and uniform data the Frobenius error is
    no larger than that of the vendor's FP32 product: "blas" adds in blocks of K, "cublas" in one
    chain, so that there six products suffice from k = 4096 on, where no row or column is ruled by
    a few entries. float64 operands get the same accuracy, whatever their exponents.
    """
    k = a.shape[1]
    wide = a.dtype.itemsize == 8 or b.dtype.itemsize == 8
    if k < (SHORT_WIDE if wide else SHORT):
        return INT8X10
    if k >= LONG:
        return INT8X6 if vendor == "cublas" and _even(a, b) else INT8X8.with_block(LONG_BLOCK)
    return INT8X8 if wide else FP16X3


def peak(x: Array) -> float:
    """The largest ratio of a row's largest entry to its root mean square: 1 … √k.

    x: (rows, k). Rows of zeros, or that are not finite, do not count.
    """
    highest = 1.0
    for panel in panels(*x.shape):
        rows = np.abs(padded(x, panel, x.shape[1]).astype(np.float64))
        largest = rows.max(axis=1, initial=0)
        rows = rows[(largest > 0) & np.isfinite(largest)]
        rows /= rows.max(axis=1, keepdims=True, initial=0)
        squares = np.einsum("rk,rk->r", rows, rows)
        highest = max(highest, float(np.sqrt(x.shape[1] / squares).max(initial=1)))
    return highest


def _even(a: Array, b: Array) -> bool:
    """Whether int8x6 keeps grade B on these operands.

    What it drops, A_1 · B_2 and A_2 · B_1, is at most 2 k 2^-24 · 2^(eA + eB), and 2^e is at most
    2 · peak · norm / √k: so within half of k · 2^-24 · norm · norm if 16 · peaks ≤ k.
    """
    return 16 * peak(a) * peak(b.T) <= float(a.shape[1])
