"""Exact products of integers on the GPU, by the fewest INT8 products: parts of the scheme `crt`.

Packing takes entries as they are, modulo each modulus, and records between which bounds they are.
Where that is more than the moduli hold, or an entry is no integer, the product is made anew. As
`residues` says of integers: bytes take one product in INT32, the others as many moduli as

    K max|a| max|b| ≤ P/2 · (1 − 2^-20).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from mixpert_py.runtime.scheme import Scheme, Term
from mixpert_py.runtime.schemes.residues import INT32, MODULI, fewest_moduli
from mixpert_py.runtime.splitter import INT8, Residues

BYTES: Final = MODULI[:1]  # modulo 256 bytes are what they are, with a sign or without
ABOVE: Final = 2.0**40  # from which records count down
MOST: Final = 2.0**30  # beyond which packing takes no entry
# Beyond which integers are not looked for: no bit in the lower half of a float64.
SMALL: Final = 2.0**21
FEWER: Final = 14  # moduli, than which integers must need fewer: so many make any product


@dataclass(frozen=True, slots=True)
class Integers(Residues):
    """Residues of integers as they are. signed: whether bytes are within [−128, 127], which counts
    where there is one product, in INT32.
    """

    signed: bool = True


class Bounds(NamedTuple):
    """Between which an operand's entries are, 0 included."""

    smallest: float
    largest: float

    @classmethod
    def of(cls, record: Sequence[float]) -> "Bounds | None":
        """What kernels have recorded; None where entries are not integers, or large."""
        largest, opposite = (ABOVE - min(float(number), ABOVE) for number in record)
        return cls(-opposite, largest) if max(largest, opposite) < MOST else None


@lru_cache(maxsize=256)
def scheme(moduli: tuple[int, ...], left_signed: bool, right_signed: bool) -> Scheme:
    """The scheme by which integers are multiplied as they are."""
    left, right = (Integers(moduli, signed) for signed in (left_signed, right_signed))
    terms = tuple(Term(place, place, accumulator=place) for place in range(len(moduli)))
    name = "".join("s" if signed else "u" for signed in (left_signed, right_signed))
    return Scheme(f"crt of integers {len(moduli)}{name}", INT8, left, right, terms, 0.0)


def scheme_for(left: Bounds | None, right: Bounds | None, k: int) -> Scheme | None:
    """The scheme of the fewest products by which A·B is exact; None where there is none, or it
    takes as many as any product.
    """
    if left is None or right is None:
        return None
    moduli = fewest_moduli(left, right, k)
    if moduli == INT32:
        return scheme(BYTES, *(bounds.largest < 128 for bounds in (left, right)))
    return scheme(moduli, True, True) if moduli and len(moduli) < FEWER else None


def is_exact(made: Scheme, left: Bounds, right: Bounds, k: int) -> bool:
    """Whether a scheme for integers makes the exact product of such operands."""
    splitter = made.left
    assert isinstance(splitter, Integers)
    if splitter.moduli == BYTES:
        return scheme_for(left, right, k) == made
    largest = k * int(max(map(abs, left))) * int(max(map(abs, right)))
    return largest <= splitter.largest
