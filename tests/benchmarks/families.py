"""Arrays of NumPy or CuPy from the same random numbers, and families of operands made of them."""

import math
from collections.abc import Callable, Sequence
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


Source = np.random.Generator | Numbers
Family = Callable[[Source, int, int, int], tuple[Array, Array]]


def normal(rng: Source, m: int, k: int, n: int) -> tuple[Array, Array]:
    return rng.standard_normal((m, k)), rng.standard_normal((k, n))


def uniform_positive(rng: Source, m: int, k: int, n: int) -> tuple[Array, Array]:
    return rng.random((m, k)), rng.random((k, n))


def uniform_signed(rng: Source, m: int, k: int, n: int) -> tuple[Array, Array]:
    return rng.uniform(-1, 1, (m, k)), rng.uniform(-1, 1, (k, n))


def spread(phi: float) -> Family:
    """(rand − ½) · exp(φ · randn): exponents spread inside every row and column."""

    def family(rng: Source, m: int, k: int, n: int) -> tuple[Array, Array]:
        xp = namespace(rng)
        a, b = (
            (rng.random(shape) - 0.5) * xp.exp(phi * rng.standard_normal(shape))
            for shape in ((m, k), (k, n))
        )
        return a, b

    return family


def exponents(left: tuple[int, int], right: tuple[int, int]) -> Family:
    """Exponents drawn uniformly from a range for each operand."""

    def family(rng: Source, m: int, k: int, n: int) -> tuple[Array, Array]:
        xp = namespace(rng)
        a, b = (
            xp.ldexp(rng.uniform(-1, 1, shape), rng.integers(*span, shape))
            for shape, span in (((m, k), left), ((k, n), right))
        )
        return a, b

    return family


def scaled_rows(rng: Source, m: int, k: int, n: int) -> tuple[Array, Array]:
    """Normal numbers, rows of A and columns of B scaled by powers of two in 2^±20."""
    xp = namespace(rng)
    a, b = normal(rng, m, k, n)
    return xp.ldexp(a, rng.integers(-20, 21, (m, 1))), xp.ldexp(b, rng.integers(-20, 21, (1, n)))


def scaled_inside(rng: Source, m: int, k: int, n: int) -> tuple[Array, Array]:
    """Columns of A are scaled by 2^d, rows of B by 2^-d: the product keeps its size."""
    xp = namespace(rng)
    a, b = normal(rng, m, k, n)
    d = rng.integers(-20, 21, k)
    return xp.ldexp(a, d), xp.ldexp(b, -d[:, None])


def circulant(rng: Source, m: int, k: int, n: int) -> tuple[Array, Array]:
    """Circulant matrices of x · D and x / D, D from 2^-15 to 2^15: fixed point loses small entries.

    Every row holds the same entries, and so does every column: no scaling by rows or columns helps.
    """
    xp = namespace(rng)
    powers = xp.rint(xp.linspace(-15, 15, k)).astype(np.int64)
    x = rng.uniform(1, 2, k)
    first, second = xp.ldexp(x, powers), xp.ldexp(x, -powers)
    shift = (xp.arange(k)[None, :] + xp.arange(m)[:, None]) % max(k, 1)
    other = (xp.arange(k)[:, None] + xp.arange(n)[None, :]) % max(k, 1)
    return first[shift], second[other]


def disjoint(rng: Source, m: int, k: int, n: int) -> tuple[Array, Array]:
    """Large entries that never meet: products of zeros, which fast algorithms leave as rounding."""
    a, b = normal(rng, m, k, n)
    half, top, left = k // 2, m // 2, n // 2
    a[:top, half:] = 0
    b[:half, left:] = 0
    a[:top, :half] *= 2.0**15
    b[half:, left:] *= 2.0**-15
    return a, b


def spikes(rng: Source, m: int, k: int, n: int) -> tuple[Array, Array]:
    """Most rows and columns have one entry far above the rest."""
    xp = namespace(rng)
    a, b = normal(rng, m, k, n)
    if k:
        a[xp.arange(m), rng.integers(0, k, m)] *= 2.0 ** rng.integers(0, 15, m)
        b[rng.integers(0, k, n), xp.arange(n)] *= 2.0 ** rng.integers(0, 15, n)
    return a, b


def crowded(rng: Source, m: int, k: int, n: int) -> tuple[Array, Array]:
    """One entry of every row and column above digits 0, −128, −128 of int8x6: the largest it drops.

    0.75 has the unit 193 / 256 · 2^-23.
    """
    xp = namespace(rng)
    a, b = (xp.full(shape, -32_896 * 193 * 2.0**-31) for shape in ((m, k), (k, n)))
    if k:
        a[xp.arange(m), rng.integers(0, k, m)] = 0.75
        b[rng.integers(0, k, n), xp.arange(n)] = 0.75
    return a, b


def integers(rng: Source, m: int, k: int, n: int) -> tuple[Array, Array]:
    return rng.integers(-9, 10, (m, k)) * 1.0, rng.integers(-9, 10, (k, n)) * 1.0


def ties(rng: Source, m: int, k: int, n: int) -> tuple[Array, Array]:
    """Values half-way between neighbours of short significands, and just below a power of two."""
    choices = [1 + 2.0**-11, 1 + 2.0**-8, 2 - 2.0**-23, 127.5, 1 - 2.0**-24, -1.5, 0.0]
    return rng.choice(choices, (m, k)), rng.choice(choices, (k, n))


def constant(rng: Source, m: int, k: int, n: int) -> tuple[Array, Array]:
    """All entries equal: no cancellation of errors."""
    xp = namespace(rng)
    return xp.full((m, k), float(rng.uniform(1, 2))), xp.full((k, n), float(rng.uniform(1, 2)))


def log_normal(width: float) -> Family:
    """exp(width · randn) times normal numbers: prices, counts, concentrations."""

    def family(rng: Source, m: int, k: int, n: int) -> tuple[Array, Array]:
        a, b = normal(rng, m, k, n)
        return namespace(rng).exp(width * a), b

    return family


def softmax(sharpness: float) -> Family:
    """Rows of softmax(sharpness · scores) times normal values: attention."""

    def family(rng: Source, m: int, k: int, n: int) -> tuple[Array, Array]:
        scores, values = normal(rng, m, k, n)
        weights = namespace(rng).exp(sharpness * scores)
        return weights / weights.sum(axis=1, keepdims=True), values

    return family


def rbf_kernel(rng: Source, m: int, k: int, n: int) -> tuple[Array, Array]:
    """exp(−|x − y|² / 2ℓ²) of points in the unit cube, ℓ = 0.05, times normal numbers."""
    points = rng.random((3, max(m, k)))
    squares = sum((x[:m, None] - x[:k]) ** 2 for x in points)
    return namespace(rng).exp(squares / (-2 * 0.05**2)), rng.standard_normal((k, n))


def sparse(rng: Source, m: int, k: int, n: int) -> tuple[Array, Array]:
    """Log-normal numbers in 1 % of both operands, zeros elsewhere, as in TF-IDF matrices."""
    xp = namespace(rng)
    a, b = (
        (rng.random(shape) < 0.01) * xp.exp(rng.standard_normal(shape))
        for shape in ((m, k), (k, n))
    )
    return a, b


def states(orders: float) -> Family:
    """(D G D⁻¹)(D P D), P a covariance, D in 10^±orders: a filter's states in mixed units."""

    def family(rng: Source, m: int, k: int, n: int) -> tuple[Array, Array]:
        units = 10.0 ** rng.uniform(-orders, orders, max(m, k, n))
        observed = rng.standard_normal((max(k, n), max(k, n, 1)))
        covariance = observed[:k] @ observed[:n].T / max(k, n, 1)
        step = rng.standard_normal((m, k))
        return units[:m, None] * step / units[:k], units[:k, None] * covariance * units[:n]

    return family


def features(rng: Source, m: int, k: int, n: int) -> tuple[Array, Array]:
    """(X D)(D⁻¹ W), D in 10^±3: an unnormalised design matrix and its weights."""
    a, b = normal(rng, m, k, n)
    units = 10.0 ** rng.uniform(-3, 3, k)
    return a * units, b / units[:, None]


def graded(along: int) -> Family:
    """Rows and columns of A, and columns of B, fall to 2^-50; the rows of B go to 2^along.

    along = −50: what is small meets what is small; 50: all terms count alike.
    """

    def family(rng: Source, m: int, k: int, n: int) -> tuple[Array, Array]:
        xp = namespace(rng)
        a, b = normal(rng, m, k, n)
        i, p, j = (xp.arange(length) / max(length - 1, 1) for length in (m, k, n))
        a *= 2.0 ** (-50 * i[:, None]) * 2.0 ** (-50 * p)
        return a, b * 2.0 ** (along * p[:, None]) * 2.0 ** (-50 * j)

    return family


def arrow(rng: Source, m: int, k: int, n: int) -> tuple[Array, Array]:
    """The first row, the first column and the diagonal of both operands; zeros elsewhere."""
    return _masked(rng, m, k, n, lambda i, j: (i == j) | (i == 0) | (j == 0))


def banded(rng: Source, m: int, k: int, n: int) -> tuple[Array, Array]:
    """The diagonal and four beside it on either side, of both operands; zeros elsewhere."""
    return _masked(rng, m, k, n, lambda i, j: abs(i - j) <= 4)


def low_rank(rng: Source, m: int, k: int, n: int) -> tuple[Array, Array]:
    """Both operands of rank 8."""
    (left, a), (b, right) = normal(rng, m, 8, k), normal(rng, k, 8, n)
    return left @ a, b @ right


def subnormal_rich(rng: Source, m: int, k: int, n: int) -> tuple[Array, Array]:
    """Two thirds of A and one third of B are subnormal; what they meet is mostly near 2^60."""
    a, b = normal(rng, m, k, n)
    tiny = rng.random((k, n)) < 0.5
    return a * 2.0**-126, namespace(rng).where(tiny, b * 2.0**-126, b * 2.0**60)


def permuted(rng: Source, m: int, k: int, n: int) -> tuple[Array, Array]:
    """A normal matrix times a permutation: at most one 1 in every row and column, the rest 0."""
    order = rng.random(max(k, n)).argsort()[:n]
    ones = order == namespace(rng).arange(k)[:, None]
    return rng.standard_normal((m, k)), ones.astype(np.float64)


def huge_entry(rng: Source, m: int, k: int, n: int) -> tuple[Array, Array]:
    """One entry 2^127, which meets zeros in every other column; all others are near 2^-20."""
    a, b = (x * 2.0**-20 for x in normal(rng, m, k, n))
    if m and k:
        row, column = int(rng.integers(0, m)), int(rng.integers(0, k))
        a[row, column] = 2.0**127
        b[column, 1::2] = 0
    return a, b


def blocks(rng: Source, m: int, k: int, n: int) -> tuple[Array, Array]:
    """Large entries meet zeros, half of K those of A and a quarter those of B; small ones meet."""
    a, b = normal(rng, m, k, n)
    small = 2.0 ** -rng.integers(20, 50, (1, 1))
    half, most = k // 2, k - k // 4
    a[:, half:most] = 0
    b[:half] = 0
    a[:, most:] *= small
    b[most:] *= small
    return a, b


def _masked(
    rng: Source, m: int, k: int, n: int, mask: Callable[[Array, Array], Array]
) -> tuple[Array, Array]:
    """Normal numbers at the places (i, j) of a mask, zeros elsewhere."""
    i, p, j = (namespace(rng).arange(length) for length in (m, k, n))
    a, b = normal(rng, m, k, n)
    return a * mask(i[:, None], p), b * mask(p[:, None], j)


FAMILIES: dict[str, Family] = {
    "normal": normal,
    "uniform [0, 1)": uniform_positive,
    "uniform [-1, 1)": uniform_signed,
    "spread 1": spread(1),
    "spread 4": spread(4),
    "half's low range": exponents((-24, -13), (-24, -13)),
    "below half's range": exponents((-60, -24), (-60, -24)),
    "subnormal": exponents((-149, -120), (70, 90)),
    "beyond half's range": exponents((10, 40), (-5, 30)),
    "scaled rows": scaled_rows,
    "scaled inside": scaled_inside,
    "circulant": circulant,
    "disjoint": disjoint,
    "spikes": spikes,
    "crowded": crowded,
    "integers": integers,
    "ties": ties,
    "constant": constant,
}

# Operands that occur in practice, on which the default is compared with the vendor's product.
EVERYDAY: dict[str, Family] = {
    "log-normal 1": log_normal(1),
    "log-normal 2": log_normal(2),
    "spread 0.5": spread(0.5),
    "spread 2": spread(2),
    "softmax 1": softmax(1),
    "softmax 4": softmax(4),
    "RBF kernel": rbf_kernel,
    "sparse 1 %": sparse,
    "states 1e±1": states(1),
    "states 1e±3": states(3),
    "features 1e±3": features,
    "graded": graded(-50),
    "graded against": graded(50),
    "arrow": arrow,
    "low-rank": low_rank,
    "banded": banded,
    "subnormal-rich": subnormal_rich,
    "permuted": permuted,
    "huge entry": huge_entry,
    "blocks": blocks,
}
