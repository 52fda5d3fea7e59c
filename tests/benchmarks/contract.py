"""Error measures and grades of a product, and the contract of `faithful`: as accurate as the
vendor's FP32 product, or a few roundings off.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tests.benchmarks.families import Array, largest, wide

UNIT = 2.0**-24


@dataclass(frozen=True, slots=True)
class Judgement:
    """frobenius ‖X − X̂‖F / ‖X‖F; max |x − x̂|; max_relative |x − x̂| / (|x| + |x̂|); mred, the mean
    of |x − x̂| / |x|; 0/0 = 0. grade: the grades earned, such as "BC".
    """

    frobenius: float
    max: float
    max_relative: float
    mred: float
    grade: str

    def record(self) -> dict[str, Any]:
        return in_json(asdict(self))


@dataclass(frozen=True, slots=True, eq=False)
class Exact:
    """Finite operands a (m, k), b (k, n) in float64, their product, and |A||B|."""

    a: Array
    b: Array
    product: Array
    absolute: Array

    @classmethod
    def of(cls, a: Array, b: Array) -> "Exact":
        """The record of float32 or float64 operands, NumPy's or CuPy's."""
        a, b = wide(a), wide(b)
        return cls(a, b, a @ b, abs(a) @ abs(b))


@np.errstate(all="ignore")
def judge(exact: Exact, value: Array) -> Judgement:
    """The errors and the grades of a product (m, n), float32 or float64."""
    own = wide(value)
    error, size = abs(own - exact.product), abs(exact.product)
    whole = norm(size)
    return Judgement(
        norm(error) / whole if whole else (math.inf if error.any() else 0.0),
        largest(error),
        largest(_ratio(error, size + abs(own))),
        float(_ratio(error, size).mean()) if error.size else 0.0,
        grades(exact, value),
    )


def grades(exact: Exact, value: Array) -> str:
    """The grades that a product earns, as a string such as "BC".

    n = K, u = 2^-24. A: |E| ≤ n u |A||B| elementwise. B: |E|ij ≤ n u ‖A(i,:)‖ ‖B(:,j)‖.
    C: ‖E‖F ≤ n u ‖A‖F ‖B‖F. E is taken against the product in float64; K smallest numbers of the
    result's type are let go, as in any product whose result underflows.
    """
    a, b = exact.a, exact.b
    smallest = float(np.finfo(value.dtype).smallest_subnormal)
    error = (abs(wide(value) - exact.product) - a.shape[1] * smallest).clip(0)
    limit = a.shape[1] * UNIT * (1 + 2.0**-20)
    rows, columns = (a * a).sum(axis=1) ** 0.5, (b * b).sum(axis=0) ** 0.5
    earned = {
        "A": bool((error <= limit * exact.absolute).all()),
        "B": bool((error <= limit * rows[:, None] * columns).all()),
        "C": norm(error) <= limit * norm(a) * norm(b),
    }
    return "".join(grade for grade, holds in earned.items() if holds)


def in_json(figures: dict[str, Any]) -> dict[str, Any]:
    """Figures as JSON can hold them: it has no infinity, which becomes a word."""
    return {
        name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in figures.items()
    }


def norm(x: Array) -> float:
    """The Frobenius norm of a float64 array whose squares neither overflow nor underflow."""
    return math.sqrt(float((x * x).sum()))


def _ratio(error: Array, size: Array) -> Array:
    """error / size, 0/0 = 0."""
    return error / (size + (error == 0) * (size == 0))


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
