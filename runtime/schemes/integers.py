"""Exact products of integers on the GPU, by the fewest INT8 products: parts of the scheme `crt`.

Packing takes entries as they are, as digits of base 256 or modulo each modulus, and records between
which bounds they are. Where that is more than the scheme holds, or an entry is no integer, the
product is made anew.

*Digits*: one or two of each operand, all of them within [−128, 127] or all within [0, 255]:

    a = Σ a_i 256^i,   b = Σ b_j 256^j,   A·B = Σ_o S_o 256^o,   S_o = Σ_{i+j=o} A_i·B_j.

Bytes take one product, two digits and a byte two, two digits and two digits four. Sums are made in
INT32, lowest order first. Of each order a byte is put aside, and the rest is carried into the next,

    T_o = S_o + ⌊T_(o−1) / 256⌋,   A·B = T_last 256^last + Σ_o (T_o mod 256) 256^o,

which is exact as long as all |T_o| < 2^31, for two digits up to K = 65,000, and is below 2^47.

*Residues*: as `residues` says of integers, as many moduli as K max|a| max|b| ≤ P/2 · (1 − 2^-20)
needs, where these are fewer, or digits do not hold the operands.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from mixpert_py.runtime.scheme import Scheme, Term
from mixpert_py.runtime.schemes.residues import INT32, fewest_moduli
from mixpert_py.runtime.splitter import INT8, Residues

BASE: Final = 256  # of digits
MOST_DIGITS: Final = 2
ABOVE: Final = 2.0**40  # from which records count down
# Beyond which integers are not looked for: no bit in the lower half of a float64.
SMALL: Final = 2.0**21
FEWER: Final = 14  # moduli, than which integers must need fewer: so many make any product


class Bounds(NamedTuple):
    """The smallest and the largest of an operand's entries and 0."""

    smallest: float
    largest: float

    @classmethod
    def of(cls, record: Sequence[float]) -> "Bounds | None":
        """The bounds that kernels have recorded; None if entries are not integers, or too large."""
        largest, opposite = (ABOVE - min(float(number), ABOVE) for number in record)
        return cls(-opposite, largest) if max(largest, opposite) < SMALL else None


@dataclass(frozen=True, slots=True)
class Integers(Residues):
    """Integers as they are: residues of them, or, where all moduli are BASE, digits, the lowest
    first. signed: whether digits are within [−128, 127]; else within [0, 255].
    """

    signed: bool = True

    @property
    def are_digits(self) -> bool:
        return self.moduli[-1] == BASE

    def hold(self, bounds: Bounds) -> bool:
        """Whether the digits represent all such entries."""
        ones = ((1 << 8 * self.count) - 1) // 255
        least, most = (-128, 127) if self.signed else (0, 255)
        return least * ones <= bounds.smallest and bounds.largest <= most * ones

    def largest_digits(self, bounds: Bounds) -> tuple[int, ...]:
        """Upper bounds for the absolute value of each digit of such entries."""
        largest = int(max(map(abs, bounds)))
        if self.count == 1:
            return (largest,)
        return (128, largest + 128 >> 8) if self.signed else (255, largest >> 8)


DIGITS: Final = tuple(
    Integers((BASE,) * count, signed)
    for count in range(1, MOST_DIGITS + 1)
    for signed in (True, False)
)


def digits_of(made: Scheme) -> tuple[Integers, Integers] | None:
    """The digits of A and of B that a scheme multiplies; None if it has none."""
    left, right = made.left, made.right
    if isinstance(left, Integers) and isinstance(right, Integers) and left.are_digits:
        return left, right
    return None


@lru_cache(maxsize=64)
def by_digits(left: Integers, right: Integers) -> Scheme:
    """The scheme by which integers of such digits are multiplied."""
    terms = tuple(
        Term(i, j, 8 * (i + j), accumulator=i + j)
        for i in range(left.count)
        for j in range(right.count)
    )
    name = "".join(f"{side.count}{'s' if side.signed else 'u'}" for side in (left, right))
    return Scheme(f"crt of integers {name}", INT8, left, right, terms, 0.0)


@lru_cache(maxsize=64)
def by_residues(moduli: tuple[int, ...]) -> Scheme:
    """The scheme by which integers are multiplied modulo these."""
    splitter = Integers(moduli)
    terms = tuple(Term(place, place, accumulator=place) for place in range(len(moduli)))
    return Scheme(f"crt of integers {len(moduli)}", INT8, splitter, splitter, terms, 0.0)


def scheme_for(left: Bounds | None, right: Bounds | None, k: int) -> Scheme | None:
    """The scheme of the fewest products by which A·B is exact; None where there is none, or it
    takes as many as any product.
    """
    if left is None or right is None:
        return None
    found, moduli = _digits_for(left, right, k), fewest_moduli(left, right, k)
    if moduli is None or moduli == INT32 or (found and found.products <= len(moduli)):
        return found
    return by_residues(moduli) if len(moduli) < FEWER else None


def _digits_for(left: Bounds, right: Bounds, k: int) -> Scheme | None:
    sides = [next((some for some in DIGITS if some.hold(bounds)), None) for bounds in (left, right)]
    if sides[0] is None or sides[1] is None:
        return None
    made = by_digits(sides[0], sides[1])
    return made if is_exact(made, left, right, k) else None


def is_exact(made: Scheme, left: Bounds | None, right: Bounds | None, k: int) -> bool:
    """Whether a scheme for integers makes the exact product of such operands."""
    if left is None or right is None:
        return False
    digits = digits_of(made)
    if digits is None:
        largest = k * int(max(map(abs, left))) * int(max(map(abs, right)))
        assert isinstance(made.left, Integers)
        return largest <= made.left.largest
    if not (digits[0].hold(left) and digits[1].hold(right)):
        return False
    ours, its = digits[0].largest_digits(left), digits[1].largest_digits(right)
    sums = [0] * (len(ours) + len(its) - 1)
    for term in made.terms:
        sums[term.accumulator] += k * ours[term.left] * its[term.right]
    carried = 0
    for total in sums:
        if total + carried >= 1 << 31:
            return False
        carried = (total + carried >> 8) + 1  # of negative sums the quotient is rounded down
    return True
