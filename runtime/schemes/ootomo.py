"""`ootomo`: cuMpSGEMM's scheme (LE-GEMM 2025, §5, ref. 43).

Rounded FP16 slices, the low one times 2^11; what the tensor core adds is short, 16 of K, and all
further additions are rounded to nearest in FP32 outside of it.
"""

from mixpert_py.runtime.scheme import Scheme, Term
from mixpert_py.runtime.splitter import FP16, FloatSlices

SLICES = FloatSlices(FP16, 2, step=11)

SCHEMES = (
    Scheme(
        "ootomo",
        FP16,
        SLICES,
        SLICES,
        (Term(0, 1, -11, 1), Term(1, 0, -11, 1), Term(0, 0)),
        error=1.8e-7,
        promotion=16,
    ),
)
