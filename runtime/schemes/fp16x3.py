"""`fp16x3`: two FP16 slices of operands brought into FP16's range row by row, column by column.

hi = RN(x), lo = RN((x − hi) · 2^12): scaled, so that low slices do not fall below FP16's smallest
number where entries of a row differ in size. Without outliers, with u = 2^-24 and n = K,

    |C − Ĉ|ij ≤ (12 + n) · u · (|A||B|)ij + n · 2^-149      where |A||B| is in FP32's range.

A row's largest entry is below 2^15. Rows whose exponents differ by 29 or more leave the slices, and
are multiplied in FP32; so hi ≥ 2^-14 is a normal number in those that stay, |x − hi| ≤ 2^-11 |x|
has 13 bits of x's 24 left, of which lo holds 11: an entry loses 2 u of itself at most. lo·lo, which
is dropped, is at most 4 u |a||b|: 8 u in all.

Sums, with what tensor cores do as measured on an H200 (`model/devices`): they cut the 16 products
of an instruction and the sum so far at 2^-25 of the largest one's power of two, and the result at
2^-23 of itself. Of hi·hi that is n/2 + 2.5 ⌈n/16⌉ u of |A||B| up to n = 32, where its sums enter a
total that rounds; 21 u, and n/32 u for the total, beyond. The cross terms stay in the tensor cores
over all of n, but are 2^-11 of the products: n/500 u. One more rounding adds both: up to n = 32
that is 9.5 + 0.67 n, beyond 30 + n/30.

From n = 128 on the exponents of a row that stays may differ by nearly T = 29 + ⌊(⌊log2 n⌋ − 5)/2⌋,
36 at most, so that few rows of usual data leave. Then hi may be subnormal, by s = 2^(T − 29), which
is √(n/32) at most, and 128. Where both are, lo·lo is 2^(2T − 80) ≤ n/8 u |a||b|; tensor cores take
their product for 2^(2T − 58) ≤ n/32 times what it is, and cut by that: 8.5 n/32 u more; rounding lo
loses 4 s u; and the cross terms are s times as large: s n/500 u. In all less than
25 + 0.43 n + 0.71 √n + s n/500: less than 12 + n, and than n, which is an FP32 product's own bound.

Tensor cores truncate, so a sum of products of one sign comes out too small: by 3 u if it is
promoted every 64 of K, by 1.5 u every 32, which is less than what rounding leaves of a sequential
FP32 chain from K = 48 on. Sums of fewer products are left to the native product (`select`).
"""

from typing import Final

from mixpert_py.runtime.scheme import Scheme, Term
from mixpert_py.runtime.schemes.wide_range import WIDER
from mixpert_py.runtime.splitter import FP16, FloatSlices

LOW: Final = 12  # powers of two that the low slice is scaled by: 2^3 · 2^12 is below 2^16
SPAN: Final = 29

SLICES = FloatSlices(FP16, 2, step=LOW, scaled=True, span=SPAN)

FP16X3 = Scheme(
    "fp16x3",
    FP16,
    SLICES,
    SLICES,
    (Term(0, 1, -LOW, 0), Term(1, 0, -LOW, 0), Term(0, 0, 0, 1)),
    error=1.7e-7,
    promotion=32,
    deferred=True,
    wider=WIDER,
)

SCHEMES = (FP16X3,)
