"""What blocks of `panel_kernels` and `cluster_kernels` find in panels: by reading them, or from
what others left.
"""

# The bodies of kernels are Numba's to type.
# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
# mypy: disable-error-code="attr-defined"

from typing import Any, NamedTuple

import numpy as np

from mixpert_py.runtime.packing.fetches import quad_fetch
from mixpert_py.runtime.packing.intrinsics import bits32, bits64, device, fused
from mixpert_py.runtime.packing.layout import ACROSS, APART, ITEM, PANEL, QUAD
from mixpert_py.runtime.packing.row_digits import (
    TOO_FINE,
    facts,
    finer_of,
    row_coarse,
    row_fineness,
)
from mixpert_py.runtime.packing.row_floats import finest_of
from mixpert_py.runtime.packing.side import Side


class Seeing(NamedTuple):
    """Device functions of a thread. Each tells of rows their largest magnitude, as bits, how fine
    they are, and their sum of squares: clear, before anything is seen; see, what it holds; show,
    what it has seen in all, in its slots of shared memory, `before` saying whether that is to be
    put together with what is there.
    """

    clear: Any
    see: Any
    show: Any


class Folds(NamedTuple):
    """Device functions: the largest magnitude, fineness, or sum of squares, of `count` that lie
    `between` apart.
    """

    highest: Any
    finest: Any
    strongest: Any


class Looks(NamedTuple):
    """Device functions that tell the same of runs: look, what the threads of a block see in one;
    leave, what they leave of it in memory, put together; left_by_all, what all blocks have left, a
    share of it for each thread; seen_alone, the same by reading all of it.
    """

    look: Any
    leave: Any
    left_by_all: Any
    seen_alone: Any


def seeing(side: Side, held: bool) -> Seeing:
    """held: whether a thread still holds what it has seen when it shows it."""
    HOLDS = held
    it = facts(side)
    BITS, MAGNITUDE, SUMS, FITTED = it.bits, it.magnitude, it.sums, side.fitted
    SPANS, finest_entry = side.span >= 0, finest_of(side)
    bits_of = bits32 if side.memory == "float32" else bits64
    coarse, fineness, finer = row_coarse(side), row_fineness(side), finer_of(side)

    def clear(either, most, power):
        for i in range(QUAD):
            either[i] = BITS(MAGNITUDE if SPANS else 0)
            most[i] = BITS(0)
            power[i] = np.float32(0)

    def see(values, either, most, power):
        for i in range(QUAD):
            for j in range(ITEM):
                value = values[QUAD * j + i]
                bits = bits_of(value)
                size = BITS(bits & MAGNITUDE)
                if SPANS:  # the smallest but zero
                    either[i] = BITS(size if 0 < size < either[i] else either[i])
                else:
                    either[i] = BITS(either[i] | bits)
                most[i] = BITS(size if size > most[i] else most[i])
                if SUMS > 0:
                    power[i] = fused(np.float32(value), np.float32(value), power[i])

    def show(
        values, either, most, power, x, place, stride, count_, length, last, threads,
        tops, fines, powers, slot, before,
    ):  # fmt: skip
        closely = np.int32(0)
        for i in range(QUAD):
            if before and tops[slot + i] > most[i]:
                most[i] = tops[slot + i]
            tops[slot + i] = most[i]
            if SUMS > 0:
                powers[slot + i] = power[i] + (powers[slot + i] if before else np.float32(0))
            if FITTED:
                fine = TOO_FINE
                if i < last and coarse(either[i], most[i]):
                    closely |= np.int32(1 << i)
                    fine = fines[slot + i] if before else 0
                fines[slot + i] = fine
            if SPANS:
                fine = finest_entry(either[i])
                fines[slot + i] = np.int32(max(fine, fines[slot + i])) if before else fine
        if FITTED and closely != 0:
            for i in range(QUAD):
                if (closely >> i) & 1:
                    fine = np.int32(fines[slot + i])
                    if HOLDS:
                        for j in range(ITEM):
                            fine = np.int32(finer(values[QUAD * j + i], fine))
                    else:
                        at = place + i
                        for piece in range(length):
                            rest = np.int32(min(count_ - piece * threads, ITEM))
                            fine = np.int32(max(fine, fineness(x, at, stride, rest)))
                            at += threads * stride
                    fines[slot + i] = fine

    return Seeing(device(clear), device(see), device(show))


def folds(side: Side) -> Folds:
    BITS = facts(side).bits

    def highest(tops, first, between, count):
        top = BITS(0)
        for i in range(count):
            size = tops[first + i * between]
            top = BITS(size if size > top else top)
        return top

    def finest(fines, first, between, count):
        fine = np.int32(0)
        for i in range(count):
            fine = np.int32(max(fine, fines[first + i * between]))
        return fine

    def strongest(powers, first, between, count):
        power = np.float32(0)
        for i in range(count):
            power += powers[first + i * between]
        return power

    return Folds(device(highest), device(finest), device(strongest))


def looks(side: Side, threads: int) -> Looks:
    """For blocks of so many threads."""
    it = facts(side)
    BITS, MAGNITUDE, SUMS, FITTED = it.bits, it.magnitude, it.sums, side.fitted
    SPANS, FINENESS, finest_entry = side.span >= 0, side.fineness, finest_of(side)
    PARTS, GROUPS = threads // ACROSS, threads // PANEL
    bits_of = bits32 if side.memory == "float32" else bits64
    fetch, coarse, fineness = quad_fetch(), row_coarse(side), row_fineness(side)
    clear, see, show = seeing(side, False)
    highest, finest, strongest = folds(side)

    def look(
        values, x, place, stride, count_, length, last, vector,
        tops, fines, powers, slot, either, most, power,
    ):  # fmt: skip
        clear(either, most, power)
        at = place
        for piece in range(length):
            fetch(values, x, at, stride, np.int32(count_ - piece * threads), last, vector)
            at += threads * stride
            see(values, either, most, power)
        show(
            values, either, most, power, x, place, stride, count_, length, last, threads,
            tops, fines, powers, slot, False,
        )  # fmt: skip

    def leave(
        top_of, fine_of, power_of, group, own, parts, tops, fines, powers, place,
    ):  # fmt: skip
        # Three warps, one for each.
        for task in range(group, 3, GROUPS):
            if task == 0:
                tops[place] = highest(top_of, own, APART, parts)
            if FINENESS and task == 1:
                fines[place] = finest(fine_of, own, APART, parts)
            if SUMS > 0 and task == 2:
                powers[place] = strongest(power_of, own, APART, parts)

    def left_by_all(first, group, runs, tops, fines, powers):
        top = BITS(0)
        fine = np.int32(0)
        power = np.float32(0)
        for run in range(group, runs, GROUPS):
            size = tops[first + run * PANEL]
            top = BITS(size if size > top else top)
            if FINENESS:
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
                least = BITS(MAGNITUDE)
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
                        if SPANS:
                            least = BITS(size if 0 < size < least else least)
                        if SUMS > 0:
                            its = fused(np.float32(value), np.float32(value), its)
                top = BITS(most if most > top else top)
                if SPANS:
                    fine = np.int32(max(fine, finest_entry(least)))
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
