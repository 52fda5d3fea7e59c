"""The kernel that looks at crest factors, in Numba's simulator, against NumPy.

Run by `tests/runtime/packing/test_crest.py` in a process of its own.
"""

import numpy as np
import pytest
from numba import cuda

from mixpert_py.runtime import crest
from mixpert_py.runtime.packing.crest import words
from mixpert_py.runtime.packing.crest_kernels import crest_kernel
from tests.runtime.families import Array
from tests.runtime.packing.simulated.launches import flat, operand
from tests.runtime.packing.simulated.simulation import simulation

pytestmark = pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
THREADS = 16


def looked(a: Array, b: Array) -> tuple[list[float], list[float]]:
    """What the kernel tells of each row of A, and column of B, that it looks at."""
    x, y = operand(a, False), operand(b, True)
    (rows, columns), integers = words(x.form, y.form)
    function, _ = crest_kernel(x.memory, y.memory, THREADS)
    found = np.full(rows + columns, -1.0)
    with simulation():
        cuda.jit(function)[rows + columns, THREADS](flat(a), flat(b), found, *integers)
    return found[:rows].tolist(), found[rows:].tolist()


def check(a: Array, b: Array) -> None:
    rows, columns = looked(a, b)
    assert crest.mean(rows) == pytest.approx(crest.mean_square(a), rel=1e-12)
    by_columns = b.swapaxes(-1, -2)
    assert crest.mean(columns) == pytest.approx(crest.mean_square(by_columns), rel=1e-12)


def normal(*shape: int, dtype: str = "float32", seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("types", [("float32", "float32"), ("float32", "float64")])
@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 1), (5, 3, 2), (70, 129, 3), (3, 700, 130)])
def test_rows_and_columns(m: int, k: int, n: int, types: tuple[str, str]) -> None:
    a, b = normal(m, k, dtype=types[0]), normal(k, n, dtype=types[1], seed=1)
    check(a, b)
    check(np.asfortranarray(a), np.asfortranarray(b))
    check(a[::-1, ::2], b[::2, ::-1])


def test_stacks() -> None:
    check(normal(3, 30, 40), normal(40, 5))
    check(normal(30, 40), normal(9, 40, 50)[::2])


def test_one_entry_that_rules_a_row() -> None:
    a, b = normal(2, 40) * np.float32(1e-3), normal(40, 2)
    for place in (0, 15, 16, 39):  # whichever thread it comes to
        x = a.copy()
        x[:, place] = 1
        check(x, b)
        assert looked(x, b)[0][1] > 39


def test_what_has_no_crest() -> None:
    a, b = normal(4, 40), normal(40, 4)
    a[0], a[1, 5], a[2, 39] = 0, np.nan, np.inf
    rows = np.array(looked(a, b)[0])
    assert rows[0] == 0
    assert not (np.isfinite(rows[1:3]) & (rows[1:3] != 0)).any()
    check(a, b)


def test_the_ends_of_float32() -> None:
    a, b = normal(3, 40), normal(40, 3)
    a[0] *= 1e-42
    a[1] *= 3e37
    check(a, b)
    assert min(looked(a, b)[0]) > 1
