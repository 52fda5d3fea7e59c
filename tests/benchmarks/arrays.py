"""Functions for NumPy's and CuPy's arrays alike: namespaces, random numbers, exact casts."""

import math
from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

Array = Any  # numpy.ndarray or cupy.ndarray
Shape = int | Sequence[int]

MASK = (1 << 64) - 1
TYPES = {"float32": "float", "float64": "double"}
GOLDEN = 0x9E3779B97F4A7C15


class Numbers:
    """Random numbers that depend on the seed alone; NumPy and CuPy differ in the last bits only.

    The methods are those of numpy.random.Generator, which the families of operands also take.
    Element i of a draw is SplitMix64's finalizer of a counter, so every element is made by itself.
    """

    def __init__(self, xp: ModuleType, seed: int) -> None:
        self.xp = xp
        self._state = _mixed((seed + 1) * GOLDEN & MASK)

    def random(self, shape: Shape) -> Array:
        """Uniform in [0, 1), float64."""
        return (self._bits(shape) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def uniform(self, low: float, high: float, shape: Shape = ()) -> Array:
        """Uniform in [low, high), float64."""
        return low + (high - low) * self.random(shape)

    def standard_normal(self, shape: Shape) -> Array:
        radius = self.xp.sqrt(-2.0 * self.xp.log1p(-self.random(shape)))
        return radius * self.xp.cos(2 * math.pi * self.random(shape))

    def integers(self, low: int, high: int, shape: Shape = ()) -> Array:
        """Integers in [low, high), int64."""
        return low + self.xp.floor((high - low) * self.random(shape)).astype(np.int64)

    def choice(self, values: Sequence[float], shape: Shape) -> Array:
        """Elements of a sequence, each as likely as the others."""
        return self.xp.asarray(values)[self.integers(0, len(values), shape)]

    def _bits(self, shape: Shape) -> Array:
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        count = math.prod(shape)
        word = self.xp.arange(1, count + 1, dtype=np.uint64)
        word *= np.uint64(GOLDEN)
        word += np.uint64(self._state)
        self._state = (self._state + count * GOLDEN) & MASK
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            word ^= word >> np.uint64(shift)
            word *= np.uint64(factor)
        word ^= word >> np.uint64(31)
        return word.reshape(shape)


def _mixed(word: int) -> int:
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        word = (word ^ word >> shift) * factor & MASK
    return word ^ word >> 31


def namespace(source: object) -> ModuleType:
    return getattr(source, "xp", np)


def parts(x: Array) -> tuple[Array, ...]:
    """The real and the imaginary part of a complex array, as views; a real one itself."""
    return (x.real, x.imag) if x.dtype.kind == "c" else (x,)


def of_parts(*parts: Array) -> Array:
    """A complex array of its real and imaginary part, float32 or float64; a lone part itself.

    Not real + 1j * imaginary, by which Inf in one part puts NaN into the other.
    """
    if len(parts) == 1:
        return parts[0]
    real, imaginary = parts
    whole = real.astype(np.result_type(real.dtype, np.complex64))
    whole.imag = imaginary
    return whole


def wide(x: Array) -> Array:
    """x in float64, or complex128, every value as it is.

    CuPy compiles with -ftz=true, so its own cast would take float32's subnormals for zeros.
    """
    if x.dtype.kind == "c":
        return of_parts(*map(wide, parts(x)))
    if isinstance(x, (np.ndarray, np.generic)) or x.dtype != np.float32:
        return x.astype(np.float64)
    return _cast("float32 x", "float64 y", "cvt.f64.f32", "=d", "f")(x)


def narrow(x: Array, dtype: npt.DTypeLike) -> Array:
    """Float64 values rounded to float32 or float64, to nearest even, subnormals kept."""
    if isinstance(x, (np.ndarray, np.generic)) or dtype != np.float32:
        with np.errstate(over="ignore"):
            return x.astype(dtype)
    return _cast("float64 x", "float32 y", "cvt.rn.f32.f64", "=f", "d")(x)


def largest(x: Array) -> float:
    """The largest element; 0 of an empty array. (CuPy's `max` takes no `initial`.)"""
    return float(x.max()) if x.size else 0.0


@cache
def _cast(source: str, result: str, instruction: str, out: str, into: str) -> Any:
    import cupy

    kind = result.partition(" ")[0]
    text = f'{TYPES[kind]} z; asm("{instruction} %0, %1;" : "{out}"(z) : "{into}"(x)); y = z;'
    return cupy.ElementwiseKernel(source, result, text, f"mixpert_{instruction.replace('.', '_')}")
