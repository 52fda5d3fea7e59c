"""What blocks of `panel_kernels` find in their runs: by reading them, or from what others left."""

# The bodies of kernels are Numba's to type.
# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
# mypy: disable-error-code="attr-defined"

from typing import Any, NamedTuple

import numpy as np

from mixpert_py.runtime.packing.intrinsics import bits32, bits64, device, fused
from mixpert_py.runtime.packing.layout import ITEM
from mixpert_py.runtime.packing.row_digits import (
    TOO_FINE,
    facts,
    quad_fetch,
    row_coarse,
    row_fineness,
)
from mixpert_py.runtime.packing.side import Side

PANEL = 32  # rows
QUAD = 4  # contiguous rows of a thread
ACROSS = PANEL // QUAD  # threads next to each other along the rows
APART = PANEL + 1  # from a part's rows to the next's in shared memory: no two in one bank


class Looks(NamedTuple):
    """Device functions. Each tells of rows their largest magnitude, as bits, how fine they are, and
    their sum of squares: look, what the threads of a block see in a run; leave, what they leave of
    it in memory, put together; left_by_all, what all blocks have left, a share of it for each
    thread; seen_alone, the same by reading all of it.
    """

    look: Any
    leave: Any
    left_by_all: Any
    seen_alone: Any


def looks(side: Side, threads: int) -> Looks:
    """For blocks of so many threads."""
    it = facts(side)
    BITS, MAGNITUDE, SUMS, FITTED = it.bits, it.magnitude, it.sums, side.fitted
    PARTS, GROUPS = threads // ACROSS, threads // PANEL
    bits_of = bits32 if side.memory == "float32" else bits64
    fetch, coarse, fineness = quad_fetch(), row_coarse(side), row_fineness(side)

    def look(
        values, x, place, stride, count_, length, last, vector,
        tops, fines, powers, slot, either, most, power,
    ):  # fmt: skip
        for i in range(QUAD):
            either[i] = BITS(0)
            most[i] = BITS(0)
            power[i] = np.float32(0)
        further = threads * stride
        at = place
        for piece in range(length):
            fetch(values, x, at, stride, np.int32(count_ - piece * threads), last, vector)
            at += further
            for i in range(QUAD):
                for j in range(ITEM):
                    value = values[QUAD * j + i]
                    bits = bits_of(value)
                    either[i] = BITS(either[i] | bits)
                    size = BITS(bits & MAGNITUDE)
                    most[i] = BITS(size if size > most[i] else most[i])
                    if SUMS > 0:
                        power[i] = fused(np.float32(value), np.float32(value), power[i])
        closely = np.int32(0)
        for i in range(QUAD):
            tops[slot + i] = most[i]
            if SUMS > 0:
                powers[slot + i] = power[i]
            if FITTED:
                fines[slot + i] = TOO_FINE
                if i < last and coarse(either[i], most[i]):
                    closely |= np.int32(1 << i)
        if FITTED and closely != 0:
            for i in range(QUAD):
                if (closely >> i) & 1:
                    fine = np.int32(0)
                    at = place + i
                    for piece in range(length):
                        rest = np.int32(min(count_ - piece * threads, ITEM))
                        fine = np.int32(max(fine, fineness(x, at, stride, rest)))
                        at += further
                    fines[slot + i] = fine

    def leave(
        top_of, fine_of, power_of, group, own, parts, tops, fines, powers, place,
    ):  # fmt: skip
        # Three warps, one for each.
        for task in range(group, 3, GROUPS):
            if task == 0:
                top = BITS(0)
                for part in range(parts):
                    size = top_of[APART * part + own]
                    top = BITS(size if size > top else top)
                tops[place] = top
            if FITTED and task == 1:
                fine = np.int32(0)
                for part in range(parts):
                    fine = np.int32(max(fine, fine_of[APART * part + own]))
                fines[place] = fine
            if SUMS > 0 and task == 2:
                power = np.float32(0)
                for part in range(parts):
                    power += power_of[APART * part + own]
                powers[place] = power

    def left_by_all(first, group, runs, tops, fines, powers):
        top = BITS(0)
        fine = np.int32(0)
        power = np.float32(0)
        for run in range(group, runs, GROUPS):
            size = tops[first + run * PANEL]
            top = BITS(size if size > top else top)
            if FITTED:
                fine = np.int32(max(fine, fines[first + run * PANEL]))
            if SUMS > 0:
                power += powers[first + run * PANEL]
        return top, fine, power

    def seen_alone(x, start, stride, k, group, runs, length):
        # The same numbers, added in the same order, as the others would have left.
        top = BITS(0)
        fine = np.int32(0)
        power = np.float32(0)
        for run in range(group, runs, GROUPS):
            whole = np.float32(0)
            for part in range(PARTS):
                either = BITS(0)
                most = BITS(0)
                its = np.float32(0)
                begin = np.int32(run * length * threads + part * ITEM)
                end = np.int32(min((run + 1) * length * threads, k))
                for at in range(begin, end, threads):
                    for j in range(min(end - at, ITEM)):
                        value = x[start + (at + j) * stride]
                        bits = bits_of(value)
                        either = BITS(either | bits)
                        size = BITS(bits & MAGNITUDE)
                        most = BITS(size if size > most else most)
                        if SUMS > 0:
                            its = fused(np.float32(value), np.float32(value), its)
                top = BITS(most if most > top else top)
                if FITTED:
                    close = np.int32(TOO_FINE)
                    if coarse(either, most):
                        close = np.int32(0)
                        for at in range(begin, end, threads):
                            rest = np.int32(min(end - at, ITEM))
                            next_ = np.int32(fineness(x, start + at * stride, stride, rest))
                            close = np.int32(max(close, next_))
                    fine = np.int32(max(fine, close))
                whole += its
            power += whole
        return top, fine, power

    return Looks(device(look), device(leave), device(left_by_all), device(seen_alone))
