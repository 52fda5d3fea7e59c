"""`int8x1` … `int8x10`: balanced digits in units per row of A, column of B, and block of K.

A triangle of terms, i + j < slices, drops what lies below the last digit; x8 adds order 3. Up to
three slices the units are fitted, and one block is all of K: nothing is promoted before the end.
Six terms make 3.9e-7 so at K = 1024; in bare powers of two 6.0e-7, and 5.1e-7 in blocks of 128.
Integers up to ±32 639, and what else two digits hold, are not fitted: six terms are exact there,
and three where one operand is within ±127.
`int8x10` is for operands whose entries spread: bare powers of two, whose digits hold every float32
within 2^8 of its block's largest, and short blocks, which follow the operand closely. Over all of K
it makes 2.5e-8 on normal data, but up to 40 times the error where the size changes along K.

`mixpert-full`, `mixpert-I` … `mixpert-IV` (MixPert 2024, §3.2–3.3): 7-bit slices of
magnitudes under one exponent per operand tile.
A tile is 16 × 32 of A, 32 × 8 of B. Levels I–IV round to three digits at 2^(emax − 20) and multiply
digits 0 … l of A with 0 … r of B; `mixpert-full` has a fourth digit.
"""

import math
from typing import Final

from mixpert_py.runtime.scheme import Scheme, triangle
from mixpert_py.runtime.splitter import INT8, Digits

WIDTH: Final = 8

# With it six terms keep grade B. They drop A_1 · B_2 + A_2 · B_1 + A_2 · B_2, where
# ‖A_p‖ ≤ √(LOWER_LIMIT · K) · 2^(−7 − 8 p) · ‖A‖: 0.752 of K · 2^-24 · ‖A‖ ‖B‖, the grade's own.
# Random digits stay below the limit, at 2^14 / 3 in a row that one entry rules.
LOWER_LIMIT: Final = 0.75 * 2**13


def digits(products: int, splitter: Digits, order: int, error: float) -> Scheme:
    """Terms (i, j) with i + j ≤ order of as many slices."""
    terms = triangle(order, splitter.count, splitter.count, WIDTH)
    return Scheme(f"int8x{products}", INT8, splitter, splitter, terms, error)


def fitted(slices: int, lower_limit: float = math.inf) -> Digits:
    """Digits in fitted units, over all of K."""
    return Digits(slices, WIDTH, block=None, fitted=True, lower_limit=lower_limit)


INT8X10 = digits(10, Digits(4, WIDTH, block=128), 3, error=6.1e-8)
INT8X8 = digits(8, fitted(3), 3, error=1.9e-7)
INT8X6 = digits(6, fitted(3, LOWER_LIMIT), 2, error=3.9e-7)
INT8X3 = digits(3, fitted(2), 1, error=7.5e-5)
INT8X1 = digits(1, fitted(1), 0, error=1.1e-2)


SEVEN: Final = 7  # bits of a magnitude
STRETCH = 32
ROWS_OF_A = 16
COLUMNS_OF_B = 8


def level(name: str, left: int, right: int, order: int, *, error: float, depth: int = 3) -> Scheme:
    """`left` digits of A times `right` of B, those with i + j ≤ order."""
    return Scheme(
        f"mixpert-{name}",
        INT8,
        Digits(left, SEVEN, depth, ROWS_OF_A, STRETCH),
        Digits(right, SEVEN, depth, COLUMNS_OF_B, STRETCH),
        triangle(order, left, right, SEVEN),
        error,
    )


SCHEMES = (
    *(INT8X10, INT8X8, INT8X6, INT8X3, INT8X1),
    level("full", 4, 4, order=3, depth=4, error=1.2e-7),
    level("IV", 3, 3, order=3, error=8.1e-7),
    level("III", 3, 2, order=3, error=1.5e-4),
    level("II", 2, 3, order=3, error=1.5e-4),
    level("I", 2, 2, order=2, error=2.5e-4),
)
