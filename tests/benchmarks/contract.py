"""The contract of `faithful`: as accurate as the vendor's FP32 product, or a few roundings off."""

import math
from dataclasses import dataclass

import numpy as np

from tests.benchmarks.arrays import Array, largest, wide
from tests.benchmarks.judgement import UNIT, Exact, norm

# Errors that the contract allows although the vendor's is less, in units of u = 2^-24.
ROUNDINGS = 3.5  # of ‖√((A∘A)(B∘B))‖F: about what rounding the operands to 22 bits leaves
LARGEST = 12.0  # of (|A||B|)ij, element by element
SMALLEST = 2.0**-149  # the smallest float32 number: the loss allowed where a term underflows


@dataclass(frozen=True, slots=True)
class Errors:
    """frobenius: ‖E‖F / ‖C‖F; componentwise: the largest |E| / (|A||B|), in u; E = Ĉ − C.

    0/0 = 0, and x/0 = ∞: where |A||B| is 0, so must E be. NaN counts as infinite.
    """

    frobenius: float
    componentwise: float

    def over(self, vendor: "Errors", floor: float) -> "Errors":
        """The errors divided by what the contract allows: at most 1 where it holds.

        vendor: the errors of the vendor's FP32 product; floor: that of Frobenius errors.
        """
        return Errors(
            _over(self.frobenius, max(vendor.frobenius, floor)),
            _over(self.componentwise, max(vendor.componentwise, LARGEST)),
        )


@dataclass(frozen=True, slots=True)
class Sums:
    """Properties of the sums of one product, which decide how accurate it can be.

    terms: (Σ|ab|)² / Σ(ab)², how many terms count: the median over the elements that have any, 0
    where none has. floor: of Frobenius errors, 3.5 u ‖√((A∘A)(B∘B))‖F / ‖C‖F.
    """

    terms: float
    floor: float

    @classmethod
    def of(cls, exact: Exact) -> "Sums":
        """The properties of a product. Float64 holds them: squares of squares lie in 2^±600."""
        squares = (exact.a * exact.a) @ (exact.b * exact.b)
        some = squares > 0
        counts = exact.absolute[some] ** 2 / squares[some]
        return cls(
            float(np.median(counts)) if counts.size else 0.0,
            _over(ROUNDINGS * UNIT * math.sqrt(float(squares.sum())), norm(exact.product)),
        )


@np.errstate(all="ignore")
def errors(exact: Exact, value: Array) -> Errors:
    """Errors of a computed product (m, n), float32 or float64, against the float64 product."""
    error = abs(wide(value) - exact.product)
    none = exact.absolute == 0
    if bool(error[none].any()):
        most = math.inf
    else:
        most = _number(largest(error / (exact.absolute + none))) / UNIT
    return Errors(_over(_number(norm(error)), norm(exact.product)), most)


def allowed(k: int, absolute: Array, smallest: float = SMALLEST) -> Array:
    """The bound of |C − Ĉ| on every input: (12 + k) · u · |A||B| + k · smallest, by element.

    k: terms of a sum; absolute: |A||B| in float64, none of it beyond the range of C's type, of
    whose numbers `smallest` is the smallest.
    """
    return (LARGEST + k) * UNIT * absolute + k * smallest


def _over(own: float, allowed: float) -> float:
    """own / allowed, 0/0 = 0 and ∞/∞ = ∞."""
    if own == 0 or allowed == 0 or own == math.inf:
        return math.inf if own else 0.0
    return own / allowed


def _number(value: float) -> float:
    return math.inf if math.isnan(value) else value
