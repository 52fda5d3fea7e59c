"""How an operand becomes slices that tensor cores can multiply: the element types and splitters."""

import math
from dataclasses import dataclass
from typing import Literal

# Measured rates of one H200's units, TFLOP/s or TOPS.
INT8_RATE = 1928.0
FP16_RATE = 840.0
TF32_RATE = 454.0
FP32_RATE = 51.0
FP64_RATE = 55.0


@dataclass(frozen=True, slots=True)
class Element:
    """A type that tensor cores multiply. `bits` counts the leading one of the significand."""

    name: str
    rate: float
    bits: int
    smallest: float
    largest: float


INT8 = Element("int8", INT8_RATE, 8, 1.0, 127.0)
FP16 = Element("float16", FP16_RATE, 11, 2.0**-24, 65504.0)
BF16 = Element("bfloat16", FP16_RATE, 8, 2.0**-133, 2.0**128 - 2.0**120)
TF32 = Element("tf32", TF32_RATE, 11, 2.0**-136, 2.0**128 - 2.0**117)


FIT = 257.25  # above 256 · 256 / 255, so that digits in fitted units never overflow


@dataclass(frozen=True, slots=True)
class Digits:
    """Integer slices: digits of x in units that a block of the operand shares.

    Slice p, the highest first, has the value d_p · (g / 256) · 2^(e − 7 − width · p), e the block's
    exponent, g its significand, 256 unless the unit is fitted.
    count: slices kept. depth: digits that x is rounded to, 0 for just these; the rest is dropped.
    width: 8, balanced base-256 digits in [−128, 127]; or 7, a sign and 7-bit magnitudes.
    group: rows of A (columns of B) that share an exponent. block: the segment of K that does, None
    for all of it. fitted: g follows the block's largest entry in steps of 2^-8, 129 … 258, so that
    the digits are always filled: a bare power of two makes the unit of a block whose largest entry
    has just passed one twice as coarse. But a block whose two highest digits, of bare powers of
    two, hold it exactly is not fitted: the lower ones are zeros, and products of small integers
    stay exact. lower_limit: of a row's digits past the first, see `reference.slices`; for single
    rows and columns only.
    """

    count: int
    width: Literal[7, 8] = 8
    depth: int = 0
    group: int = 1
    block: int | None = 128
    fitted: bool = False
    lower_limit: float = math.inf

    @property
    def digits(self) -> int:
        return self.depth or self.count

    @property
    def shift(self) -> int:
        """x · 2^(shift − e) · (256 / g) is what is rounded to an integer, |x| < 2^e."""
        return 8 * self.digits - 1 if self.width == 8 else 7 * self.digits

    @property
    def largest(self) -> int:
        """The largest |integer| whose digits fit; a block that exceeds it raises its exponent.

        Fitted blocks never do: 256 / 257.25 < 255 / 256.
        """
        if self.width == 8:
            return 127 * ((1 << 8 * self.digits) - 1) // 255
        return (1 << 7 * self.digits) - 1

    @property
    def held(self) -> int:
        """Two digits, or the only one, hold multiples of 2^(e − held) that `largest` allows.

        For balanced digits up to 32 639 of them, ±127 in one digit: not all of 16 bits, for +32 767
        would need a first digit of 128.
        """
        digits = min(self.count, 2)
        return 8 * digits - 1 if self.width == 8 else 7 * digits

    @property
    def loss_limit(self) -> float:
        """A row, column or tile that loses more of its own 2-norm than this leaves the slices.

        2^-18 from 21 bits up. Coarser slices lose more of any operand: there it is what full rows
        of such slices keep, less 6 bits, so that only rows ruled by a few entries leave.
        """
        bits = self.width * self.digits
        return math.ldexp(1.0, -18 if bits >= 21 else 6 - bits)


@dataclass(frozen=True, slots=True)
class FloatSlices:
    """Floating-point slices: each rounds what those before it left, times 2^step.

    Slice p has the value s_p · 2^(−step · p). scaled: every row of A (column of B) is first brought
    to just below 2^`highest` by a power of two; that changes no digit and lets nothing leave the
    range. span: the exponents that a row may span, see `reach`; None: any number. whole: exponents
    (e, f). Rows of float32 numbers below 2^e stay in the slices whatever they span, because all of
    those are multiples of 2^-149. For their sums to lose no more than that, rows that reach 2^f
    leave: they would be multiplied by the other operand's rows below 2^e.
    """

    element: Element
    count: int
    rounding: Literal["nearest", "zero"] = "nearest"
    step: int = 0
    scaled: bool = False
    highest: int = 15
    span: int | None = None
    whole: tuple[int, int] | None = None

    def reach(self, k: int) -> int:
        """A row of k entries leaves the slices where the binary exponents of its largest and of its
        smallest but zero differ by so many: `span`, and half of what log2 k is over 5, 7 at most.
        """
        return (self.span or 0) + min(max((k.bit_length() - 6) // 2, 0), 7)

    @property
    def range(self) -> float:
        """A row with an entry beyond this leaves the slices."""
        return math.inf if self.scaled else self.element.largest


@dataclass(frozen=True, slots=True)
class Residues:
    """Integer slices: residues of x in units of a row of A, or column of B, whose scale is a power
    of two.

    moduli: at most 256 each, the largest first, without common factors. A residue modulo p lies in
    [−p/2, p/2): all are INT8. `schemes.residues` says how rows are scaled, and why.
    """

    moduli: tuple[int, ...]

    @property
    def count(self) -> int:
        return len(self.moduli)

    @property
    def product(self) -> int:
        """What integers are told apart modulo: those within half of it, of either sign."""
        return math.prod(self.moduli)

    @property
    def bits(self) -> float:
        """L: a row's 2-norm, as integers, is at most 2^L."""
        return (math.log2(self.product) - 1) / 2

    @property
    def largest(self) -> int:
        """The largest |integer| that the remainder theorem gives back with a margin of 2^-21 of the
        product, within which its quotient may be estimated.
        """
        return self.product * ((1 << 20) - 1) >> 21

    def limit(self, k: int) -> float:
        """(√largest − √k / 2)², of roots that are rounded so as to make it smaller, as the float64
        below. Squares of k entries that sum to no more sum to `largest` at most after rounding.
        """
        root = math.isqrt(self.largest) - math.isqrt(k) // 2 - 1
        near = float(root * root)
        return near if int(near) <= root * root else math.nextafter(near, 0.0)


Splitter = Digits | FloatSlices | Residues
