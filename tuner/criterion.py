"""Error measures of X̂ against the reference X, accumulated in float64.

Arrays may have any numeric dtype, which is read as float64 or complex128, any strides and any
number of dimensions. For all measures, equal NaNs and equal infinities at the same place are no
error, and any other non-finite element makes the error NaN, which no budget admits. The error of an
empty array is 0. All raise ShapeError where the shapes differ, and MixPertError where an array is
not numeric.
"""

from collections.abc import Callable, Iterator, Mapping
from math import inf, nan, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from mixpert_py.errors import MixPertError, ProgramError, ShapeError

Array = npt.NDArray[Any]
ErrorMeasure = Callable[[npt.ArrayLike, npt.ArrayLike], float]

# Elements at a time: enough to hide the loop, small enough to stay in cache.
CHUNK = 1 << 16


@np.errstate(all="ignore")
def frobenius(reference: npt.ArrayLike, value: npt.ArrayLike) -> float:
    """‖X − X̂‖F / ‖X‖F (MixPert eq. 10). A zero reference: 0 if X̂ is zero, else infinite."""
    peak = 0.0
    for x, _ in _chunks(reference, value):
        peak = max(peak, float(np.abs(_parts(x)).max()))
    # A power of two near the largest element: squares stay in range, and no digit is changed.
    shift = -int(np.frexp(peak)[1])
    squares = difference = 0.0
    for x, y in _chunks(reference, value):
        x, y = np.ldexp(_parts(x), shift), np.ldexp(_parts(y), shift)
        squares += float(np.sum(x * x))
        difference += float(np.sum((x - y) ** 2))
    if peak == 0.0:
        absolute = maximum(reference, value)
        return inf if absolute > 0 else absolute
    return sqrt(difference / squares)


@np.errstate(all="ignore")
def maximum(reference: npt.ArrayLike, value: npt.ArrayLike) -> float:
    """max |x − x̂| (EGEMM-TC eq. 10)."""
    worst = 0.0
    for x, y in _chunks(reference, value):
        worst = float(np.maximum(worst, np.abs(x - y).max()))
    return worst


@np.errstate(all="ignore")
def max_relative(reference: npt.ArrayLike, value: npt.ArrayLike) -> float:
    """max |x − x̂| / (|x| + |x̂|), 0/0 = 0 (LE-GEMM eq. 19). At most 1."""
    worst = 0.0
    for x, y in _chunks(reference, value):
        x, y = _in_range(x, y)
        worst = float(np.maximum(worst, _ratio(np.abs(x - y), np.abs(x) + np.abs(y)).max()))
    return worst


@np.errstate(all="ignore")
def mred(reference: npt.ArrayLike, value: npt.ArrayLike) -> float:
    """mean |x − x̂| / |x|, 0/0 = 0 (LE-GEMM eq. 20). Infinite where only x is zero."""
    total, count = 0.0, 0
    for x, y in _chunks(reference, value):
        x, y = _in_range(x, y)
        total += float(np.sum(_ratio(np.abs(x - y), np.abs(x))))
        count += x.size
    return total / count if count else 0.0


def differing(reference: npt.ArrayLike, value: npt.ArrayLike) -> float:
    """The share of elements that differ, 0 to 1: for labels, indices and other decisions."""
    x, y = _arrays(reference, value)
    # Compared in their own types: float64 does not tell all large integers apart.
    different = (x != y) & ~(np.isnan(x) & np.isnan(y))
    if not (np.isfinite(x) & np.isfinite(y))[different].all():
        return nan
    return float(different.mean()) if different.size else 0.0


CRITERIA: dict[str, ErrorMeasure] = {
    "frobenius": frobenius,
    "max": maximum,
    "max-relative": max_relative,
    "mred": mred,
    "differing": differing,
}


def resolve(name: str) -> ErrorMeasure:
    """The criterion with this name. Raises MixPertError, which lists the names, for others."""
    if name not in CRITERIA:
        raise MixPertError(f"unknown criterion {name!r}; known: {', '.join(CRITERIA)}")
    return CRITERIA[name]


def errors(
    reference: Mapping[str, npt.ArrayLike],
    value: Mapping[str, npt.ArrayLike],
    criteria: Mapping[str, ErrorMeasure],
) -> dict[str, float]:
    """The error of each reference value, by its criterion; other values are ignored.

    Raises ProgramError if there is nothing to compare or a value is missing, ShapeError, naming the
    value, if one has another shape.
    """
    if not reference:
        raise ProgramError("nothing to compare: the program observes no value")
    found = {}
    for name, expected in reference.items():
        if name not in value:
            raise ProgramError(f"{name}: observed in the reference run, missing in this one")
        try:
            found[name] = float(criteria[name](expected, value[name]))
        except ShapeError as problem:
            raise ShapeError(f"{name}: {problem}") from None
    return found


def _arrays(reference: npt.ArrayLike, value: npt.ArrayLike) -> tuple[Array, Array]:
    """Both values as arrays. Raises ShapeError or MixPertError if they cannot be compared."""
    x, y = np.asarray(reference), np.asarray(value)
    if x.shape != y.shape:
        raise ShapeError(f"shape {y.shape} came, {x.shape} is the reference's")
    for array in (x, y):
        if array.dtype.kind not in "biufc":
            raise MixPertError(f"dtype {array.dtype} has no error measure; numbers are wanted")
    return x, y


def _chunks(reference: npt.ArrayLike, value: npt.ArrayLike) -> Iterator[tuple[Array, Array]]:
    """Flat pieces of both arrays in float64 or complex128, none empty.

    An element that is not finite in either array is (0, 0) where both agree, else (0, NaN).
    """
    x, y = _arrays(reference, value)
    if not x.size:
        return
    dtype = np.complex128 if "c" in (x.dtype.kind, y.dtype.kind) else np.float64
    with np.nditer(
        [x, y],
        flags=["external_loop", "buffered"],
        op_dtypes=[dtype, dtype],
        casting="same_kind",
        buffersize=CHUNK,
    ) as pieces:
        for a, b in pieces:
            finite = np.isfinite(a) & np.isfinite(b)
            if not finite.all():
                agree = (a == b) | (np.isnan(a) & np.isnan(b))
                a = np.where(finite, a, 0.0)
                b = np.where(finite, b, np.where(agree, 0.0, nan))
            yield a, b


def _parts(x: Array) -> Array:
    """The real and imaginary parts as one real array, which has the same sum of squares."""
    return np.ascontiguousarray(x).view(np.float64)


def _in_range(x: Array, y: Array) -> tuple[Array, Array]:
    """Both arrays, scaled by 1/16 near the end of float64's range, so that sums stay finite."""
    scale = np.where(np.maximum(np.abs(x), np.abs(y)) > 2.0**1000, 2.0**-4, 1.0)
    return x * scale, y * scale


def _ratio(numerator: Array, denominator: Array) -> Array:
    with np.errstate(divide="ignore"):
        return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=numerator != 0)
