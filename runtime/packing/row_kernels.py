"""The packing kernel where K is contiguous and one block: digits of 8 bits, and all
floating-point slices.

An operand is read once and written once. A row's threads, THREADS or fewer, hold ITEMS times eight
neighbours each in registers, find the row's largest magnitude, cut what they hold into slices, and
decide the row's flags. Rows that registers do not hold are read twice.

Digits that a row loses, or has, decide whether it leaves the slices. Few rows can: a safe one,
whose sum of squares says that it stays whatever its digits are, is cut without looking at them.

Nothing but the order of threads and blocks decides the order of a sum: two runs give the same bits.
Rows found to be not finite, or outliers, have units of zero. Their digits are not cleared. Floats
are, for zero times what is not finite is no zero: a row's largest magnitude says it all in time.
"""

# The bodies of kernels are Numba's to type.
# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
# mypy: disable-error-code="attr-defined"

from typing import Any

import numpy as np
from numba import cuda
from numba.cuda import types

from mixpert_py.runtime.kernels.abi import LEAVES, OUTLIER, STEP
from mixpert_py.runtime.kernels.intrinsics import device, launched
from mixpert_py.runtime.packing.digits import (
    FORMATS,
    TOO_FINE,
    place_of,
    row_coarse,
    row_fineness,
)
from mixpert_py.runtime.packing.floats import finest_of
from mixpert_py.runtime.packing.operand import ITEM, Side
from mixpert_py.runtime.packing.parts import (
    argument_types,
    fast_path,
    findings,
    load_eight,
    load_items,
    slow_path,
    units_of,
    words_made,
    write_row,
)

# Threads that a multiprocessor is to have room for, and in double precision. Left alone, the
# compiler takes more registers, and too little of memory is on its way.
RESIDENT, RESIDENT_DOUBLE = 1024, 512
FEW = 16  # threads that go on where a row's threads have each left something in shared memory


def row_kernel(
    left: Side, right: Side, threads: int, items: int, again: bool, alone: bool
) -> tuple[Any, tuple[Any, ...]]:
    """The kernel, to be compiled, and the Numba types of its arguments.

    items: of eight elements, that a thread holds. again: whether rows are longer than that, and so
    read twice. alone: whether all threads of a block share a row.
    """
    a_pack = _rows(left, threads, items, again, alone)
    b_pack = a_pack if left == right else _rows(right, threads, items, again, alone)

    def kernel(
        a, a_slices, a_scales, a_flags, a_rows, a_batch, a_stride, a_vector, a_strips,
        b, b_slices, b_scales, b_flags, b_rows, b_batch, b_stride, b_vector, b_strips,
        a_grid, share_log, k, steps,
    ):  # fmt: skip
        index = np.int64(cuda.blockIdx.x)
        of_a = a, a_slices, a_scales, a_flags, a_rows, a_batch, a_stride, a_vector, a_strips
        of_b = b, b_slices, b_scales, b_flags, b_rows, b_batch, b_stride, b_vector, b_strips
        if index < a_grid:
            a_pack(index, of_a, share_log, k, steps)
        else:
            b_pack(index - a_grid, of_b, share_log, k, steps)

    single = left.wide == right.wide == "float32"
    resident = RESIDENT if single else RESIDENT_DOUBLE
    found, signature = launched(
        kernel, *argument_types(left), *argument_types(right), *[types.int64] * 4
    )
    found.launch_bounds = threads, -(-resident // threads)
    return found, signature


def _rows(side: Side, threads: int, items: int, again: bool, alone: bool) -> Any:
    """The device function that packs the rows of a block, K contiguous."""
    it, wide = FORMATS[side.memory], FORMATS[side.wide]
    MEMORY, WIDE, BITS, MAGNITUDE = it.number, wide.number, it.bits, it.magnitude
    WIDE_SHARED, BITS_SHARED = wide.in_shared, it.bits_in_shared
    SUMS, LOWER = side.sums, side.lower
    HELD, COUNT, LOSS = items * ITEM, side.slices, side.loss
    ROOM, FACTORS, LEFT = threads // 8, threads // 2, max(SUMS, 1) * threads
    TURN_LOG = (threads * HELD).bit_length() - 1
    FITTED, SPANS = side.fitted, side.span >= 0
    AGAIN, ALONE = again, alone
    bits_of = it.bits_of
    load, coarse, fineness = load_items(items), row_coarse(side), row_fineness(side)
    units, split_fast, split_slow = units_of(side), fast_path(side), slow_path(side)
    finest, (unite, leave) = finest_of(side), findings(side)
    SIZE, WORDS = side.size, words_made(side)

    def rows_of(index, operand, share_log, k_, steps):
        x, slices, scales, flags, rows, batch_stride, stride, vector, strips = operand
        tops = cuda.shared.array(threads, BITS_SHARED)
        fines = cuda.shared.array(threads, types.int32)
        powers = cuda.shared.array(threads, types.float32)
        excesses = cuda.shared.array(LEFT, types.float32)
        factors = cuda.shared.array(FACTORS, WIDE_SHARED)
        # What the end needs again, so that no registers hold it meanwhile.
        words = cuda.shared.array(ROOM, types.int32)
        flagged = cuda.shared.array(ROOM, types.int32)
        safe = cuda.shared.array(ROOM, types.int32)
        places = cuda.shared.array(ROOM, types.int64)
        values = cuda.local.array(HELD, MEMORY)
        cut = cuda.local.array(WORDS, np.uint32)
        norms = cuda.local.array(2, WIDE)
        squares = cuda.local.array(COUNT, np.int32)

        thread = np.int32(cuda.threadIdx.x)
        k = np.int32(k_)
        share = np.int32(1 << share_log)
        if not ALONE:
            # Two neighbouring rows, eight threads each in turn: what a warp stores is whole lines.
            r = np.int32((thread >> (share_log + 1)) * 2 + ((thread >> 3) & 1))
            lane = np.int32(((thread & (2 * share - 1)) >> 4) * 8 + (thread & 7))
        else:
            r = np.int32(thread >> share_log)
            lane = np.int32(thread & (share - 1))
        slot = thread if ALONE else np.int32((r << share_log) + lane)
        few = np.int32(min(share, FEW))
        batch = np.int64(np.int32(index) // np.int32(strips))
        row = (index - batch * strips) * (np.int32(cuda.blockDim.x) >> share_log) + r
        present = row < rows
        start = batch * batch_stride + row * stride
        between = np.int32(share * ITEM)
        at = np.int32(lane * ITEM)
        turns = np.int32(((k - 1) >> TURN_LOG) + 1) if AGAIN else np.int32(1)

        top = BITS(0)
        either = BITS(0)
        least = BITS(MAGNITUDE)
        fine = np.int32(0)
        power = np.float32(0)
        if present:
            for turn in range(turns):
                first = np.int32(at + (turn << TURN_LOG))
                load(values, x, start, first, between, k, vector)
                for j in range(HELD):
                    bits = bits_of(values[j])
                    either = BITS(either | bits)
                    size = BITS(bits & MAGNITUDE)
                    top = BITS(size if size > top else top)
                    if SPANS:
                        least = BITS(size if 0 < size < least else least)
                    if SUMS > 0:
                        power += np.float32(values[j]) * np.float32(values[j])
            if FITTED:
                fine = np.int32(TOO_FINE)
                if coarse(either, top):
                    fine = np.int32(0)
                    for position in range(at, k, between):
                        rest = np.int32(min(k - position, ITEM))
                        its = np.int32(fineness(x, start + position, 1, rest))
                        fine = np.int32(max(fine, its))
            if SPANS:
                fine = finest(least)
        leave(top, fine, power, tops, fines, powers, slot)
        cuda.syncthreads()
        if lane < few:
            for other in range(lane + few, share, few):
                at_other = slot - lane + other
                top, fine, power = unite(top, fine, power, tops, fines, powers, at_other)
            leave(top, fine, power, tops, fines, powers, slot)
        cuda.syncthreads()
        any_slow = np.int32(0)
        if lane == 0:
            for other in range(1, few):
                top, fine, power = unite(top, fine, power, tops, fines, powers, slot + other)
            word, one, two, ratio, worth, flag, is_safe = units(top, fine, power, k)
            any_slow = np.int32(1 - is_safe)
            words[r] = word
            flagged[r] = flag
            safe[r] = is_safe
            places[r] = batch * rows + row if present else -1
            factors[4 * r] = one
            factors[4 * r + 1] = two
            factors[4 * r + 2] = ratio
            factors[4 * r + 3] = worth
        any_slow = cuda.syncthreads_or(any_slow)

        norms[0] = WIDE(0)
        norms[1] = WIDE(0)
        for p in range(COUNT):
            squares[p] = np.int32(0)
        if present:
            slice_words = ((rows + 7) & ~7) * 16
            swizzle = np.int32((row >> 1) & 3)
            base = batch * steps * COUNT * slice_words + row * 16
            end = np.int32(steps * (STEP // SIZE))
            place = base + place_of(at, SIZE, swizzle, COUNT, slice_words)
            advance = np.int64(np.int32((between * SIZE) >> 6)) * (COUNT * slice_words)
            one = factors[4 * r]
            ratio = factors[4 * r + 2]
            is_safe = safe[r]
            if not AGAIN and is_safe != 0:
                for i in range(items):
                    if np.int32(at + i * between) < end:
                        split_fast(
                            values, i * ITEM, 1, one, ratio,
                            cut, squares, slices, place, slice_words,
                        )  # fmt: skip
                        place += advance
            else:
                two = factors[4 * r + 1]
                worth = factors[4 * r + 3]
                for position in range(at, end, between):
                    load_eight(values, 0, x, start, np.int32(position), k, vector)
                    if is_safe != 0:
                        split_fast(
                            values, 0, 1, one, ratio, cut, squares, slices, place, slice_words
                        )
                    else:
                        split_slow(
                            values, 0, one, two, ratio, worth,
                            norms, squares, cut, slices, place, slice_words,
                        )  # fmt: skip
                    place += advance
        if SUMS > 0 and any_slow != 0:
            norm = np.float32(norms[0])
            excesses[slot] = np.float32(norms[1]) - np.float32(LOSS) * norm
            unit = np.float32(0)
            if present:
                unit = np.float32(factors[4 * r + 3]) * np.float32(factors[4 * r + 3])
            for p in range(1, SUMS):
                excesses[p * threads + slot] = (
                    np.float32(squares[p]) * unit - np.float32(LOWER * np.float64(k)) * norm
                )
            cuda.syncthreads()
            if lane < few:
                for p in range(SUMS):
                    excess = excesses[p * threads + slot]
                    for other in range(lane + few, share, few):
                        excess += excesses[p * threads + slot - lane + other]
                    excesses[p * threads + slot] = excess
            cuda.syncthreads()
        if lane == 0 and places[r] >= 0:
            word, flag = words[r], flagged[r]
            if SUMS > 0 and any_slow != 0 and safe[r] == 0:
                out = False
                for p in range(SUMS):
                    excess = 0.0
                    for other in range(few):
                        excess += np.float64(excesses[p * threads + slot + other])
                    out = out or excess > 0.0
                if out and flag & LEAVES == 0:
                    flag = OUTLIER
            write_row(scales, flags, places[r], word, flag)

    return device(rows_of)
