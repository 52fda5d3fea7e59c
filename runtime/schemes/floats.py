"""Schemes of floating-point slices: `fp16x3`, its peers with FP32's range, and published ones.

*Default.* `fp16x3`: two FP16 slices of operands brought into FP16's range row by row, column by
column.

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

*Peers.* Of FP32's range: `bf16x6` (APE), `bf16x9` (cuBLAS on Blackwell), `tf32x3` (CUTLASS).

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

*Published.* Schemes of plain FP16 slices: of one slice, or of two as they were published.

- `fp16` is the half-precision product of operands rounded to nearest.
- `markidis-a` and `markidis-ab` (Markidis et al. 2018, eq. 2 and 3) have a second slice, of A only
  or of both operands. `markidis-trunc` truncates, as EGEMM-TC, fig. 4a, portrays the scheme.
- `egemm` (EGEMM-TC 2021, alg. 1, fig. 4) is round-split, four terms, lo · lo first. It has 21 bits:
  the low slice is signed because the high one is rounded, and that sign is the 21st bit.
- `legemm` (LE-GEMM 2025, eq. 5–11, alg. 1) cuts bits, and has its low slice times 2^10. The two
  cross terms share an accumulator, divided by 2^10 once at the end; lo · lo is dropped.
- `ootomo` (cuMpSGEMM: LE-GEMM 2025, §5, ref. 43) rounds, and has its low slice times 2^11. What the
  tensor core adds is short, 16 of K, and all further additions are rounded to nearest in FP32
  outside of it.
"""

from dataclasses import replace
from typing import Final

from mixpert_py.runtime.scheme import Scheme, Term
from mixpert_py.runtime.splitter import BF16, FP16, TF32, FloatSlices

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
BF16_TERMS = (*descending(2, 3)[:-1], Term(0, 0, accumulator=1))
BF16X6 = Scheme(
    "bf16x6", BF16, BF16_SLICES, BF16_SLICES, BF16_TERMS, error=1.2e-7, promotion=32, deferred=True
)
WHOLE_SLICES = replace(BF16_SLICES, whole=(20, 62))
WIDER = replace(BF16X6, left=WHOLE_SLICES, right=WHOLE_SLICES)

WIDE_RANGE = (
    Scheme("bf16x9", BF16, BF16_SLICES, BF16_SLICES, descending(4, 3), error=1.4e-7, promotion=64),
    BF16X6,
    Scheme("tf32x3", TF32, TF32_SLICES, TF32_SLICES, descending(1, 2), error=1.9e-7, promotion=64),
)

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


HALF = FloatSlices(FP16, 1)
ROUNDED = FloatSlices(FP16, 2)
TRUNCATED = FloatSlices(FP16, 2, rounding="zero")
BIT_CUT = FloatSlices(FP16, 2, rounding="zero", step=10)
SCALED = FloatSlices(FP16, 2, step=11)

HIGH_FIRST = (Term(0, 0), Term(0, 1), Term(1, 0), Term(1, 1))
LOW_FIRST = (Term(1, 1), Term(1, 0), Term(0, 1), Term(0, 0))


def cross_terms_apart(step: int) -> tuple[Term, ...]:
    """Three terms, with the cross terms in an accumulator of their own, which is divided by
    2^step.
    """
    return Term(0, 1, -step, 1), Term(1, 0, -step, 1), Term(0, 0)


PUBLISHED = (
    Scheme("ootomo", FP16, SCALED, SCALED, cross_terms_apart(11), error=1.8e-7, promotion=16),
    Scheme("egemm", FP16, ROUNDED, ROUNDED, LOW_FIRST, error=2.9e-7),
    Scheme("legemm", FP16, BIT_CUT, BIT_CUT, cross_terms_apart(10), error=4.5e-7),
    Scheme("markidis-a", FP16, ROUNDED, HALF, (Term(0, 0), Term(1, 0)), error=2.1e-4),
    Scheme("markidis-ab", FP16, ROUNDED, ROUNDED, HIGH_FIRST, error=2.9e-7),
    Scheme("markidis-trunc", FP16, TRUNCATED, TRUNCATED, HIGH_FIRST, error=3.5e-7),
    Scheme("fp16", FP16, HALF, HALF, (Term(0, 0),), error=2.9e-4),
)


SCHEMES = (*WIDE_RANGE, FP16X3, *PUBLISHED)
