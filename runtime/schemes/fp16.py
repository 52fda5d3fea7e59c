"""Schemes of plain FP16 slices: of one slice, or of two as they were published.

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

from mixpert_py.runtime.scheme import Scheme, Term
from mixpert_py.runtime.splitter import FP16, FloatSlices

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


SCHEMES = (
    Scheme("ootomo", FP16, SCALED, SCALED, cross_terms_apart(11), error=1.8e-7, promotion=16),
    Scheme("egemm", FP16, ROUNDED, ROUNDED, LOW_FIRST, error=2.9e-7),
    Scheme("legemm", FP16, BIT_CUT, BIT_CUT, cross_terms_apart(10), error=4.5e-7),
    Scheme("markidis-a", FP16, ROUNDED, HALF, (Term(0, 0), Term(1, 0)), error=2.1e-4),
    Scheme("markidis-ab", FP16, ROUNDED, ROUNDED, HIGH_FIRST, error=2.9e-7),
    Scheme("markidis-trunc", FP16, TRUNCATED, TRUNCATED, HIGH_FIRST, error=3.5e-7),
    Scheme("fp16", FP16, HALF, HALF, (Term(0, 0),), error=2.9e-4),
)
