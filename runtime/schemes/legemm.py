"""LE-GEMM 2025, eq. 5–11, alg. 1: bit-cut FP16 slices, the low one times 2^10.

The two cross terms share an accumulator, divided by 2^10 once at the end; lo · lo is dropped.
"""

from mixpert_py.runtime.scheme import Scheme, Term
from mixpert_py.runtime.splitter import FP16, FloatSlices

BIT_CUT = FloatSlices(FP16, 2, rounding="zero", step=10)

SCHEMES = (
    Scheme(
        "legemm",
        FP16,
        BIT_CUT,
        BIT_CUT,
        (Term(0, 1, -10, 1), Term(1, 0, -10, 1), Term(0, 0)),
        error=4.5e-7,
    ),
)
