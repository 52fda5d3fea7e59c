"""MixPert 2024, §3.2–3.3: 7-bit slices of magnitudes under one exponent per operand tile.

A tile is 16 × 32 of A, 32 × 8 of B. Levels I–IV round to three digits at 2^(emax − 20) and multiply
digits 0 … l of A with 0 … r of B; `mixpert-full` has a fourth digit.
"""

from typing import Final

from mixpert_py.runtime.scheme import Scheme, triangle
from mixpert_py.runtime.splitter import INT8, Digits

WIDTH: Final = 7
STRETCH = 32
ROWS_OF_A = 16
COLUMNS_OF_B = 8


def level(name: str, left: int, right: int, order: int, *, error: float, depth: int = 3) -> Scheme:
    """`left` digits of A times `right` of B, those with i + j ≤ order."""
    return Scheme(
        f"mixpert-{name}",
        INT8,
        Digits(left, WIDTH, depth, ROWS_OF_A, STRETCH),
        Digits(right, WIDTH, depth, COLUMNS_OF_B, STRETCH),
        triangle(order, left, right, WIDTH),
        error,
    )


SCHEMES = (
    level("full", 4, 4, order=3, depth=4, error=1.2e-7),
    level("IV", 3, 3, order=3, error=8.1e-7),
    level("III", 3, 2, order=3, error=1.5e-4),
    level("II", 2, 3, order=3, error=1.5e-4),
    level("I", 2, 2, order=2, error=2.5e-4),
)
