"""What `panel_kernels` and `cluster_kernels` make of panels that have been looked at."""

# The bodies of kernels are Numba's to type.
# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
# mypy: disable-error-code="attr-defined"

from typing import Any, NamedTuple

import numpy as np

from mixpert_py.runtime.kernels.abi import LEAVES
from mixpert_py.runtime.packing.fetches import fetch_apart
from mixpert_py.runtime.packing.intrinsics import device
from mixpert_py.runtime.packing.layout import PANEL, QUAD
from mixpert_py.runtime.packing.row_digits import facts
from mixpert_py.runtime.packing.row_slices import hard, units_of
from mixpert_py.runtime.packing.side import Side

# Of a panel's rows in shared memory: what to multiply them by; scale words, and flags, doubled,
# with whether a row is plain.
FACTORS, NUMBERS = 4 * PANEL, 2 * PANEL
# Of a row's second number, its flag and whether it is plain: either says that it stays, or leaves.
DECIDED = 2 * LEAVES + 1


class Cuts(NamedTuple):
    """Device functions: make_units, of one row; cut_hards, those of a thread's four rows that are
    not plain, which are read again: in registers they would take too many. What they lose, and
    have, is added to left[at + row + plane · sum]. place: of the first two rows, flipped: of the
    others, which have the next chunk's.
    """

    make_units: Any
    cut_hards: Any


def cuts(side: Side) -> Cuts:
    it = facts(side)
    WIDE, SUMS, LOWER = it.wide, it.sums, it.lower
    COUNT, LOSS = side.slices, side.loss
    units, cut_hard = units_of(side), hard(side)

    def make_units(own, top, fine, power, k, factors, numbers):
        word, one, two, ratio, worth, flag, is_plain = units(top, fine, power, k)
        numbers[own] = word
        numbers[PANEL + own] = 2 * flag + is_plain
        factors[own] = one
        factors[PANEL + own] = two
        factors[2 * PANEL + own] = ratio
        factors[3 * PANEL + own] = worth

    def cut_hards(
        values, x, source, stride, count, k, lane, last, factors, numbers, norms, cut, squares,
        slices, place, flipped, slice_words, left, at, plane,
    ):  # fmt: skip
        for i in range(last):
            r = np.int32(QUAD * lane + i)
            if numbers[PANEL + r] & 1 == 0:
                fetch_apart(values, x, source + i, stride, count)
                norms[0] = WIDE(0)
                norms[1] = WIDE(0)
                for p in range(COUNT):
                    squares[p] = np.int32(0)
                worth = factors[3 * PANEL + r]
                cut_hard(
                    values, factors[r], factors[PANEL + r], factors[2 * PANEL + r],
                    worth, norms, squares, cut, slices,
                    (place if i < 2 else flipped) + 16 * i, slice_words,
                )  # fmt: skip
                if SUMS > 0:
                    norm = np.float32(norms[0])
                    unit = np.float32(worth) * np.float32(worth)
                    left[at + i] += np.float32(norms[1]) - np.float32(LOSS) * norm
                    limit = np.float32(LOWER * np.float64(k)) * norm
                    for p in range(1, SUMS):
                        left[plane * p + at + i] += np.float32(squares[p]) * unit - limit

    return Cuts(device(make_units), device(cut_hards))
