"""Device functions that the packing kernels share: loads, and what kernels of whole rows do.

Elements are loaded four at a time, where they are neighbours and aligned. A row's largest
magnitude, fineness and sum of squares are found, by reading it or from what others have found, and
put together; from them follow its unit and whether it is safe to stay in the slices; then eight
elements at a time are split, on the fast path if it is safe, else on the slow one. None of it uses
`cuda.…`, so that the simulator need not swap this module's names.
"""

# The bodies of kernels are Numba's to type, and what it offers is made at run time.
# mypy: allow-untyped-calls, allow-untyped-defs, no-check-untyped-defs
# mypy: disable-error-code="attr-defined"

from typing import Any

import numpy as np
from numba.cuda import types

from mixpert_py.runtime.kernels.abi import LEAVES, SIGNIFICAND_MASK
from mixpert_py.runtime.kernels.intrinsics import device, fused, read_four
from mixpert_py.runtime.packing.digits import (
    FORMATS,
    TOO_FINE,
    finer_of,
    row_coarse,
    row_fineness,
    row_octet,
    row_units,
    safe_octet,
)
from mixpert_py.runtime.packing.floats import finest_of, float_octet, float_units, words_in_slices
from mixpert_py.runtime.packing.operand import APART, ITEM, PANEL, QUAD, Side


def argument_types(side: Side, *between: Any, integers: int = 5) -> list[Any]:
    """The Numba types of an operand's arguments: the addresses of its elements, slices, scales and
    flags, and of what lies between launches, then integers.
    """
    pointers = getattr(types, side.memory), types.uint32, types.int32, types.uint8, *between
    return [*map(types.CPointer, pointers), *[types.int64] * integers]


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


def units_of(side: Side) -> Any:
    """The device function for a row's scale word, factors and flag, and whether it is safe: sure to
    stay in the slices, whatever its digits are.
    """
    return float_units(side) if side.kind == "floats" else row_units(side)


def fast_path(side: Side) -> Any:
    """The device function that splits eight elements of a safe row."""
    return float_octet(side) if side.kind == "floats" else safe_octet(side)


def slow_path(side: Side) -> Any:
    """The device function that splits values[at … at + 7] of any other row, and adds to what it
    loses.
    """
    FLOATS = side.kind == "floats"
    # 2^(shift − e) may be too large to be one factor. A second of 0 clears what is no number.
    TWICE = FLOATS or side.memory == side.wide
    MEMORY = FORMATS[side.memory].number
    octet = fast_path(side) if FLOATS else row_octet(side)

    def cut(
        values, at, one, two, ratio, worth, norms, squares, words, slices, index, slice_words,
    ):  # fmt: skip
        if TWICE and two != 1:
            for j in range(at, at + ITEM):
                values[j] = MEMORY(values[j] * two) if two > 0 else MEMORY(0)
        if FLOATS:
            octet(values, at, 1, one, ratio, words, squares, slices, index, slice_words)
        else:
            octet(
                values, at, 1, one, ratio, worth, norms, squares, words, slices, index, slice_words
            )

    return device(cut)


def words_made(side: Side) -> int:
    """Words that eight elements take before they are stored."""
    return words_in_slices(side) if side.kind == "floats" else ITEM


# Sizes of two arrays in shared memory, of a panel's rows: the factors that rows are multiplied by;
# and scale words, then twice the flag plus whether the row is safe.
FACTORS, NUMBERS = 4 * PANEL, 2 * PANEL
# Bits of a row's second number that decide whether it stays or leaves without a look at its digits.
DECIDED = 2 * LEAVES + 1


def panel_splits(side: Side) -> tuple[Any, Any, Any]:
    """Three device functions. `make_units` finds the unit of one row. `split_safe_rows` splits
    those of a thread's four rows that are safe, `split_slow_rows` the others. It reads them again,
    since they would take too many registers, and adds what they lose, and have, to
    left[at + row + plane · sum]. The first two rows are stored at `place`, the others, which have
    the next chunk's, at `flipped`.
    """
    WIDE, SUMS, COUNT = FORMATS[side.wide].number, side.sums, side.slices
    LOSS, LOWER = side.loss, side.lower
    units, split_fast, split_slow = units_of(side), fast_path(side), slow_path(side)

    def make_units(own, top, fine, power, k, factors, numbers):
        word, one, two, ratio, worth, flag, is_safe = units(top, fine, power, k)
        numbers[own] = word
        numbers[PANEL + own] = 2 * flag + is_safe
        factors[own] = one
        factors[PANEL + own] = two
        factors[2 * PANEL + own] = ratio
        factors[3 * PANEL + own] = worth

    def split_safe_rows(
        values, lane, last, factors, numbers, cut, squares, slices, place, flipped, slice_words,
    ):  # fmt: skip
        for i in range(QUAD):
            r = np.int32(QUAD * lane + i)
            if i < last and numbers[PANEL + r] & 1:
                split_fast(
                    values, i, QUAD, factors[r], factors[2 * PANEL + r], cut, squares,
                    slices, (place if i < 2 else flipped) + 16 * i, slice_words,
                )  # fmt: skip

    def split_slow_rows(
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
                split_slow(
                    values, 0, factors[r], factors[PANEL + r], factors[2 * PANEL + r],
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

    return device(make_units), device(split_safe_rows), device(split_slow_rows)


@device
def write_row(scales, flags, row, word, flag):
    """Writes a row's scale word and flag. The unit of a row that leaves the slices is 0."""
    scales[row] = word & ~SIGNIFICAND_MASK if flag & LEAVES else word
    flags[row] = flag


def thread_scan(side: Side, held: bool) -> tuple[Any, Any, Any]:
    """Device functions by which a thread finds, of four rows, the largest magnitude as bits, how
    fine they are, and the sum of squares. `clear` comes before anything is scanned; `scan` takes
    what the thread holds; `publish` writes what it has found to its slots of shared memory.

    held: whether a thread still holds what it has scanned when it publishes it.
    """
    HOLDS = held
    it = FORMATS[side.memory]
    BITS, MAGNITUDE, SUMS, FITTED = it.bits, it.magnitude, side.sums, side.fitted
    SPANS, finest_entry, bits_of = side.span >= 0, finest_of(side), it.bits_of
    coarse, fineness, finer = row_coarse(side), row_fineness(side), finer_of(side)

    def clear(either, most, power):
        for i in range(QUAD):
            either[i] = BITS(MAGNITUDE if SPANS else 0)
            most[i] = BITS(0)
            power[i] = np.float32(0)

    def scan(values, either, most, power):
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

    def publish(
        values, either, most, power, x, place, stride, count_, length, last, threads,
        tops, fines, powers, slot,
    ):  # fmt: skip
        closely = np.int32(0)
        for i in range(QUAD):
            tops[slot + i] = most[i]
            if SUMS > 0:
                powers[slot + i] = power[i]
            if FITTED:
                fine = TOO_FINE
                if i < last and coarse(either[i], most[i]):
                    closely |= np.int32(1 << i)
                    fine = 0
                fines[slot + i] = fine
            if SPANS:
                fines[slot + i] = finest_entry(either[i])
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

    return device(clear), device(scan), device(publish)


def reductions(side: Side) -> tuple[Any, Any, Any]:
    """Device functions that reduce `count` values, `between` apart, to the largest magnitude, the
    finest, or the sum of squares.
    """
    BITS = FORMATS[side.memory].bits

    def reduction(nothing: Any, combine: Any) -> Any:
        NOTHING, combined = nothing, device(combine)

        def reduce(values, first, between, count):
            found = NOTHING
            for i in range(count):
                found = combined(found, values[first + i * between])
            return found

        return device(reduce)

    return (
        reduction(BITS(0), lambda found, it: BITS(it if it > found else found)),
        reduction(np.int32(0), lambda found, it: np.int32(max(found, it))),
        reduction(np.float32(0), lambda found, it: np.float32(found + it)),
    )


def findings(side: Side) -> tuple[Any, Any]:
    """Device functions for what is found of a row: largest magnitude, fineness, sum of squares.
    `unite` takes what lies at a place of three arrays as well; `leave` writes it there.
    """
    BITS, SUMS, FINENESS = FORMATS[side.memory].bits, side.sums, side.fineness

    def unite(top, fine, power, tops, fines, powers, place):
        size = tops[place]
        top = BITS(size if size > top else top)
        if FINENESS:
            fine = np.int32(max(fine, fines[place]))
        if SUMS > 0:
            power += powers[place]
        return top, fine, power

    def leave(top, fine, power, tops, fines, powers, place):
        tops[place] = top
        if FINENESS:
            fines[place] = fine
        if SUMS > 0:
            powers[place] = power

    return device(unite), device(leave)


def run_scans(side: Side, threads: int) -> tuple[Any, Any, Any]:
    """Device functions, for blocks of so many threads, that find the same of runs. `scan_run` scans
    one by a block's threads; `store_run` reduces what they found and leaves it in memory;
    `load_runs` reduces what all blocks left, a share of it by each thread.
    """
    BITS, SUMS = FORMATS[side.memory].bits, side.sums
    FINENESS, GROUPS = side.fineness, threads // PANEL
    clear, scan, publish = thread_scan(side, False)
    reduce_tops, reduce_fines, reduce_powers = reductions(side)
    unite, _ = findings(side)

    def scan_run(
        values, x, place, stride, count_, length, last, vector,
        tops, fines, powers, slot, either, most, power,
    ):  # fmt: skip
        clear(either, most, power)
        at = place
        for piece in range(length):
            load_panel(values, x, at, stride, np.int32(count_ - piece * threads), last, vector)
            at += threads * stride
            scan(values, either, most, power)
        publish(
            values, either, most, power, x, place, stride, count_, length, last, threads,
            tops, fines, powers, slot,
        )  # fmt: skip

    def store_run(
        top_of, fine_of, power_of, group, own, parts, tops, fines, powers, place,
    ):  # fmt: skip
        # Three warps, one for each.
        for task in range(group, 3, GROUPS):
            if task == 0:
                tops[place] = reduce_tops(top_of, own, APART, parts)
            if FINENESS and task == 1:
                fines[place] = reduce_fines(fine_of, own, APART, parts)
            if SUMS > 0 and task == 2:
                powers[place] = reduce_powers(power_of, own, APART, parts)

    def load_runs(first, group, runs, tops, fines, powers):
        top = BITS(0)
        fine = np.int32(0)
        power = np.float32(0)
        for run in range(group, runs, GROUPS):
            top, fine, power = unite(top, fine, power, tops, fines, powers, first + run * PANEL)
        return top, fine, power

    return device(scan_run), device(store_run), device(load_runs)
