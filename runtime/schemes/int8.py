"""`int8x1` … `int8x10`: balanced digits, an exponent per row of A, column of B, and block of K.

A triangle of terms, i + j < slices, drops what lies below the last digit; x8 adds order 3. Short
blocks follow the operand closely; long ones, up to all of K, promote less often.
"""

from typing import Final

from mixpert_py.runtime.scheme import Scheme, triangle
from mixpert_py.runtime.splitter import INT8, Digits

WIDTH: Final = 8
BLOCK = 128


def digits(products: int, slices: int, order: int, error: float) -> Scheme:
    """Terms (i, j) with i + j ≤ order of as many slices."""
    splitter = Digits(slices, WIDTH, block=BLOCK)
    terms = triangle(order, slices, slices, WIDTH)
    return Scheme(f"int8x{products}", INT8, splitter, splitter, terms, error)


INT8X10 = digits(10, 4, 3, error=6.1e-8)
INT8X8 = digits(8, 3, 3, error=2.1e-7)
INT8X6 = digits(6, 3, 2, error=5.1e-7)
INT8X3 = digits(3, 2, 1, error=9.8e-5)
INT8X1 = digits(1, 1, 0, error=1.3e-2)

SCHEMES = (INT8X10, INT8X8, INT8X6, INT8X3, INT8X1)
