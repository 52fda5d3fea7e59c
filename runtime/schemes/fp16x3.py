"""`fp16x3`: two FP16 slices of operands brought into FP16's range row by row, column by column.

hi = RN(x), lo = RN((x − hi) · 2^12): scaled, so that low slices do not fall below FP16's smallest
number where entries of a row differ in size. Without outliers, with u = 2^-24 and n = K,

    |C − Ĉ|ij ≤ (12 + n) · u · (|A||B|)ij + n · 2^-149        on every input that does not overflow.

An entry loses 2 u of itself at most by the rounding of lo: |x − hi| ≤ 2^-11 |x| has 13 bits of x's
24 left, of which FP16 holds 11. lo·lo, which is dropped, is at most 4 u |a||b|: 8 u in all. Below
2^-28 of its row's largest entry lo is subnormal, and an entry 2^-t of the largest loses 2^(t − 51)
of itself. Rows that reach below 2^-(25 + ⌊log2 n⌋) leave the slices, and are multiplied in FP32; in
those that stay, that is n / 4 · u at most, of each operand.
Sums: hi·hi is promoted every 64 of K. Tensor cores, as measured on an H200 (`model/devices`), cut
the 16 products of an instruction and the sum so far at 2^-25 of the largest, and the result at
2^-23 of itself: within 64 of K at most four times 10.5 u, for K < 64 at most n / 2 + 3 u, of the
products' magnitudes. Totals round once every 64 of K. The cross terms stay in the tensor cores over
all of K: what is cut off there is 2^-12 n u, since these are 2^-11 of the products at most. So sums
add n / 4 + 4 u at most from n = 512 on, and n / 2 + 4 below. From n = 512 on that is (12 + 3 n / 4)
· u in all, less than the n · u of an FP32 product.
"""

from typing import Final

from mixpert_py.runtime.scheme import Scheme, Term
from mixpert_py.runtime.schemes.wide_range import BF16X6
from mixpert_py.runtime.splitter import FP16, FloatSlices

LOW: Final = 12  # powers of two that the low slice is scaled by: 2^3 · 2^12 is below 2^16
SPAN: Final = 25

SLICES = FloatSlices(FP16, 2, step=LOW, scaled=True, span=SPAN)

FP16X3 = Scheme(
    "fp16x3",
    FP16,
    SLICES,
    SLICES,
    (Term(0, 1, -LOW, 0), Term(1, 0, -LOW, 0), Term(0, 0, 0, 1)),
    error=1.7e-7,
    promotion=64,
    deferred=True,
    wider=BF16X6,
)

SCHEMES = (FP16X3,)
