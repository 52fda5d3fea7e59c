"""The scheme that stands in for an FP32 product: as accurate as it, on every input."""

from typing import Literal

from mixpert_py.runtime.packed import Array
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes.int8 import INT8X6, INT8X8, INT8X10

Vendor = Literal["blas", "cublas"]

SHORT = 128  # below it FP32 sums are nearly exact, and only int8x10 is as good
SHORT_CUBLAS = 1024  # cuBLAS cuts sums of small products: as good as chains of a sixth of K
LONG = 2048  # from here on FP32 chains lose more than six terms in blocks of LONG_BLOCK do
LONG_BLOCK = 1024
VERY_LONG = 3072  # and from here on more than six terms over all of K, however C is tiled
FEW = 1 << 20  # elements of C below which cuBLAS may cut long sums so short that they stay good


def choose(a: Array, b: Array, vendor: Vendor = "blas") -> Scheme:
    """The cheapest scheme of FP32's own accuracy for A (…, m, k) times B (…, k, n), by shape alone.

    |C − Ĉ|ij ≤ k · 2^-24 · ‖A(i,:)‖ ‖B(:,j)‖ on every finite input (grade B; at k = 1, where one
    rounding is all that is allowed, 2 % more). On normal and uniform data the Frobenius error is
    no larger than that of the vendor's FP32 product: "blas" adds in blocks of K, "cublas" in long
    chains, so that there six terms suffice. float64 operands get the same accuracy, whatever their
    exponents.

    Why grade B holds, in its own measure u · ‖A‖ ‖B‖, u = 2^-24: an entry loses 1.25 units, and
    1.0127 · 2^-23 of the row's largest entry, at most ‖A‖, is a unit. So three fitted slices lose
    2 · 2.54 · √k, rounding adds less than √k, and eight terms drop k / 249: in all less than k from
    k = 38 on. Six terms drop 0.752 k, as rows and columns that would drop more leave the slices by
    themselves (`schemes.int8`): less than k from 600 on.

    fp16x3 costs less than eight terms, but tensor cores truncate its sums: on uniform [0, 1) that
    loses more than an FP32 product.
    """
    k = a.shape[-1]
    if k < (SHORT if vendor == "blas" else SHORT_CUBLAS):
        return INT8X10.with_block(SHORT_CUBLAS)
    if vendor == "blas" or k < LONG or a.shape[-2] * b.shape[-1] < FEW:
        return INT8X8
    return INT8X6 if k >= VERY_LONG else INT8X6.with_block(LONG_BLOCK)
