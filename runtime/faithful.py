"""The scheme that stands in for an FP32 product: as accurate as it, on every input."""

from typing import Literal

from mixpert_py.runtime import crest
from mixpert_py.runtime.emulation.packed import Array
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes.fp16x3 import FP16X3
from mixpert_py.runtime.schemes.int8 import INT8X6, INT8X8, INT8X10

Vendor = Literal["blas", "cublas"]

SHORT = 128  # of K: below it FP32 sums are nearly exact, and only int8x10 is as good
SHORT_CUBLAS = 1024  # cuBLAS cuts sums of small products: as good as chains of a sixth of K
# Six terms over all of K are as good as FP32 chains of 630 (at K = 2048) to 900 (at 16384), in
# blocks of BLOCK as good as chains of 475. cuBLAS cuts sums where its tiles of C do not fill the
# last wave: in as many as 11 from FEW elements of C on, in 4 from MANY on (6 where K > 4096), in 2
# from SOME on where C has powers of two for sides. Measured over 190 shapes and all layouts.
LONG, LONGER, LONGEST = 2048, 5120, 8192
BLOCK = 1024
# Crest factors from which digits lose more than FP32 products do, A's times B's: 32, of normal data
# 16 at K = 16384 and 28 at 10 million, of uniform data 3. With crest factors p and q the error over
# that of |C| is 3.4e-8 · √(p² + q²) by what digits round, and for six terms 3.3e-8 · p · q by what
# is dropped: 2.2e-6 on the matrices of a quantum circuit (p = 7, q = 10), where FP32 chains make
# 5.4e-7, and fp16x3 1.7e-7.
CREST = 32.0
FEW, SOME, MANY = 1 << 20, 1 << 22, 1 << 23


def settle(scheme: Scheme, left: float, right: float) -> Scheme:
    """What `choose` has chosen; or, where a few entries rule most rows or columns, fp16x3.

    left, right: mean squares of the crest factors of A's rows and B's columns, see `crest`. The
    slices of fp16x3 have exponents of their own, so that it keeps FP32's accuracy there, and in
    INT8 many rows would leave the slices, which takes long.
    """
    return FP16X3 if depends(scheme) and left * right > CREST**2 else scheme


def settled(scheme: Scheme, a: Array, b: Array) -> Scheme:
    """The same, of NumPy arrays (…, m, k) and (…, k, n); complex ones by their moduli."""
    if not depends(scheme):
        return scheme
    return settle(scheme, crest.mean_square(a), crest.mean_square(b.swapaxes(-1, -2)))


def depends(scheme: Scheme) -> bool:
    """Whether `settle` has to know the operands. Not those of int8x10, whose fourth slice holds
    what is 2^-31 of a row's largest entry.
    """
    return scheme.name != INT8X10.name


def choose(a: Array, b: Array, vendor: Vendor = "blas") -> Scheme:
    """The cheapest scheme of FP32's own accuracy for A (…, m, k) times B (…, k, n), by shape alone:
    `settle` has the last word.

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

    fp16x3 costs less than eight terms, but tensor cores truncate its sums: on uniform [0, 1), whose
    crest factors are small, that loses more than an FP32 product.
    """
    k = a.shape[-1]
    if k < (SHORT if vendor == "blas" else SHORT_CUBLAS):
        return INT8X10.with_block(SHORT_CUBLAS)
    if vendor == "blas":
        return INT8X8
    return _beside_cublas(k, a.shape[-2], b.shape[-1])


def _beside_cublas(k: int, m: int, n: int) -> Scheme:
    whole = m * n >= MANY or (m * n >= SOME and m & (m - 1) == n & (n - 1) == 0)
    if (k >= LONG and whole) or (k >= LONGEST and m * n >= FEW):
        return INT8X6
    return INT8X6.with_block(BLOCK) if k >= LONGER and m * n >= FEW else INT8X8
