"""Entries that are no emulation: the original call, casts around it, and a choice per call."""

from mixpert_py.runtime.scheme import Alternative
from mixpert_py.runtime.schemes.crt import FEWEST
from mixpert_py.runtime.schemes.fp16x3 import FP16X3
from mixpert_py.runtime.schemes.residues import scheme
from mixpert_py.runtime.splitter import FP32_RATE, FP64_RATE, INT8_RATE

CRT14 = scheme(FEWEST)

SCHEMES = (
    Alternative("native", "native", INT8_RATE / FP32_RATE),
    Alternative("float64", "cast", INT8_RATE / FP64_RATE, dtype="float64"),
    # No less accurate than the native product, on every input: see `fp16x3`, which it is.
    Alternative("faithful", "choice", FP16X3.cost, FP16X3.error, products=FP16X3.products),
    # No less accurate than the native float64 product, on every input: see `crt`.
    Alternative("crt", "choice", CRT14.cost, CRT14.error, products=CRT14.products),
    Alternative("float32", "cast", INT8_RATE / FP32_RATE, error=3.4e-7, dtype="float32"),
)
