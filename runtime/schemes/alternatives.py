"""Entries that are no emulation: the original call, casts around it, and a choice per call."""

from mixpert_py.runtime.scheme import Alternative
from mixpert_py.runtime.splitter import FP32_RATE, FP64_RATE, INT8_RATE

SCHEMES = (
    Alternative("native", "native", INT8_RATE / FP32_RATE),
    Alternative("float64", "cast", INT8_RATE / FP64_RATE, dtype="float64"),
    # As dear as the dearest scheme it chooses.
    Alternative("faithful", "choice", 10.0, products=10),
    Alternative("float32", "cast", INT8_RATE / FP32_RATE, error=3.4e-7, dtype="float32"),
)
