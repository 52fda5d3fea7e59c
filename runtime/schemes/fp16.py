"""`fp16`: the plain half-precision product, operands rounded to nearest."""

from mixpert_py.runtime.scheme import Scheme, Term
from mixpert_py.runtime.splitter import FP16, FloatSlices

HALF = FloatSlices(FP16, 1)

SCHEMES = (Scheme("fp16", FP16, HALF, HALF, (Term(0, 0),), error=2.9e-4),)
