"""Peers with FP32's range: `bf16x6` (APE), `bf16x9` (cuBLAS on Blackwell), `tf32x3` (CUTLASS).

Smaller terms come first. Rows and columns are scaled, which changes no digit: it keeps the low
slices off the bottom of the range, and takes float64 operands of any exponent. To 2^43: so sums of
K ≤ 2^24 products stay below 2^110, of FP32's 2^128 units' significands may take 2^16, and products
of entries 2^-103 of their row's and column's largest, 2^-120, are above its smallest normal number.
Rows that reach below 2^-94, from K = 128 on 2^-(94 + ⌊(⌊log2 K⌋ − 5) / 2⌋), leave the slices.

`bf16x6` keeps the bound of `fp16x3`, and so is what takes its place where many rows leave that
scheme's slices, or where products are too small to find out. As `WIDER` it lets rows of float32
numbers below 2^20 stay whatever they span: kernel matrices and probabilities fall to 2^-149. All of
those are multiples of that, scaled of 2^-126, so slices lose nothing. What their sums lose at the
bottom of FP32's range, 2^-148 of a product of six terms with a row's and a column's largest at
2^43, is 2^(e + f − 234) in the operands' own units, with those below 2^e and 2^f. Rows that reach
2^62 leave, so that is 2^-152, of the 2^-149 that an FP32 product may lose.

Of the bound: with u = 2^-24, of (|A||B|)ij, and n = K: three slices hold a float32, and terms that
are dropped are 1 u. Products of the first slices are promoted every 32 of K, as those of `fp16x3`:
21 u, and n/32 u for the total. The other terms stay in the tensor cores over all of n. They are
2^-8 of the products, and of that an instruction loses 10.5 u at most: n/78 u for five in 16 of K.
Two more roundings add both: 24 + n/23 u, and up to n = 32, where the first are n/2 + 2.5 ⌈n/16⌉ u,
less than 6 + 0.7 n. Both are less than 12 + n.
"""

from dataclasses import replace

from mixpert_py.runtime.scheme import Scheme, Term
from mixpert_py.runtime.splitter import BF16, TF32, FloatSlices

BF16_SLICES = FloatSlices(BF16, 3, scaled=True, highest=43, span=94)
TF32_SLICES = FloatSlices(TF32, 2, scaled=True, highest=43, span=94)


def descending(order: int, count: int) -> tuple[Term, ...]:
    """Terms (i, j) with i + j ≤ order, the highest order first, in one accumulator."""
    return tuple(
        Term(i, total - i)
        for total in range(order, -1, -1)
        for i in range(total + 1)
        if i < count and total - i < count
    )


# The first slices' product in an accumulator of its own, which is the one that is promoted.
BF16X6_TERMS = (*descending(2, 3)[:-1], Term(0, 0, accumulator=1))
BF16X6 = Scheme(
    "bf16x6",
    BF16,
    BF16_SLICES,
    BF16_SLICES,
    BF16X6_TERMS,
    error=1.2e-7,
    promotion=32,
    deferred=True,
)
WHOLE_SLICES = replace(BF16_SLICES, whole=(20, 62))
WIDER = replace(BF16X6, left=WHOLE_SLICES, right=WHOLE_SLICES)

SCHEMES = (
    Scheme("bf16x9", BF16, BF16_SLICES, BF16_SLICES, descending(4, 3), error=1.4e-7, promotion=64),
    BF16X6,
    Scheme("tf32x3", TF32, TF32_SLICES, TF32_SLICES, descending(1, 2), error=1.9e-7, promotion=64),
)
