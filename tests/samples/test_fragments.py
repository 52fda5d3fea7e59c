"""Fragment maps from what products of single elements show."""

import numpy as np
import pytest
from numpy.typing import NDArray

from mixpert_py.errors import DeviceError
from samples.papers.fragments import deduced

Places = NDArray[np.int64]

SHAPES = {"float16": (16, 8, 16), "int8": (16, 8, 32)}


def places(element: str) -> dict[str, Places]:
    """(lanes, elements of a thread): row · columns + column, of A, B and C."""
    _, n, k = SHAPES[element]
    parts = k // 8  # of a register
    lane = np.arange(32)[:, None]
    group, thread = lane // 4, lane % 4
    a, b, c = np.arange(4 * parts), np.arange(2 * parts), np.arange(4)
    found = {
        "A": (
            group + 8 * (a // parts % 2),
            thread * parts + a % parts + k // 2 * (a // parts // 2),
            k,
        ),
        "B": (thread * parts + b % parts + k // 2 * (b // parts), group, n),
        "C": (group + 8 * (c // 2), thread * 2 + c % 2, n),
    }
    return {
        name: row * columns + (column + 0 * row) for name, (row, column, columns) in found.items()
    }


def products(a: Places, b: Places, c: Places, shape: tuple[int, int, int]) -> NDArray[np.int32]:
    """What `products` of fragments.cu writes where the fragments lie so."""
    m, n, k = shape
    found = np.zeros((2, m * k, m * n), np.int32)
    of_b = {int(place): number for number, place in enumerate(b.ravel())}
    of_c = {int(place): number for number, place in enumerate(c.ravel())}
    for number, place in enumerate(a.ravel()):
        row, depth = divmod(int(place), k)
        for column in range(n):
            met = of_b[depth * n + column]
            found[:, number, of_c[row * n + column]] = met % 16 + 1, met // 16 + 1
    return found


@pytest.mark.parametrize("element", SHAPES)
def test_the_documented_map_is_found(element: str) -> None:
    known = places(element)
    seen = products(known["A"], known["B"], known["C"], SHAPES[element])
    for part in deduced(seen, SHAPES[element]):
        np.testing.assert_array_equal(part.places, known[part.operand])


def test_what_no_map_explains_is_refused() -> None:
    known = places("float16")
    seen = products(known["A"], known["B"], known["C"], SHAPES["float16"])
    stray = seen.copy()
    stray[:, 0, 127] = 16
    for broken in (
        stray,
        0 * seen,
        seen[:, :, :64].repeat(2, axis=2),
        seen[:, :128].repeat(2, axis=1),
    ):
        with pytest.raises(DeviceError, match="no fragment map explains"):
            deduced(broken, SHAPES["float16"])
