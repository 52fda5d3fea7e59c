"""`fp16x3`: two FP16 slices of operands brought into FP16's range row by row, column by column.

One accumulator, promoted every 64 of K: tensor cores truncate what they add, so long sums drift.
"""

from mixpert_py.runtime.scheme import Scheme, Term
from mixpert_py.runtime.splitter import FP16, FloatSlices

SLICES = FloatSlices(FP16, 2, scaled=True)

FP16X3 = Scheme(
    "fp16x3", FP16, SLICES, SLICES, (Term(0, 1), Term(1, 0), Term(0, 0)), error=1.9e-7, promotion=64
)

SCHEMES = (FP16X3,)
