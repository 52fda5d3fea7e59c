"""Device functions that load elements: four in one load, where they are neighbours and aligned.

None of it uses `cuda.…`, so that the simulator need not swap this module's names.
"""

# The bodies of kernels are Numba's to type.
# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
# mypy: disable-error-code="attr-defined"

from typing import Any

import numpy as np

from mixpert_py.runtime.kernels.intrinsics import device, read_four
from mixpert_py.runtime.packing.operand import ITEM, QUAD


@device
def load_eight(values, to, x, start, at, k, vector):
    """Loads eight neighbours along K into values[to … to + 7], zeros past k."""
    if vector != 0 and at + ITEM <= k:
        for j in range(0, ITEM, 4):
            read_four(values, to + j, x, start + np.int32(at + j))
    else:
        for j in range(ITEM):
            values[to + j] = 0.0
            if at + j < k:
                values[to + j] = x[start + np.int32(at + j)]


def load_items(items: int) -> Any:
    """The device function that loads a thread's items of eight elements, zeros past k."""
    HELD = items * ITEM

    def load(values, x, start, at, between, k, vector):
        if vector != 0 and at + (items - 1) * between + ITEM <= k:
            for j in range(0, HELD, 4):
                place = start + np.int32(at + (j // ITEM) * between + (j & 4))
                read_four(values, j, x, place)
        else:
            for i in range(items):
                load_eight(values, i * ITEM, x, start, np.int32(at + i * between), k, vector)

    return device(load)


@device
def load_apart(values, x, place, stride, count):
    """Loads `count` elements, at most eight and `stride` apart, into values[0 …], then zeros."""
    for j in range(ITEM):
        values[j] = 0.0
        if j < count:
            values[j] = x[place]
        place += stride


@device
def load_panel(values, x, place, stride, count, last, vector):
    """Loads 4 neighbouring rows × 8 positions of K, `stride` apart, from x[place] on, into
    values[4 · position + row], with zeros past `last` rows and past `count` positions.
    """
    if vector != 0 and last >= QUAD and count >= ITEM:
        for j in range(ITEM):
            read_four(values, QUAD * j, x, place)
            place += stride
    else:
        for j in range(ITEM):
            for i in range(QUAD):
                values[QUAD * j + i] = 0.0
                if i < last and j < count:
                    values[QUAD * j + i] = x[place + i]
            place += stride


def load_strip(held: int) -> Any:
    """The device function that loads a thread's items, `held` elements of one row.

    Past `last`, the block's last element, it takes that one again, or the first of its own: items
    past a short block are not read.
    """

    def load(values, x, start, stride, at, between, last, vector):
        end = at + (held // ITEM - 1) * between + ITEM - 1
        if vector and end <= last:
            for j in range(0, held, 4):
                place = start + np.int32(at + (j // ITEM) * between + (j & (ITEM - 1)))
                read_four(values, j, x, place)
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
                        read_four(values, d + j, x, start + np.int32(first + j))
                else:
                    for j in range(ITEM):
                        values[d + j] = x[start + min(first + j, last) * stride]

    return device(load)
