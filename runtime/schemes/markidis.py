"""Markidis et al. 2018, eq. 2 and 3: a second FP16 slice, of A only or of both operands.

`markidis-trunc` truncates, as EGEMM-TC, fig. 4a, portrays the scheme.
"""

from mixpert_py.runtime.scheme import Scheme, Term
from mixpert_py.runtime.schemes.fp16 import HALF
from mixpert_py.runtime.splitter import FP16, FloatSlices

ROUNDED = FloatSlices(FP16, 2)
TRUNCATED = FloatSlices(FP16, 2, rounding="zero")
FOUR = (Term(0, 0), Term(0, 1), Term(1, 0), Term(1, 1))

SCHEMES = (
    Scheme("markidis-a", FP16, ROUNDED, HALF, (Term(0, 0), Term(1, 0)), error=2.1e-4),
    Scheme("markidis-ab", FP16, ROUNDED, ROUNDED, FOUR, error=2.9e-7),
    Scheme("markidis-trunc", FP16, TRUNCATED, TRUNCATED, FOUR, error=3.5e-7),
)
