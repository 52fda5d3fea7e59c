"""Complex products: what they are made of, how accurate each part is, and where NaN and Inf go."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.complex_product import NUMPYS, parts, split
from mixpert_py.runtime.reference.emulation import emulate
from tests.contract.table import normal
from tests.every_check import some, sweep
from tests.runtime.families import FAMILIES, Array

PAIRS = ("FF", "DD", "FD", "Ff", "fF", "dF", "Dd")  # NumPy's letters of A's and B's type
UNIT = 2.0**-24


def of_family(name: str, pair: str, m: int, k: int, n: int) -> tuple[Array, Array]:
    """Parts of one family, imaginary ones of A far smaller."""
    rng = np.random.default_rng(5)
    with np.errstate(all="ignore"):
        (a, b), (c, d) = (FAMILIES[name](rng, m, k, n) for _ in range(2))
        found = []
        for re, im, letter in ((a, c * 2.0**-12, pair[0]), (b, d, pair[1])):
            x = np.empty(re.shape, letter)
            x.real = re
            if x.dtype.kind == "c":
                x.imag = im
            found.append(x)
    return found[0], found[1]


def exact(a: Array, b: Array) -> Array:
    return a.astype(np.clongdouble) @ b.astype(np.clongdouble)


def by_definition(a: Array, b: Array, product: Callable[[Array, Array], Any]) -> Array:
    """The parts of C from real products, each part of an operand by itself."""
    out = np.empty((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]))
    out = out.astype(np.result_type(a, b))
    if a.dtype.kind == b.dtype.kind:
        out.real = product(a.real, b.real) - product(a.imag, b.imag)
        out.imag = product(a.real, b.imag) + product(a.imag, b.real)
    elif a.dtype.kind == "c":
        out.real, out.imag = product(a.real, b), product(a.imag, b)
    else:
        out.real, out.imag = product(a, b.real), product(a, b.imag)
    return out


@pytest.mark.parametrize(
    ("name", "pair", "family"),
    sweep(
        ["faithful", "int8x8", "int8x10"],
        PAIRS,
        [name for name in FAMILIES if name != "subnormal"],
    ),
)
def test_each_part_is_as_accurate_as_a_real_product(name: str, pair: str, family: str) -> None:
    """Grade B by parts: the small imaginary parts are not drowned in what the real ones lose."""
    k = 140
    a, b = of_family(family, pair, 9, k, 11)
    error = emulate(a, b, name) - exact(a, b)
    norm = [[np.linalg.norm(x.astype(complex), axis=i) for x in (y.real, y.imag)]
            for y, i in ((a, 1), (b, 0))]  # fmt: skip
    (ar, ai), (br, bi) = norm
    limit = (k + 2) * UNIT
    assert (abs(error.real) <= limit * (np.outer(ar, br) + np.outer(ai, bi))).all()
    assert (abs(error.imag) <= limit * (np.outer(ar, bi) + np.outer(ai, br))).all()


SPECIALS = [0.0, 1.5, np.inf, -np.inf, np.nan]
VALUES = [complex(x, y) for x, y in itertools.product(SPECIALS, SPECIALS)]


@pytest.mark.parametrize("name", ["faithful", "int8x6", "fp16x3", "mixpert-IV", "float64"])
@pytest.mark.parametrize("pair", ["FF", "DD", "Ff", "fF"])
def test_nan_and_inf_are_where_the_formulas_put_them(name: str, pair: str) -> None:
    """Every value, at one place of A, one of B, and where both meet, against NumPy's own."""
    for one, other in some(itertools.product(VALUES, [1 + 0j, *VALUES[::3]]), 7):
        a, b = normal(5, 6, dtype=pair[0]), normal(6, 4, dtype=pair[1], seed=1)
        a[2, 3] = one if pair[0] in "FD" else one.real
        b[3, 1] = other if pair[1] in "FD" else other.real
        b[0, 2] = 0
        with np.errstate(all="ignore"):
            native = a @ b
            wanted = by_definition(a, b, np.matmul)
            value = emulate(a, b, name)
        np.testing.assert_array_equal(np.isfinite(value), np.isfinite(native))
        if name == "float64":  # NumPy's own product
            continue
        for part, expected in ((value.real, wanted.real), (value.imag, wanted.imag)):
            np.testing.assert_array_equal(np.isnan(part), np.isnan(expected))
            np.testing.assert_allclose(part, expected, atol=1e-4)


def test_float32_casts_where_there_is_room() -> None:
    a, b = normal(40, 40, dtype="D"), normal(40, 40, dtype="D", seed=1)
    value = emulate(a, b, "float32")
    assert value.dtype == np.complex128
    np.testing.assert_array_equal(value, a.astype("F") @ b.astype("F"))
    assert emulate(a * 1e200j, b, "float32") is None
    assert emulate(a * 1e-40j, b, "float32") is None
    assert emulate(a * 1e25, b * 1e25j, "float32") is None
    mixed = emulate(a.real, b, "float32")
    np.testing.assert_array_equal(mixed, a.real.astype("f") @ b.astype("F"))


def test_a_repeated_operand_is_split_once() -> None:
    shapes: list[Any] = []
    way = NUMPYS._replace(split=lambda x: (shapes.append(x.shape), split(x))[1])
    assert parts(way, np.broadcast_to(normal(3, 4, dtype="F"), (7, 3, 4))).shape == (2, 7, 3, 4)
    assert shapes == [(1, 3, 4)]
