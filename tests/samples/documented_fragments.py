"""Fragments of mma.sync as the PTX ISA gives them: m16n8k16 of 16 bits, m16n8k32 of 8."""

import numpy as np
from numpy.typing import NDArray

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
