"""How tensor cores add up: what one matrix instruction does to its products, bit by bit.

No vendor documents it; these papers found it out:
[F] Fasi, Higham, Mikaitis, Pranesh, "Numerical behavior of NVIDIA tensor cores", 2021.
[K] Khattak, Mikaitis, "Accurate models of NVIDIA tensor cores", 2025.
[X] Xie, Wang, Yang, Yang, "MMA-Sim: bit-accurate reference model of tensor cores", 2025.

Products are exact [F, §3.2]. A group of them, and the addend, are aligned to the largest exponent
among them; what falls below the last bit kept is lost; the rest is added as integers, and only the
sum is normalized and cut to FP32 [F, §3.3–3.4; K, §3; X, §4]. It is the next group's addend. The
sum is never −0, and subnormal numbers count. All chips of NVIDIA's do so, from Volta on.
"""

import functools
from collections.abc import Iterable, Iterator
from typing import Annotated, Literal

import msgspec
import numpy as np

from mixpert_py.runtime.arrays import Array
from mixpert_py.runtime.kernels.abi import ELEMENTS
from mixpert_py.runtime.scheme import Scheme

# What NVIDIA's instructions return for every NaN [X, §4].
NAN = np.array(0x7FFFFFFF, np.uint32).view(np.float32)[()]

SMALLEST = -126  # exponent of the smallest normal number of FP32, bfloat16 and TF32
SMALLEST_HALF = -14
# Exponent that stands for a zero's: with any other added to it, less than that of any product.
ZERO = -512
LEAST_SUM = -300  # of no product, and 2^300 is still finite

# Elements of C at a time: what is made of them stays in a core's cache.
CHUNK = 1 << 15

DEPTH = 32  # bytes of K that an instruction multiplies, whatever the element


class Accumulation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The way in which a floating-point matrix instruction accumulates its products.

    group: products that are added at once, along K. fraction: bits kept below the one of the
    largest exponent: 23 and the extra alignment bits of [K]. floor: exponent below which nothing is
    aligned, however small all are; None: there is none.
    """

    group: Annotated[int, msgspec.Meta(ge=1)]
    fraction: Annotated[int, msgspec.Meta(ge=1, le=40)]
    floor: int | None = None


class IntegerAccumulation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The behaviour of an integer matrix instruction when INT32 does not hold the sum."""

    overflow: Literal["wraps"]


AnyAccumulation = Accumulation | IntegerAccumulation


def accumulate(a: Array, b: Array, c: Array, how: AnyAccumulation) -> Array:
    """C + A·B as one matrix instruction of that chip computes it, bit for bit.

    a: (…, m, k), b: (…, k, n), c: (…, m, n), with the same leading dimensions. float16, or float32
    that holds bfloat16 or TF32 values, and c float32; or int8, and c int32. Returns C's type.
    NaN, and where Inf − Inf and 0 · Inf enter, is 0x7FFFFFFF; a sum of 2^128 or more is Inf.
    """
    if isinstance(how, IntegerAccumulation):
        return _integers(a, b, c)
    m, k = a.shape[-2:]
    n = b.shape[-1]
    value = np.empty((c.size // max(m * n, 1), m, n), np.float32)
    operands = a.reshape(-1, m, k), b.reshape(-1, k, n), c.reshape(-1, m, n)
    with np.errstate(all="ignore"):
        for stack, rows in _chunks(*value.shape):
            left, right, addend = operands[0][stack, rows], operands[1][stack], operands[2]
            value[stack, rows] = _floats(left, right, addend[stack, rows], how)
    return value.reshape(c.shape)


def _integers(a: Array, b: Array, c: Array) -> Array:
    # Exact: |a·b| ≤ 2^14, and no instruction has more of K than float64 has bits to spare.
    return ((a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64) + c).astype(np.int32)


def _chunks(count: int, m: int, n: int) -> Iterator[tuple[slice, slice]]:
    """Matrices, and rows of them, to be worked on at a time."""
    height = min(m, max(1, CHUNK // max(n, 1)))
    depth = max(1, CHUNK // max(height * n, 1))
    for first in range(0, count, depth):
        for row in range(0, m, max(height, 1)):
            yield slice(first, first + depth), slice(row, row + height)


def _floats(a: Array, b: Array, c: Array, how: Accumulation) -> Array:
    # The stack lies last, and K first: one position of K at a time, long runs of the rest.
    left = np.ascontiguousarray(a.transpose(2, 1, 0)).astype(np.float64)[:, :, np.newaxis]
    right = np.ascontiguousarray(b.transpose(1, 2, 0)).astype(np.float64)[:, np.newaxis]
    total = np.ascontiguousarray(c.transpose(1, 2, 0)).astype(np.float64)
    smallest = SMALLEST_HALF if a.dtype == np.float16 else SMALLEST
    exponents = _exponents(left, smallest), _exponents(right, smallest)
    for start in range(0, len(left), how.group):
        group = slice(start, start + how.group)
        sums = zip(exponents[0][group], exponents[1][group], strict=True)
        highest = functools.reduce(np.maximum, (x + y for x, y in sums))
        total = _sum(total, zip(left[group], right[group], strict=True), highest, how)
    value = total.astype(np.float32)
    value[np.isnan(value)] = NAN
    return value.transpose(2, 0, 1)


def _sum(
    total: Array, pairs: Iterable[tuple[Array, Array]], highest: Array, how: Accumulation
) -> Array:
    """The addend and the products of a group, as FP32 numbers. highest: exponent of the products,
    ZERO and less where all are zero.
    """
    highest = np.maximum(highest, _exponents(total, SMALLEST))
    highest = np.maximum(highest, LEAST_SUM if how.floor is None else how.floor)
    scale = np.ldexp(1.0, how.fraction - highest)
    aligned = np.trunc(total * scale)
    for x, y in pairs:
        addend = x * y  # exact in float64, and so are all of these steps but the rounding
        addend *= scale
        aligned += np.trunc(addend, out=addend)
    return _cut(aligned / scale)


def _cut(x: Array) -> Array:
    """x cut to an FP32 number; Inf from 2^128 on [K, exceptional cases]."""
    unit = np.ldexp(1.0, np.maximum(np.frexp(x)[1] - 1, SMALLEST) - 23)
    x = np.trunc(x / unit) * unit + 0.0
    return np.where(np.abs(x) >= 2.0**128, np.copysign(np.inf, x), x)


def _exponents(x: Array, smallest: int) -> Array:
    """⌊log2 |x|⌋; a subnormal number's is that of the smallest normal one."""
    exponents = np.maximum(np.frexp(x)[1].astype(np.int16) - np.int16(1), np.int16(smallest))
    return np.where(x == 0, np.int16(ZERO), exponents)


def depth_and_step(scheme: Scheme) -> tuple[int, int]:
    """The segments of K that an instruction covers, and that is added up before the sum enters the
    FP32 total.
    """
    depth = DEPTH // ELEMENTS[scheme.element.name].size
    return depth, min(2 * depth, max(depth, scheme.promotion))
