"""Peers with FP32's range: `bf16x6` (APE), `bf16x9` (cuBLAS on Blackwell), `tf32x3` (CUTLASS).

Smaller terms come first. Rows and columns are scaled, which changes no digit: it keeps the low
slices off the bottom of the range, and takes float64 operands of any exponent. To 2^43: so sums of
K ≤ 2^24 products stay below 2^110, of FP32's 2^128 units' significands may take 2^16, and products
of entries 2^-103 of their row's and column's largest, 2^-120, are above its smallest normal number.
Rows that reach below 2^-94, from K = 128 on 2^-(94 + ⌊(⌊log2 K⌋ − 5) / 2⌋), leave the slices.

`bf16x6` keeps the bound of `fp16x3` from K = 128 on, and so is what takes its place where many rows
leave that scheme's slices. As `WIDER` it lets rows of float32 numbers below 2^20 stay whatever they
span: kernel matrices and probabilities fall to 2^-149. All of those are multiples of that, scaled
of 2^-126, so slices lose nothing. What their sums lose at the bottom of FP32's range, 2^-148 of a
product of six terms with a row's and a column's largest at 2^43, is 2^(e + f − 234) in the
operands' own units, with those below 2^e and 2^f. Rows that reach 2^62 leave, so that is 2^-152, of
the 2^-149 that an FP32 product may lose.

Of the bound: with u = 2^-24, of (|A||B|)ij: three slices hold a float32, and terms
that are dropped are 1 u. A step of 32 of K is 12 instructions, which lose 10.5 u of its products
each at most (see `fp16x3`): 126 u in all; then K/32 additions to the total and 2 roundings. So
129 + K/32 ≤ 12 + K from K = 121 on.
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


BF16X6 = Scheme(
    "bf16x6", BF16, BF16_SLICES, BF16_SLICES, descending(2, 3), error=1.4e-7, promotion=64
)
WHOLE_SLICES = replace(BF16_SLICES, whole=(20, 62))
WIDER = replace(BF16X6, left=WHOLE_SLICES, right=WHOLE_SLICES)

SCHEMES = (
    Scheme("bf16x9", BF16, BF16_SLICES, BF16_SLICES, descending(4, 3), error=1.4e-7, promotion=64),
    BF16X6,
    Scheme("tf32x3", TF32, TF32_SLICES, TF32_SLICES, descending(1, 2), error=1.9e-7, promotion=64),
)
