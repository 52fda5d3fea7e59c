"""How threads read elements: four in one load, where they are neighbours and aligned.

None of it uses `cuda.…`, as in `intrinsics`.
"""

# The bodies of kernels are Numba's to type.
# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
# mypy: disable-error-code="attr-defined"

from typing import Any

import numpy as np

from mixpert_py.runtime.packing.intrinsics import device, load_four
from mixpert_py.runtime.packing.layout import ITEM


def row_fetch(items: int) -> Any:
    """The device function that reads a thread's items of eight elements, zeros past k."""
    HELD = items * ITEM

    def fetch(values, x, start, at, between, k, vector):
        if vector != 0 and at + (items - 1) * between + ITEM <= k:
            for j in range(0, HELD, 4):
                place = start + np.int32(at + (j // ITEM) * between + (j & 4))
                a, b, c, d = load_four(x, place)
                values[j] = a
                values[j + 1] = b
                values[j + 2] = c
                values[j + 3] = d
        else:
            for i in range(items):
                first = np.int32(at + i * between)
                if vector != 0 and first + ITEM <= k:
                    for j in range(0, ITEM, 4):
                        a, b, c, d = load_four(x, start + np.int32(first + j))
                        values[i * ITEM + j] = a
                        values[i * ITEM + j + 1] = b
                        values[i * ITEM + j + 2] = c
                        values[i * ITEM + j + 3] = d
                else:
                    for j in range(ITEM):
                        values[i * ITEM + j] = 0.0
                        if first + j < k:
                            values[i * ITEM + j] = x[start + np.int32(first + j)]

    return device(fetch)


@device
def fetch_eight(values, x, start, at, k, vector):
    """Reads eight neighbours along K into values[0 … 7], zeros past k."""
    if vector != 0 and at + ITEM <= k:
        for j in range(0, ITEM, 4):
            a, b, c, d = load_four(x, start + np.int32(at + j))
            values[j] = a
            values[j + 1] = b
            values[j + 2] = c
            values[j + 3] = d
    else:
        for j in range(ITEM):
            values[j] = 0.0
            if at + j < k:
                values[j] = x[start + np.int32(at + j)]


@device
def fetch_apart(values, x, place, stride, count):
    """Reads `count` elements, at most eight and `stride` apart, into values[0 …], then zeros."""
    for j in range(ITEM):
        values[j] = 0.0
        if j < count:
            values[j] = x[place]
        place += stride


def quad_fetch() -> Any:
    """The device function that reads 4 rows × 8 positions of K into values[4 · position + row];
    zeros past the last row, of `last`, and past the last position, of `count`.
    """

    def fetch(values, x, place, stride, count, last, vector):
        if vector != 0 and last >= 4 and count >= ITEM:
            for j in range(ITEM):
                a, b, c, d = load_four(x, place)
                place += stride
                values[4 * j] = a
                values[4 * j + 1] = b
                values[4 * j + 2] = c
                values[4 * j + 3] = d
        else:
            for j in range(ITEM):
                for i in range(4):
                    values[4 * j + i] = 0.0
                    if i < last and j < count:
                        values[4 * j + i] = x[place + i]
                place += stride

    return device(fetch)


def strip_fetch(held: int) -> Any:
    """The device function that reads a thread's items, `held` elements of one row.

    Past `last`, the block's last element, it takes that one again, or the first of its own: items
    past a short block are not read.
    """

    def fetch(values, x, start, stride, at, between, last, vector):
        end = at + (held // ITEM - 1) * between + ITEM - 1
        if vector and end <= last:
            for j in range(0, held, 4):
                place = start + np.int32(at + (j // ITEM) * between + (j & (ITEM - 1)))
                a, b, c, d = load_four(x, place)
                values[j] = a
                values[j + 1] = b
                values[j + 2] = c
                values[j + 3] = d
        elif end <= last:
            for j in range(0, held, ITEM):
                place = start + np.int32(at + (j // ITEM) * between) * stride
                for i in range(ITEM):
                    values[j + i] = x[place]
                    place += stride
        else:
            for d in range(0, held, ITEM):
                first = np.int32(at + (d // ITEM) * between)
                if d > 0 and first > last:
                    for j in range(ITEM):
                        values[d + j] = values[0]
                elif vector and first + ITEM - 1 <= last:
                    for j in range(0, ITEM, 4):
                        a, b, c, e = load_four(x, start + np.int32(first + j))
                        values[d + j] = a
                        values[d + j + 1] = b
                        values[d + j + 2] = c
                        values[d + j + 3] = e
                else:
                    for j in range(ITEM):
                        values[d + j] = x[start + min(first + j, last) * stride]

    return device(fetch)
