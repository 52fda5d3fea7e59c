"""Operands on which products are judged: each family hides another way to lose accuracy."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Family = Callable[[np.random.Generator, int, int, int], tuple[Array, Array]]


def normal(rng: np.random.Generator, m: int, k: int, n: int) -> tuple[Array, Array]:
    return rng.standard_normal((m, k)), rng.standard_normal((k, n))


def uniform_positive(rng: np.random.Generator, m: int, k: int, n: int) -> tuple[Array, Array]:
    return rng.random((m, k)), rng.random((k, n))


def uniform_signed(rng: np.random.Generator, m: int, k: int, n: int) -> tuple[Array, Array]:
    return rng.uniform(-1, 1, (m, k)), rng.uniform(-1, 1, (k, n))


def spread(phi: float) -> Family:
    """(rand − ½) · exp(φ · randn): exponents spread inside every row and column."""

    def family(rng: np.random.Generator, m: int, k: int, n: int) -> tuple[Array, Array]:
        a, b = (
            (rng.random(shape) - 0.5) * np.exp(phi * rng.standard_normal(shape))
            for shape in ((m, k), (k, n))
        )
        return a, b

    return family


def exponents(left: tuple[int, int], right: tuple[int, int]) -> Family:
    """Exponents uniform in a range each."""

    def family(rng: np.random.Generator, m: int, k: int, n: int) -> tuple[Array, Array]:
        a, b = (
            np.ldexp(rng.uniform(-1, 1, shape), rng.integers(*span, shape))
            for shape, span in (((m, k), left), ((k, n), right))
        )
        return a, b

    return family


def scaled_rows(rng: np.random.Generator, m: int, k: int, n: int) -> tuple[Array, Array]:
    """Rows of A and columns of B times 2^±20."""
    a, b = normal(rng, m, k, n)
    return np.ldexp(a, rng.integers(-20, 21, (m, 1))), np.ldexp(b, rng.integers(-20, 21, (1, n)))


def scaled_inside(rng: np.random.Generator, m: int, k: int, n: int) -> tuple[Array, Array]:
    """Columns of A times 2^d, rows of B times 2^-d: only the product keeps its size."""
    a, b = normal(rng, m, k, n)
    d = rng.integers(-20, 21, k)
    return np.ldexp(a, d), np.ldexp(b, -d[:, None])


def circulant(rng: np.random.Generator, m: int, k: int, n: int) -> tuple[Array, Array]:
    """Circulant matrices of x · D and x / D, D from 2^-15 to 2^15: fixed point loses small entries.

    Every row holds the same entries, and so does every column: no scaling by rows or columns helps.
    """
    powers = np.linspace(-15, 15, k).round().astype(int)
    x = rng.uniform(1, 2, k)
    first, second = np.ldexp(x, powers), np.ldexp(x, -powers)
    shift = (np.arange(k)[None, :] + np.arange(m)[:, None]) % k
    other = (np.arange(k)[:, None] + np.arange(n)[None, :]) % k
    return first[shift], second[other]


def disjoint(rng: np.random.Generator, m: int, k: int, n: int) -> tuple[Array, Array]:
    """Large entries that never meet: products of zeros, which fast algorithms leave as rounding."""
    a, b = normal(rng, m, k, n)
    half, top, left = k // 2, m // 2, n // 2
    a[:top, half:] = 0
    b[:half, left:] = 0
    a[:top, :half] *= 2.0**15
    b[half:, left:] *= 2.0**-15
    return a, b


def spikes(rng: np.random.Generator, m: int, k: int, n: int) -> tuple[Array, Array]:
    """One entry of most rows and columns far above the rest."""
    a, b = normal(rng, m, k, n)
    a[np.arange(m), rng.integers(0, k, m)] *= 2.0 ** rng.integers(0, 15, m)
    b[rng.integers(0, k, n), np.arange(n)] *= 2.0 ** rng.integers(0, 15, n)
    return a, b


def integers(rng: np.random.Generator, m: int, k: int, n: int) -> tuple[Array, Array]:
    return rng.integers(-9, 10, (m, k)) * 1.0, rng.integers(-9, 10, (k, n)) * 1.0


def ties(rng: np.random.Generator, m: int, k: int, n: int) -> tuple[Array, Array]:
    """Values half-way between neighbours of short significands, and just below a power of two."""
    choices = np.array([1 + 2.0**-11, 1 + 2.0**-8, 2 - 2.0**-23, 127.5, 1 - 2.0**-24, -1.5, 0.0])
    return rng.choice(choices, (m, k)), rng.choice(choices, (k, n))


def constant(rng: np.random.Generator, m: int, k: int, n: int) -> tuple[Array, Array]:
    """All entries equal: no cancellation of errors."""
    return np.full((m, k), rng.uniform(1, 2)), np.full((k, n), rng.uniform(1, 2))


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
    "integers": integers,
    "ties": ties,
    "constant": constant,
}
