"""Splits complex CuPy arrays into real and imaginary parts, and joins them, in one pass each."""

from functools import cache
from typing import Any

COMPLEX = {"float32": "complex64", "float64": "complex128"}
IN_CUDA = {"float32": "complex<float>", "float64": "complex<double>"}

# CuPy compiles with -ftz=true, under which its own float32 sums would take subnormals for zeros.
SUMS = {
    "float32": 'float x, y; asm("sub.rn.f32 %0, %1, %2;" : "=f"(x) : "f"(rr), "f"(ii)); '
    'asm("add.rn.f32 %0, %1, %2;" : "=f"(y) : "f"(ri), "f"(ir)); ',
    "float64": "double x = rr - ii, y = ri + ir; ",
}


def split(z: Any) -> Any:
    """Split z, complex64 or complex128 of shape s with any strides, into (2, *s) float32 or
    float64.
    """
    import cupy

    real = "float32" if z.dtype.char == "F" else "float64"
    parts = cupy.empty((2, *z.shape), real)
    _kernel(f"{COMPLEX[real]} z", f"{real} x, {real} y", "x = z.real(); y = z.imag();")(
        z, parts[0], parts[1]
    )
    return parts


def join(products: Any, out: Any) -> None:
    """Join products of parts, (2, 2, *s) or (2, *s), into the complex array `out` of shape s."""
    real = products.dtype.name
    text, made = f"z = {IN_CUDA[real]}(x, y);", f"{COMPLEX[real]} z"
    if products.ndim == out.ndim + 1:
        _kernel(f"{real} x, {real} y", made, text)(products[0], products[1], out)
        return
    given = ", ".join(f"{real} {name}" for name in ("rr", "ri", "ir", "ii"))
    (rr, ri), (ir, ii) = ([products[p, q] for q in range(2)] for p in range(2))
    _kernel(given, made, SUMS[real] + text)(rr, ri, ir, ii, out)


@cache
def _kernel(given: str, made: str, text: str) -> Any:
    import cupy

    return cupy.ElementwiseKernel(given, made, text, "mixpert_complex_parts")
