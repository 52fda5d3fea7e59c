"""The accumulation of a matrix instruction, found by sums that tell its features apart.

Each feature has sums of a few products that come out differently for each of its values, and
little else changes: after [F] and [K] of `runtime.model.numerics`. What the chip returns is
compared with what the model says of each value.
"""

from collections.abc import Callable, Iterable
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from mixpert_py.errors import DeviceError
from mixpert_py.runtime.model.numerics import (
    SMALLEST,
    SMALLEST_HALF,
    Accumulation,
    AnyAccumulation,
    IntegerAccumulation,
    Order,
    accumulate,
)

Array = npt.NDArray[Any]
# C + A·B of many matrices: A (count, m, k), B (count, k, n), C (count, m, n); the types of
# `accumulate`.
Multiply = Callable[[Array, Array, Array], Array]

TYPES = {"float16": np.float16, "bfloat16": np.float32, "tf32": np.float32, "int8": np.int8}

# Exponents that every element has products of, with powers of two as factors: nothing that small
# is left beside anything that large.
LARGE = 30
SMALL = -28


class Shape(NamedTuple):
    """The shape of one matrix instruction: rows, columns and depth, and the type of A and B."""

    m: int
    n: int
    k: int
    element: str

    @property
    def smallest(self) -> int:
        """Exponent of the element's smallest normal number."""
        return SMALLEST_HALF if self.element == "float16" else SMALLEST


class Sum(NamedTuple):
    """An addend, and factors of the products at some positions of K; elsewhere they are zero."""

    addend: float
    factors: dict[int, tuple[float, float]]


# Sums that tell a feature's values apart, given what is known so far and where the first group is.
Telling = Callable[[Accumulation, Shape, range], list[Sum]]


class Feature(NamedTuple):
    """A field of Accumulation, what it may be, and how to tell."""

    field: str
    values: tuple[Any, ...]
    telling: Telling


def determine(multiply: Multiply, shape: Shape) -> AnyAccumulation:
    """Determine how an instruction accumulates from its results for some thousand sums.

    Raises DeviceError where it does nothing that the model knows.
    """
    if shape.element == "int8":
        return _integers(multiply, shape)
    how = _grouping(multiply, shape)
    for feature in FEATURES:
        sums = feature.telling(how, shape, how.groups(shape.k)[0])
        if sums:
            candidates = (replace(how, **{feature.field: value}) for value in feature.values)
            how = _matching(multiply, shape, sums, candidates, feature.field)
    return how


def _grouping(multiply: Multiply, shape: Shape) -> Accumulation:
    """Which products are added together, and in which order [K, §3]: for all i and j, the addend
    and product i cancel, and product j is small. It is left if its group comes after that of i.
    """
    sums = [
        Sum(2.0**LARGE, {i: _power(LARGE, -1), j: _power(SMALL)})
        for i, j in product(range(shape.k), repeat=2)
        if i != j
    ]
    sizes = [size for size in range(shape.k, 0, -1) if shape.k % size == 0]
    orders: tuple[Order, ...] = ("ascending", "descending", "interleaved")
    candidates = (Accumulation(g, 24, order=order) for g in sizes for order in orders)
    how = _matching(multiply, shape, sums, candidates, "group")
    if how.group < 4:
        raise DeviceError(f"it adds {how.group} products at once; tensor cores add 4 or more")
    return how


def _matching(
    multiply: Multiply,
    shape: Shape,
    sums: list[Sum],
    candidates: Iterable[Accumulation],
    what: str,
) -> Accumulation:
    a, b, c = _operands(sums, shape)
    seen = multiply(a, b, c)[:, :1, :1]
    row, column, addend = a[:, :1], b[:, :, :1], c[:, :1, :1]
    for how in candidates:
        if same(seen, accumulate(row, column, addend, how)).all():
            return how
    raise DeviceError(f"what it does about {what!r} is none of what the model knows")


def same(x: Array, y: Array) -> Array:
    """Whether elements of 32 bits are the same bits."""
    return np.asarray(x.view(np.uint32) == y.view(np.uint32))


def _operands(sums: list[Sum], shape: Shape) -> tuple[Array, Array, Array]:
    """Matrices with a sum each, in row 0 and column 0."""
    dtype = TYPES[shape.element]
    a = np.zeros((len(sums), shape.m, shape.k), dtype)
    b = np.zeros((len(sums), shape.k, shape.n), dtype)
    c = np.zeros((len(sums), shape.m, shape.n), np.int32 if dtype is np.int8 else np.float32)
    for index, (addend, factors) in enumerate(sums):
        c[index, 0, 0] = addend
        for position, (x, y) in factors.items():
            a[index, 0, position], b[index, position, 0] = x, y
    return a, b, c


def _integers(multiply: Multiply, shape: Shape) -> IntegerAccumulation:
    sums = [Sum((1 << 31) - 1, {0: (1, 1)}), Sum(-(1 << 31), {0: (-1, 1)})]
    a, b, c = _operands(sums, shape)
    seen = multiply(a, b, c)
    for overflow in ("wraps", "saturates"):
        how = IntegerAccumulation(overflow)
        if same(seen, accumulate(a, b, c, how)).all():
            return how
    raise DeviceError("what it does about 'overflow' is none of what the model knows")


def _power(exponent: int, sign: int = 1) -> tuple[float, float]:
    """Factors of ±2^exponent, neither far from its root."""
    return sign * 2.0 ** (exponent // 2), 2.0 ** (exponent - exponent // 2)


def _sum(group: range, *factors: tuple[float, float], addend: float = 0.0) -> Sum:
    return Sum(addend, dict(zip(group, factors, strict=False)))


def _cancelling(group: range, *factors: tuple[float, float], addend: float = 0.0) -> Sum:
    """The remainder of small addends after two large products have cancelled."""
    return _sum(group, _power(LARGE), _power(LARGE, -1), *factors, addend=addend)


def _addend(how: Accumulation, shape: Shape, group: range) -> list[Sum]:
    """[F, §3.3]: whether a small addend is lost beside large products."""
    return [_cancelling(group, addend=2.0**SMALL)]


def _fraction(how: Accumulation, shape: Shape, group: range) -> list[Sum]:
    """[K, §3]: which bit of a product is the last that is kept beside a large one."""
    return [_cancelling(group, _power(LARGE - down)) for down in range(1, LARGE - SMALL)]


def _normalized(how: Accumulation, shape: Shape, group: range) -> list[Sum]:
    """[K, §3]: whether 1.5 · 1.5 counts as more than 2 when the last bit kept is chosen."""
    large = 1.5 * 2.0 ** (LARGE // 2)
    return [_sum(group, (large, large), (-large, large), _power(LARGE - how.fraction))]


def _alignment(how: Accumulation, shape: Shape, group: range) -> list[Sum]:
    """[F, §3.4]: what becomes of ¾ of the last bit kept, of either sign."""
    last = LARGE - how.fraction
    x, y = _power(last - 2)
    return [_cancelling(group, (sign * 3 * x, y)) for sign in (1, -1)]


def _result(how: Accumulation, shape: Shape, group: range) -> list[Sum]:
    """[F, §3.3]: 4 and ¾ of FP32's last bit there, from addends below 2, and its negative."""
    tail = 3 * 2.0**-11, 2.0**-12
    parts = (1.875, 1.0), (1.875, 1.0), (0.25, 1.0), tail
    return [_sum(group, *((sign * x, y) for x, y in parts)) for sign in (1, -1)]


def _subnormal_operands(how: Accumulation, shape: Shape, group: range) -> list[Sum]:
    """[F, §3.1]."""
    small, large = 2.0 ** (shape.smallest - 1), 2.0**15
    return [_sum(group, (small, large)), _sum(group, (large, small))]


def _subnormal_sums(how: Accumulation, shape: Shape, group: range) -> list[Sum]:
    """[F, §3.1]."""
    return [_sum(group, addend=2.0**-127)]


def _signed_zero(how: Accumulation, shape: Shape, group: range) -> list[Sum]:
    """A sum of negative zeros."""
    return [Sum(-0.0, dict.fromkeys(range(shape.k), (-1.0, 0.0)))]


def _floor(how: Accumulation, shape: Shape, group: range) -> list[Sum]:
    """[K, §4]: sums about FP32's smallest number, in which a bit far below decides, if it is kept.

    Half precision has no products that small.
    """
    if shape.element == "float16":
        return []
    sums = []
    for last, sign in product(range(-150 - how.fraction, -149), (1, -1)):
        up, down = _power(last, sign), _power(last, -sign)
        sums += [
            _sum(group, _power(-149, sign), down),
            _sum(group, _power(-150, sign), up),
            _sum(group, _power(-149, sign), up, down),
        ]
    return sums


FEATURES = (
    Feature("addend", ("aligned", "after"), _addend),
    Feature("fraction", tuple(range(23, 41)), _fraction),
    Feature("normalized", (False, True), _normalized),
    Feature("alignment", ("zero", "nearest", "down"), _alignment),
    Feature("result", ("zero", "nearest", "down"), _result),
    Feature("subnormal_operands", (True, False), _subnormal_operands),
    Feature("subnormal_sums", (True, False), _subnormal_sums),
    Feature("signed_zero", (True, False), _signed_zero),
    Feature("floor", (None, *range(-148, -99)), _floor),
)
