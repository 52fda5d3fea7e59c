"""`crt7` … `crt16`: integers modulo so many numbers, put together by the remainder theorem.

After Ozaki scheme II (Ozaki, Uchino, Imamura 2025). Each modulus is one INT8 product and buys four
bits of each operand. Nothing here depends on an order of summation, so every backend has the same
bits. C = A·B, K the inner dimension, P the product of the scheme's moduli.

*Scale*: a power of two for each row of A, and column of B. With x the row, 2^(e−1) ≤ max|x| < 2^e,

    S = Σ ⌈|x_k| · 2^(15−e)⌉²            at most K · 2^30, exact in 64 bits
    f = the largest integer with S · 4^f ≤ limit(K)
    s = f + 15 − e,   x' = RN(x · 2^s)   to nearest even, once.

limit(K), `Residues.limit`, is (√(P/2 · (1 − 2^-20)) − √K/2)², rounded down. √S · 2^f is at least
the norm of x · 2^s, and rounding adds √K/2 to it at most: so ‖a'‖ ‖b'‖ ≤ P/2 · (1 − 2^-20), and by
Cauchy–Schwarz that bounds |Σ a'b'| on every input. The margin of 2^-21 P is what an estimate of the
theorem's quotient may be off by. Rounding to nearest loses half of what truncation does, and has no
bias: on sums of one sign that is √K, not K. A row of zeros has s = 0; one with NaN or Inf is left
out as zeros, and its part of C is made natively.

*Residues*: x' modulo p in [−p/2, p/2), INT8. *Products*: one for each modulus, in INT32, exact to
K = 2^17; modulo 256 sums may wrap. Longer sums are reduced modulo p every 2^17 of K, and added.

*Theorem*: c' is the integer within P/2 that has these residues. The result is c' rounded to float64
once, to nearest even, times 2^-(s_i + s_j), which rounds again only where the result is subnormal;
of float32 operands it is that number as float32. `theorem` has the weights.

*Bound*, with u = 2^-53 and 2^L = √(P/2), for K ≤ 2^23:

    |C − Ĉ|ij ≤ 2.2 · √K · 2^-L · ‖A(i,:)‖ ‖B(:,j)‖ + u |Ĉ|ij

(of float32 operands u = 2^-24 + 2^-52; up to K + 2 times the smallest number of the result). A unit
2^-s is less than 2 √S · 2^(e−15) / √limit, and with y = |x| · 2^(15−e), max y ≥ 2^14, S is at most
Σ (y + 1)² ≤ (1 + 2^-13 + √K · 2^-14 + K · 2^-28) ‖y‖²: so it is below 2.2 · 2^-L ‖x‖. An entry
loses half of that at most, and K of them √K/2 by their 2-norm, on either side. The bound is the
same on operands times any power of two. From 14 moduli on its first summand is below K u ‖A(i,:)‖
‖B(:,j)‖, the normwise bound of an FP64 product. It does not bound components: entries far below
their row's norm lose digits, as wherever a row has one unit.

*Complex* operands whose parts are of one size are multiplied as real ones of twice the length,

    Re C = [Re A, −Im A] · [Re B; Im B]        Im C = [Re A, Im A] · [Im B; Re B]

each part with the bound above for 2K, and the norms of complex rows. So both parts of a row have
one scale. Whether parts are of one size, `schemes.crt` says: the density of these rows is that of
14 moduli. If not, the four products of parts are made, each with scales of its own.

Where s² ≡ −1 modulo p, Re z + s Im z and Re z − s Im z modulo p take sums to sums and products to
products (the quadratic residue number system). So two INT8 products for each modulus make U and V,
and Re C ≡ (U + V) / 2, Im C ≡ (U − V) / 2s. There is s where p is a product of primes that are 1
modulo 4: GAUSSIAN. Of these, the fewest whose product is at least P replace a scheme's moduli: the
integers and their products stay as they are, and so do all bits. `crt14` takes 15, 30 products.

*Integers*: where both operands hold integers, none beyond ±2^53, and the fewest moduli with
K max|a| max|b| ≤ P/2 · (1 − 2^-20) are no more than the scheme's, s = 0 and these are used. Where
each operand is within [−128, 127] or [0, 255], and K max|a| max|b| < 2^31, one product in INT32 is
the result. Either is the exact product, rounded once: see `fewest_moduli`.

*Weights*: an integer c with 2 |c| < P, P the product of moduli p_l without common factors, is told
by its residues r_l: c = Σ w_l r_l − Q P, with w_l ≡ 1 modulo p_l and ≡ 0 modulo the others, and Q
the integer next to Σ w_l r_l / P. The weights, |w_l| ≤ P / 2, and P itself are split into parts of
42 bits, each the multiple of a power of two that is nearest to what those above it leave. A part
times a residue, |r_l| ≤ 2^7, summed over 16 moduli and less Q times P's part, |Q| ≤ 16 · 64, is
below 2^41 · 16 · (128 + 64) < 2^53 units: all of that is exact. Of complex C w_l is ≡ 1/2 or 1/2s,
parts have 41 bits, and sums and differences of residues twice the size: 18 moduli fit as well.
"""

import math
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from mixpert_py.runtime.scheme import Scheme, Term
from mixpert_py.runtime.splitter import INT8, Residues

# The largest numbers up to 256 of which no two have a common factor, one after the other.
MODULI: Final = (
    *(256, 255, 253, 251, 247, 241, 239, 233, 229),
    *(227, 223, 217, 211, 199, 197, 193),
)
# The same of numbers all of whose prime factors are 1 modulo 4.
GAUSSIAN: Final = (
    *(241, 233, 229, 221, 205, 197, 193, 181, 173),
    *(157, 149, 137, 113, 109, 101, 97, 89, 73),
)
WHOLE: Final = 2.0**53  # float64 holds all integers up to it
INT32: Final = (1 << 32,)  # what a sum of INT8 products is modulo anyway

# Number of moduli → Frobenius error of float64 products.
ERRORS: Final = {
    16: 4.7e-17,  # the rounding of the result
    15: 5.6e-17,
    14: 7.3e-16,
    13: 1.1e-14,
    12: 1.9e-13,
    11: 1.9e-12,
    10: 2.4e-11,
    9: 3.8e-10,
    8: 6.1e-9,
    7: 9.7e-8,
}


def scheme(count: int) -> Scheme:
    """The scheme of the first `count` moduli."""
    splitter = Residues(MODULI[:count])
    terms = tuple(Term(place, place, accumulator=place) for place in range(count))
    return Scheme(f"crt{count}", INT8, splitter, splitter, terms, ERRORS[count])


SCHEMES = tuple(scheme(count) for count in ERRORS)


def fewest_moduli(
    left: tuple[float, float], right: tuple[float, float], k: int
) -> tuple[int, ...] | None:
    """The moduli by which a product of integers is exact: INT32, or the first few of MODULI.

    left, right: the smallest and the largest entry of A, and of B. None where all are too few, or
    an entry is beyond ±2^53.
    """
    if max(map(abs, (*left, *right))) > WHOLE:
        return None
    largest = k * int(max(map(abs, left))) * int(max(map(abs, right)))
    are_bytes = all(-128 <= x <= y <= 127 or 0 <= x <= y <= 255 for x, y in (left, right))
    if largest < 1 << 31 and are_bytes:
        return INT32
    for count in range(2, len(MODULI) + 1):
        if largest <= Residues(MODULI[:count]).largest:
            return MODULI[:count]
    return None


@lru_cache(maxsize=64)
def of_complex(moduli: tuple[int, ...]) -> tuple[int, ...]:
    """The fewest of GAUSSIAN whose product is at least the product of some of MODULI."""
    wanted = math.prod(moduli)
    counts = range(1, len(GAUSSIAN) + 1)
    return next(GAUSSIAN[:i] for i in counts if math.prod(GAUSSIAN[:i]) >= wanted)


def root(modulus: int) -> int:
    """The least s with s² ≡ −1 modulo one of GAUSSIAN."""
    return next(s for s in range(1, modulus) if (s * s + 1) % modulus == 0)


PART_BITS = {"real": 42, "sum": 41, "difference": 41}

Kind = Literal["real", "sum", "difference"]


class Theorem(NamedTuple):
    """weights[l][j]: part j of modulus l's weight, the highest first. product: P's parts. units:
    what parts are multiples of.
    """

    weights: tuple[tuple[float, ...], ...]
    product: tuple[float, ...]
    units: tuple[float, ...]


@lru_cache(maxsize=64)
def theorem(moduli: tuple[int, ...], kind: Kind = "real") -> Theorem:
    """The weights of some of MODULI, or of GAUSSIAN: of U + V for Re C, or of U − V for Im C."""
    product, bits = math.prod(moduli), PART_BITS[kind]
    count = max(1, -(-product.bit_length() // bits))
    units = tuple(1 << bits * place for place in reversed(range(count)))
    return Theorem(
        tuple(_parts(_weight(product, p, _divisor(p, kind)), units) for p in moduli),
        _parts(product, units),
        tuple(map(float, units)),
    )


def _divisor(modulus: int, kind: Kind) -> int:
    return 1 if kind == "real" else 2 * (root(modulus) if kind == "difference" else 1)


def _weight(product: int, modulus: int, divisor: int) -> int:
    others = product // modulus
    weight = others * pow(others * divisor, -1, modulus)
    return weight - product if 2 * weight > product else weight


def _parts(number: int, units: tuple[int, ...]) -> tuple[float, ...]:
    parts = []
    for unit in units:
        part = (number + unit // 2) // unit * unit
        parts.append(float(part))
        number -= part
    return tuple(parts)
