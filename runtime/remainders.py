"""The Chinese remainder theorem in FP64: its weights in parts, and how many moduli a sum needs.

An integer c with 2 |c| < P, P the product of moduli p_l without common factors, is told by its
residues r_l: c = Σ w_l r_l − Q P, with w_l ≡ 1 modulo p_l and ≡ 0 modulo the others, and Q the
integer next to Σ w_l r_l / P. The weights, |w_l| ≤ P / 2, and P itself are split into parts of 42
bits, each the multiple of a power of two that is nearest to what those above it leave. A part times
a residue, |r_l| ≤ 2^7, summed over 18 moduli and less Q times P's part, |Q| ≤ 18 · 64, is below
2^41 · 18 · (128 + 64) < 2^53 units: all of that is exact.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

PART_BITS = 42
MOST_MODULI = 18  # for which sums of parts are exact


@dataclass(frozen=True, slots=True)
class Theorem:
    """weights[l][j]: part j of modulus l's weight, the highest first. product: P's parts. units:
    what parts are multiples of.
    """

    weights: tuple[tuple[float, ...], ...]
    product: tuple[float, ...]
    units: tuple[float, ...]


@lru_cache(maxsize=64)
def theorem(moduli: tuple[int, ...]) -> Theorem:
    """The weights of at most MOST_MODULI moduli."""
    product = math.prod(moduli)
    count = max(1, -(-product.bit_length() // PART_BITS))
    units = tuple(1 << PART_BITS * place for place in reversed(range(count)))
    return Theorem(
        tuple(_parts(_weight(product, p), units) for p in moduli),
        _parts(product, units),
        tuple(map(float, units)),
    )


def _weight(product: int, modulus: int) -> int:
    others = product // modulus
    weight = others * pow(others, -1, modulus)
    return weight - product if 2 * weight > product else weight


def _parts(number: int, units: tuple[int, ...]) -> tuple[float, ...]:
    parts = []
    for unit in units:
        part = (number + unit // 2) // unit * unit
        parts.append(float(part))
        number -= part
    return tuple(parts)
