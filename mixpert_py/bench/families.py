"""Operands on which products are judged: each family hides another way to lose accuracy."""

from collections.abc import Callable

import numpy as np

from mixpert_py.bench.arrays import Array, Numbers, namespace

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
    """Exponents uniform in a range each."""

    def family(rng: Source, m: int, k: int, n: int) -> tuple[Array, Array]:
        xp = namespace(rng)
        a, b = (
            xp.ldexp(rng.uniform(-1, 1, shape), rng.integers(*span, shape))
            for shape, span in (((m, k), left), ((k, n), right))
        )
        return a, b

    return family


def scaled_rows(rng: Source, m: int, k: int, n: int) -> tuple[Array, Array]:
    """Rows of A and columns of B times 2^±20."""
    xp = namespace(rng)
    a, b = normal(rng, m, k, n)
    return xp.ldexp(a, rng.integers(-20, 21, (m, 1))), xp.ldexp(b, rng.integers(-20, 21, (1, n)))


def scaled_inside(rng: Source, m: int, k: int, n: int) -> tuple[Array, Array]:
    """Columns of A times 2^d, rows of B times 2^-d: only the product keeps its size."""
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
    """One entry of most rows and columns far above the rest."""
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
