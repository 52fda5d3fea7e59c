"""What the kernels of panels and clusters, and partly those of rows, do with a row.

Its largest magnitude, fineness and sum of squares are found, by reading it or from what others have
found, and put together; from them follow its unit and whether it is safe to stay in the slices;
then eight elements at a time are split, on the fast path if it is safe, else on the slow one.
"""

# The bodies of kernels are Numba's to type, and what it offers is made at run time.
# mypy: allow-untyped-calls, allow-untyped-defs, no-check-untyped-defs
# mypy: disable-error-code="attr-defined"

from typing import Any, NamedTuple

import numpy as np

from mixpert_py.runtime.kernels.abi import LEAVES
from mixpert_py.runtime.packing.digits import (
    TOO_FINE,
    facts,
    finer_of,
    plain_octet,
    row_coarse,
    row_fineness,
    row_octet,
    row_units,
)
from mixpert_py.runtime.packing.floats import finest_of, float_octet, float_units, words_of
from mixpert_py.runtime.packing.intrinsics import bits32, bits64, device, fused, send
from mixpert_py.runtime.packing.loads import load_apart, load_panel
from mixpert_py.runtime.packing.operand import ACROSS, APART, ITEM, PANEL, QUAD
from mixpert_py.runtime.packing.side import Side


def units_of(side: Side) -> Any:
    """The device function that says what to multiply a row by, and whether it is plain."""
    return float_units(side) if side.kind == "floats" else row_units(side)


def plain(side: Side) -> Any:
    """The device function that cuts eight elements of a plain row."""
    return float_octet(side) if side.kind == "floats" else plain_octet(side)


def hard(side: Side) -> Any:
    """The device function that cuts values[0 … 7] of any other row, and adds to what it loses."""
    FLOATS = side.kind == "floats"
    # 2^(shift − e) may be too large to be one factor. A second of 0 clears what is no number.
    TWICE = FLOATS or side.memory == side.wide
    MEMORY = facts(side).memory
    octet = plain(side) if FLOATS else row_octet(side)

    def cut(
        values, one, two, ratio, worth, norms, squares, words, slices, index, slice_words,
    ):  # fmt: skip
        if TWICE and two != 1:
            for j in range(ITEM):
                values[j] = MEMORY(values[j] * two) if two > 0 else MEMORY(0)
        if FLOATS:
            octet(values, 0, 1, one, ratio, words, squares, slices, index, slice_words)
        else:
            octet(
                values, 0, 1, one, ratio, worth, norms, squares, words, slices, index, slice_words
            )

    return device(cut)


def words_made(side: Side) -> int:
    """Of eight elements, before they are stored."""
    return words_of(side) if side.kind == "floats" else ITEM


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
                load_apart(values, x, source + i, stride, count)
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
    coarse, fineness = row_coarse(side), row_fineness(side)
    clear, see, show = seeing(side, False)
    highest, finest, strongest = folds(side)

    def look(
        values, x, place, stride, count_, length, last, vector,
        tops, fines, powers, slot, either, most, power,
    ):  # fmt: skip
        clear(either, most, power)
        at = place
        for piece in range(length):
            load_panel(values, x, at, stride, np.int32(count_ - piece * threads), last, vector)
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


SEEN, LOST = 0, 1  # boxes: what all see, sent to all; what rows lose, sent to the first
OF_WARP = PANEL // ACROSS  # parts


class Tellings(NamedTuple):
    """Device functions: put_together, what a warp's parts have seen, as the first of them; tell,
    what a block's warps have, to all blocks; told, the same of all of them, for one row; lose, what
    a block's parts lose of rows, to the first block; lost, whether a row has lost too much in all.
    """

    put_together: Any
    tell: Any
    told: Any
    lose: Any
    lost: Any


def seen_bytes(side: Side, blocks: int) -> int:
    """That a block is sent, in all, of what blocks see."""
    of_row = (4 if side.memory == "float32" else 8) + 4 * side.fineness + 4 * (side.sums > 0)
    return blocks * PANEL * of_row


def lost_bytes(side: Side, blocks: int) -> int:
    """That the first block is sent of what rows lose, if any may leave."""
    return 4 * blocks * PANEL * side.sums


def tellings(side: Side, threads: int, blocks: int) -> Tellings:
    """For blocks of so many threads, and clusters of so many blocks."""
    BLOCKS, SUMS, FINENESS, BITS = blocks, side.sums, side.fineness, facts(side).bits
    PARTS, GROUPS = threads // ACROSS, threads // PANEL
    ROOM, ALL = PARTS * APART, blocks * PANEL
    highest, finest, strongest = folds(side)

    def put_together(top_of, fine_of, power_of, own, group):
        first = np.int32(APART * OF_WARP * group + own)
        top_of[first] = highest(top_of, first, APART, OF_WARP)
        if FINENESS:
            fine_of[first] = finest(fine_of, first, APART, OF_WARP)
        if SUMS > 0:
            power_of[first] = strongest(power_of, first, APART, OF_WARP)

    def tell(top_of, fine_of, power_of, own, group, rank, tops, fines, powers, boxes):
        mine = np.int32(rank * PANEL + own)
        # Three warps, one for each.
        for task in range(group, 3, GROUPS):
            if task == 0:
                top = highest(top_of, own, APART * OF_WARP, GROUPS)
                for block in range(BLOCKS):
                    send(tops, mine, top, np.int32(block), boxes, SEEN)
            if FINENESS and task == 1:
                fine = finest(fine_of, own, APART * OF_WARP, GROUPS)
                for block in range(BLOCKS):
                    send(fines, mine, fine, np.int32(block), boxes, SEEN)
            if SUMS > 0 and task == 2:
                power = strongest(power_of, own, APART * OF_WARP, GROUPS)
                for block in range(BLOCKS):
                    send(powers, mine, power, np.int32(block), boxes, SEEN)

    def told(tops, fines, powers, own):
        top = BITS(highest(tops, own, PANEL, BLOCKS))
        fine = np.int32(0)
        if FINENESS:
            fine = finest(fines, own, PANEL, BLOCKS)
        power = np.float32(0)
        if SUMS > 0:
            power = strongest(powers, own, PANEL, BLOCKS)
        return top, fine, power

    def lose(sums, own, group, rank, left, boxes):
        for p in range(group, SUMS, GROUPS):
            excess = strongest(sums, np.int32(ROOM * p + own), APART, PARTS)
            send(left, ALL * p + PANEL * rank + own, excess, np.int32(0), boxes, LOST)

    def lost(left, own):
        out = False
        for p in range(SUMS):
            whole = 0.0
            for block in range(BLOCKS):
                whole += np.float64(left[ALL * p + PANEL * block + own])
            out = out or whole > 0.0
        return out

    return Tellings(*[device(one) for one in (put_together, tell, told, lose, lost)])
