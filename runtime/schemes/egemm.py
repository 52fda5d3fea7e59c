"""EGEMM-TC 2021, alg. 1, fig. 4: round-split into two FP16 slices, four terms, lo · lo first.

21 bits: the low slice is signed because the high one is rounded: that sign is the 21st bit.
"""

from mixpert_py.runtime.scheme import Scheme, Term
from mixpert_py.runtime.splitter import FP16, FloatSlices

ROUND_SPLIT = FloatSlices(FP16, 2)

SCHEMES = (
    Scheme(
        "egemm",
        FP16,
        ROUND_SPLIT,
        ROUND_SPLIT,
        (Term(1, 1), Term(1, 0), Term(0, 1), Term(0, 0)),
        error=2.9e-7,
    ),
)
