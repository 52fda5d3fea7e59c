"""The parts of a scheme: a splitter for each operand, terms, and how their sums become the
result.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, NamedTuple

from mixpert_py.runtime.splitter import INT8_RATE, Digits, Element, FloatSlices, Residues, Splitter

# FP32 BLAS adds products of two digits, |d| ≤ 2^7, without error while the sum stays within 2^24:
# terms · chunk · 2^14 ≤ 2^24, with at most four terms in one accumulator. Balanced digits reach
# −128, so that 2^14 is reached.
EXACT_CHUNK = 256
# An INT32 accumulator is exact while terms · K · 2^14 < 2^31: for four terms up to K = 32 767, of
# which these are the whole chunks. Three terms would allow 170 chunks, but one constant for all
# makes one order of promotion. Beyond, partial sums are promoted.
EXACT_SEGMENT = 127 * EXACT_CHUNK
# The same of one term of residues, whose sums need only be right modulo p: modulo 256 they may
# wrap, and 127² · 2^17 < 2^31 for all others.
RESIDUE_CHUNK = 1024
RESIDUE_SEGMENT = 1 << 17


class Term(NamedTuple):
    """A slice product: slice `left` of A times slice `right` of B, times 2^weight.

    Terms of one accumulator have one weight and are added unscaled, in the order listed.
    """

    left: int
    right: int
    weight: int = 0
    accumulator: int = 0


class TermRun(NamedTuple):
    """Terms (left, right), (left + 1, right − 1), …: one product of slices laid side by side."""

    left: int
    right: int
    length: int


@dataclass(frozen=True, slots=True)
class Scheme:
    """An emulation of one product C = A·B by products of slices.

    Accumulators are added up, each times its power of two, or, where there are `moduli`, are sums
    modulo these, from which the remainder theorem makes the result.

    error: Frobenius error on normal data at K = 1024, as the reference backend makes it: float32
    data, but float64 for residues.
    promotion: segment of K that floating-point slices are multiplied over before the partial sum
    enters the FP32 accumulator; integer slices are promoted once per exponent block. deferred: only
    the second of two accumulators is promoted so; the first, whose terms are so small that it does
    not matter what tensor cores cut off from them, is added to the total once, after all of K.
    wider: the scheme by which a GPU makes products of which too many rows leave the slices, or may
    do so, because its own slices span more exponents.
    """

    name: str
    element: Element
    left: Splitter
    right: Splitter
    terms: tuple[Term, ...]
    error: float
    promotion: int = 256
    deferred: bool = False
    wider: "Scheme | None" = None

    kind = "emulation"

    def __hash__(self) -> int:
        """Hash by name, because caches ask at every product and few schemes share a name."""
        return hash(self.name)

    @property
    def products(self) -> int:
        """Slice products per product."""
        return len(self.terms)

    @property
    def cost(self) -> float:
        """Time per multiply-add, relative to one INT8 slice product on tensor cores."""
        return self.products * INT8_RATE / self.element.rate

    @property
    def exact(self) -> bool:
        """Whether terms are integers, and so free of rounding."""
        return not isinstance(self.left, FloatSlices)

    @property
    def moduli(self) -> tuple[int, ...]:
        """The modulus of each accumulator's sum; empty if powers of two combine the sums."""
        return self.left.moduli if isinstance(self.left, Residues) else ()

    @property
    def fitted(self) -> bool:
        """Whether slices of A or of B carry significands beside their powers of two."""
        return any(isinstance(s, Digits) and s.fitted for s in (self.left, self.right))

    def lengths(self, k: int) -> tuple[int, int, int]:
        """Lengths for inner dimension k: the chunk of one call of FP32 BLAS, the block that shares
        an exponent, and the segment after which integers are promoted, at most a block.

        All are multiples of the chunk; the last block is padded with zeros.
        """
        k = max(k, 1)
        if self.moduli:
            chunk = min(k, RESIDUE_CHUNK)
            block = -(-k // chunk) * chunk
            return chunk, block, min(block, RESIDUE_SEGMENT)
        if isinstance(self.left, Digits):
            block = min(self.left.block or k, k)
            chunk = min(block, EXACT_CHUNK)
        else:
            block, chunk = k, min(self.promotion, k)
        block = -(-block // chunk) * chunk
        return chunk, block, min(block, EXACT_SEGMENT) if self.exact else block

    def accumulators(self) -> tuple[tuple[int, tuple[TermRun, ...]], ...]:
        """(weight, runs) per accumulator, the smallest weight first."""
        grouped = groupby(
            sorted(self.terms, key=lambda term: term.accumulator), lambda term: term.accumulator
        )
        found = [_runs(tuple(terms)) for _, terms in grouped]
        return tuple(sorted(found, key=lambda entry: entry[0]))


AS_ACCURATE = ("exact", "own")  # kinds of alternatives in the operands' own precision


class Alternative(NamedTuple):
    """An entry of the registry that is no emulation.

    kind: "native", the original call; "cast", operands cast to `dtype`, multiplied natively and
    cast back to the type the original would give; "choice", a scheme chosen per call; "exact", of
    integers, with the native product's bits; "own", BLAS's product in the operands' own precision.
    error: as a scheme's; 0 if it is no larger than that of the product that the entry replaces.
    """

    name: str
    kind: Literal["native", "cast", "choice", "exact", "own"]
    cost: float
    error: float = 0.0
    dtype: str | None = None
    products: int = 1


def triangle(order: int, left: int, right: int, width: int) -> tuple[Term, ...]:
    """Terms (i, j) with i + j ≤ order, i < left, j < right; one accumulator per order."""
    return tuple(
        Term(i, total - i, -width * total, total)
        for total in range(order + 1)
        for i in range(total + 1)
        if i < left and total - i < right
    )


def _runs(terms: Sequence[Term]) -> tuple[int, tuple[TermRun, ...]]:
    runs: list[TermRun] = []
    for term in terms:
        last = runs[-1] if runs else None
        if last and (term.left, term.right) == (last.left + last.length, last.right - last.length):
            runs[-1] = last._replace(length=last.length + 1)
        else:
            runs.append(TermRun(term.left, term.right, 1))
    return terms[0].weight, tuple(runs)
