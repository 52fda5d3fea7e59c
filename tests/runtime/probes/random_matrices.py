"""Random matrices on which a matrix instruction may show what it does, by family."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from mixpert_py.runtime.probes.numerics import Shape

Array = npt.NDArray[Any]
Operands = tuple[Array, Array, Array]
Generator = np.random.Generator
Family = Callable[[Generator, int, Shape], Operands]

# Exponents of factors whose products, and their sums, are normal FP32 numbers.
SPREAD = {"float16": (-14, 15), "bfloat16": (-63, 61), "tf32": (-63, 61)}
LARGEST = {"float16": 15, "bfloat16": 127, "tf32": 127}  # exponent
MANTISSA = {"float16": 10, "bfloat16": 7, "tf32": 10}  # bits stored


def uniform(random: Generator, count: int, shape: Shape) -> Operands:
    """Random numbers in [−1, 1)."""
    a, b, c = (random.uniform(-1, 1, (count, *size)) for size in _sizes(shape))
    return _operands(a, b, c, shape)


def close(random: Generator, count: int, shape: Shape) -> Operands:
    """Exponents within 2^8: bits are lost in alignment, few addends altogether."""
    a, b, c = (_spread(random, (count, *size), -8, 0) for size in _sizes(shape))
    return _operands(a, b, c, shape)


def wide(random: Generator, count: int, shape: Shape) -> Operands:
    """Exponents over most of the element's range: most addends are lost."""
    low, high = SPREAD[shape.element]
    ranges = (low, high), (low, high), (2 * low, 2 * high)
    sizes = zip(_sizes(shape), ranges, strict=True)
    a, b, c = (_spread(random, (count, *size), *exponents) for size, exponents in sizes)
    return _operands(a, b, c, shape)


def cancelling(random: Generator, count: int, shape: Shape) -> Operands:
    """Half of the products are the negatives of the others, but for a last bit here and there."""
    a, b, c = close(random, count, shape)
    places = random.permutation(shape.k)
    some, others = places[: shape.k // 2], places[shape.k // 2 :]
    a[:, :, others] = -a[:, :, some]
    b[:, others] = b[:, some]
    nudged = random.random(b.shape) < 1 / shape.k
    b[nudged] *= 1 + 2.0 ** -MANTISSA[shape.element]
    return _operands(a, b, c * 2.0**-12, shape)


def subnormal(random: Generator, count: int, shape: Shape) -> Operands:
    """A or B about the element's smallest normal number, C about FP32's."""
    small, large = shape.smallest, min(-shape.smallest, 120)
    sizes = _sizes(shape)
    a = _spread(random, (count, *sizes[0]), small - MANTISSA[shape.element], small + 2)
    b = _spread(random, (count, *sizes[1]), 0, large)
    ratio = 2.0 ** (small - large // 2)
    swapped = random.random(count) < 0.5
    a[swapped] /= ratio
    b[swapped] *= ratio
    c = _spread(random, (count, *sizes[2]), -149, -120)
    return _operands(a, b, c, shape)


def tiny(random: Generator, count: int, shape: Shape) -> Operands:
    """Products about FP32's smallest subnormal number, or as near as the element has them."""
    half = max(shape.smallest - 6, -77)
    low = _spread(random, (count, shape.m, shape.k), half - 4, half + 4)
    high = _spread(random, (count, shape.k, shape.n), half - 4, half + 4)
    c = _spread(random, (count, shape.m, shape.n), -149, -145)
    c[random.random(c.shape) < 0.5] = 0.0
    return _operands(low, high, c, shape)


def zeros(random: Generator, count: int, shape: Shape) -> Operands:
    """Many factors are zero, all of them in some rows; C too, or subnormal."""
    a, b, c = close(random, count, shape)
    for x in (a, b, c):
        x[random.random(x.shape) < 0.3] = 0.0
    empty = random.random(a.shape[:2]) < 0.5
    a[empty] = random.choice((-0.0, 0.0), (int(empty.sum()), 1))
    b[: count // 2] = np.abs(b[: count // 2])  # so that all products can be −0
    small = random.random(c.shape) < 0.3
    c[small] = random.choice((-0.0, 0.0, 2.0**-149, -(2.0**-127)), int(small.sum()))
    return _operands(a, b, c, shape)


def special(random: Generator, count: int, shape: Shape) -> Operands:
    """Infinities and NaN here and there, products and sums about the largest FP32 number."""
    top = LARGEST[shape.element] - 2
    ranges = (-4, 4), (top - 2, top), (124, 127)
    sizes = zip(_sizes(shape), ranges, strict=True)
    made = [_spread(random, (count, *size), *exponents) for size, exponents in sizes]
    for x in made:
        for value in (0.0, np.inf, -np.inf, np.nan):
            x[random.random(x.shape) < 0.005] = value
    a, b, c = made
    c[random.random(c.shape) < 0.5] *= 2.0**-120
    return _operands(a, b, c, shape)


def digits(random: Generator, count: int, shape: Shape) -> Operands:
    """Random bytes, with addends of 24 bits."""
    a, b = (random.integers(-128, 128, (count, *s), np.int8) for s in _sizes(shape)[:2])
    return a, b, random.integers(-(1 << 24), 1 << 24, (count, shape.m, shape.n), np.int32)


def extreme(random: Generator, count: int, shape: Shape) -> Operands:
    """−128 and 127, addends at either end of INT32."""
    a, b = (random.choice(np.array((-128, 127), np.int8), (count, *s)) for s in _sizes(shape)[:2])
    c = random.integers(0, 1 << 20, (count, shape.m, shape.n)) - (1 << 31)
    return a, b, np.where(random.random(c.shape) < 0.5, c, ~c).astype(np.int32)


FLOATS: dict[str, Family] = {
    family.__name__: family
    for family in (uniform, close, wide, cancelling, subnormal, tiny, zeros, special)
}
INTEGERS: dict[str, Family] = {family.__name__: family for family in (digits, extreme)}


def _sizes(shape: Shape) -> tuple[tuple[int, int], ...]:
    return (shape.m, shape.k), (shape.k, shape.n), (shape.m, shape.n)


def _spread(random: Generator, size: tuple[int, ...], lowest: int, highest: int) -> Array:
    """float64 of either sign, exponents spread evenly."""
    x = random.uniform(-1, 1, size)
    exponents = random.integers(lowest, highest, size, np.int32, endpoint=True)
    spread: Array = np.ldexp(x + np.copysign(1, x), exponents)
    return spread


def _operands(a: Array, b: Array, c: Array, shape: Shape) -> Operands:
    """A and B as numbers of the element, C in FP32."""
    with np.errstate(over="ignore"):
        return _held(a, shape.element), _held(b, shape.element), c.astype(np.float32)


def _held(x: Array, element: str) -> Array:
    if element == "float16":
        return x.astype(np.float16)
    held: Array = x.astype(np.float32)
    bits = held.view(np.uint32)
    bits &= np.uint32(0x100000000 - (1 << (23 - MANTISSA[element])))
    return held
