"""Packing kernels where K is one block: digits of 8 bits, and all floating-point slices.

`row_kernel`: where K is contiguous, a row is read once, into registers: its threads, THREADS or
fewer, hold ITEMS times eight neighbours each, find the row's largest magnitude, cut what they hold
into slices, and decide the row's flags. Where rows are contiguous, it looks for the largest
magnitudes of a tile's rows in a chunk of K.

`tile_kernel`, after it: a tile is 128 contiguous rows and a chunk of K. A thread cuts 4 rows × 8
positions at a time, so that it reads 16 bytes of each position and writes 8 of each row and slice
of digits, 16 or 32 of floats; a warp reads 128 bytes and writes sectors of 32 or more. The last
block of a tile's chunks decides flags.

Nothing but the order of threads and chunks decides the order of a sum: two runs give the same bits.
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

from mixpert_py.runtime.packing.intrinsics import bits32, bits64, device
from mixpert_py.runtime.packing.layout import ITEM, OUTLIER, STEP
from mixpert_py.runtime.packing.row_digits import (
    bits_type,
    facts,
    place_of,
    row_fetch,
    row_fineness,
    row_octet,
    row_units,
    tile_fetch,
)
from mixpert_py.runtime.packing.row_floats import float_octet, float_units, words_of
from mixpert_py.runtime.packing.row_intrinsics import count_one
from mixpert_py.runtime.packing.side import Side

WARP = 32
# Threads that a multiprocessor is to have room for: rows, tiles of digits, tiles of
# floats; and of all in double precision.
RESIDENT_ROWS, RESIDENT_TILES, RESIDENT_FLOATS, RESIDENT_DOUBLE = 1024, 768, 1024, 512
QUAD = 4  # contiguous rows of a thread
FEW = 16  # threads that go on where a row's threads have each left something in shared memory


def row_kernel(
    left: Side, right: Side, threads: int, items: int, again: bool, alone: bool, across: int
) -> tuple[Any, tuple[Any, ...]]:
    """The first kernel, to be compiled, and the Numba types of its arguments.

    items: of eight elements, that a thread holds. again: whether rows are longer than that, and so
    read twice. alone: whether all threads of a block share a row. across: a tile has 32 times as
    many rows.
    """
    first = _rows(left, threads, items, again, alone), _largest(left, threads, across)
    second = first
    if left != right:
        second = _rows(right, threads, items, again, alone), _largest(right, threads, across)
    a_rows, a_largest = first
    b_rows, b_largest = second
    same = left == right

    def kernel(
        a, a_slices, a_scales, a_flags, a_tops, a_fines, a_counters,
        a_rows_, a_batch, a_stride, a_vector, a_along, a_strips, a_share, a_chunk, a_chunks, a_grid,
        b, b_slices, b_scales, b_flags, b_tops, b_fines, b_counters,
        b_rows_, b_batch, b_stride, b_vector, b_along, b_strips, b_share, b_chunk, b_chunks,
        k, steps,
    ):  # fmt: skip
        index = np.int64(cuda.blockIdx.x)
        if same:
            if index < a_grid:
                x, slices, scales, flags = a, a_slices, a_scales, a_flags
                tops, fines, counters = a_tops, a_fines, a_counters
                rows, batch, stride, vector, along = a_rows_, a_batch, a_stride, a_vector, a_along
                strips, share, chunk, chunks = a_strips, a_share, a_chunk, a_chunks
            else:
                index -= a_grid
                x, slices, scales, flags = b, b_slices, b_scales, b_flags
                tops, fines, counters = b_tops, b_fines, b_counters
                rows, batch, stride, vector, along = b_rows_, b_batch, b_stride, b_vector, b_along
                strips, share, chunk, chunks = b_strips, b_share, b_chunk, b_chunks
            if along != 0:
                a_rows(
                    index, x, slices, scales, flags,
                    rows, batch, stride, vector, strips, share, k, steps,
                )  # fmt: skip
            else:
                a_largest(
                    index, x, tops, fines, counters,
                    rows, batch, stride, vector, strips, chunk, chunks, k,
                )  # fmt: skip
        elif index < a_grid:
            if a_along != 0:
                a_rows(
                    index, a, a_slices, a_scales, a_flags,
                    a_rows_, a_batch, a_stride, a_vector, a_strips, a_share, k, steps,
                )  # fmt: skip
            else:
                a_largest(
                    index, a, a_tops, a_fines, a_counters,
                    a_rows_, a_batch, a_stride, a_vector, a_strips, a_chunk, a_chunks, k,
                )  # fmt: skip
        elif b_along != 0:
            b_rows(
                index - a_grid, b, b_slices, b_scales, b_flags,
                b_rows_, b_batch, b_stride, b_vector, b_strips, b_share, k, steps,
            )  # fmt: skip
        else:
            b_largest(
                index - a_grid, b, b_tops, b_fines, b_counters,
                b_rows_, b_batch, b_stride, b_vector, b_strips, b_chunk, b_chunks, k,
            )  # fmt: skip

    def operand(side: Side) -> list[Any]:
        results = types.uint32, types.int32, types.uint8, bits_type(side), types.int32, types.int32
        return [
            *map(types.CPointer, (getattr(types, side.memory), *results)), *[types.int64] * 9
        ]  # fmt: skip

    kernel.launch_bounds = bounds(left, right, threads, RESIDENT_ROWS)
    return kernel, (*operand(left), types.int64, *operand(right), *[types.int64] * 2)


def tile_kernel(left: Side, right: Side, threads: int, across: int) -> tuple[Any, tuple[Any, ...]]:
    """The second kernel and the Numba types of its arguments; across: warps along the rows."""
    a_tile = _tile(left, threads, across)
    b_tile = a_tile if left == right else _tile(right, threads, across)
    same = left == right

    def kernel(
        a, a_slices, a_scales, a_flags, a_tops, a_fines, a_counters, a_partials,
        a_rows, a_batch, a_stride, a_vector, a_tiles, a_looks, a_chunk, a_chunks, a_grid,
        b, b_slices, b_scales, b_flags, b_tops, b_fines, b_counters, b_partials,
        b_rows, b_batch, b_stride, b_vector, b_tiles, b_looks, b_chunk, b_chunks,
        k, steps,
    ):  # fmt: skip
        # What `row_kernel` read last may still lie in the L2 cache: backwards.
        index = np.int64(cuda.gridDim.x) - 1 - np.int64(cuda.blockIdx.x)
        if same:
            if index < a_grid:
                x, slices, scales, flags = a, a_slices, a_scales, a_flags
                tops, fines, counters, partials = a_tops, a_fines, a_counters, a_partials
                rows, batch, stride, vector, tiles = a_rows, a_batch, a_stride, a_vector, a_tiles
                looks, chunk, chunks = a_looks, a_chunk, a_chunks
            else:
                index -= a_grid
                x, slices, scales, flags = b, b_slices, b_scales, b_flags
                tops, fines, counters, partials = b_tops, b_fines, b_counters, b_partials
                rows, batch, stride, vector, tiles = b_rows, b_batch, b_stride, b_vector, b_tiles
                looks, chunk, chunks = b_looks, b_chunk, b_chunks
            a_tile(
                index, x, slices, scales, flags, tops, fines, counters, partials,
                rows, batch, stride, vector, tiles, looks, chunk, chunks, k, steps,
            )  # fmt: skip
        elif index < a_grid:
            a_tile(
                index, a, a_slices, a_scales, a_flags, a_tops, a_fines, a_counters, a_partials,
                a_rows, a_batch, a_stride, a_vector, a_tiles, a_looks, a_chunk, a_chunks, k, steps,
            )  # fmt: skip
        else:
            b_tile(
                index - a_grid,
                b, b_slices, b_scales, b_flags, b_tops, b_fines, b_counters, b_partials,
                b_rows, b_batch, b_stride, b_vector, b_tiles, b_looks, b_chunk, b_chunks, k, steps,
            )  # fmt: skip

    def operand(side: Side) -> list[Any]:
        results = types.uint32, types.int32, types.uint8, bits_type(side), types.int32, types.int32
        pointers = getattr(types, side.memory), *results, types.float32
        return [*map(types.CPointer, pointers), *[types.int64] * 8]

    floats = left.kind == right.kind == "floats"
    resident = RESIDENT_FLOATS if floats else RESIDENT_TILES
    kernel.launch_bounds = bounds(left, right, threads, resident)
    return kernel, (*operand(left), types.int64, *operand(right), *[types.int64] * 2)


def bounds(left: Side, right: Side, threads: int, resident: int) -> tuple[int, int]:
    """Threads of a block, and blocks that a multiprocessor is to have room for.

    That leaves a thread 64 registers where `resident` is 1024, 80 where it is 768, 128 in double
    precision. Left alone, the compiler takes more, and too little of memory is on its way.
    """
    single = left.wide == right.wide == "float32"
    return threads, -(-(resident if single else RESIDENT_DOUBLE) // threads)


def _slicing(side: Side) -> tuple[Any, Any]:
    """The device functions that cut eight elements, and that say by which factors."""
    if side.kind == "floats":
        return float_octet(side), float_units(side)
    return row_octet(side), row_units(side)


def _words(side: Side) -> int:
    """That a thread makes before it stores them."""
    return words_of(side) if side.kind == "floats" else ITEM


def _twice(side: Side) -> bool:
    """Whether a second factor is ever needed: 2^(shift − e) may be too large to be one, or clears
    what is no number.
    """
    return side.memory == side.wide or side.kind == "floats"


def _rows(side: Side, threads: int, items: int, again: bool, alone: bool) -> Any:
    """The device function that packs the rows of a block, K contiguous."""
    it = facts(side)
    MEMORY, WIDE, BITS, MAGNITUDE = it.memory, it.wide, it.bits, it.magnitude
    WIDE_SHARED, BITS_SHARED, SUMS, LOWER = it.in_shared, it.bits_in_shared, it.sums, it.lower
    HELD, COUNT, LOSS = items * ITEM, side.slices, side.loss
    ROOM, FACTORS, LEFT = threads // 8, threads // 2, max(SUMS, 1) * threads
    TURN_LOG = (threads * HELD).bit_length() - 1
    FITTED, AGAIN, ALONE = side.fitted, again, alone
    bits_of = bits32 if side.memory == "float32" else bits64
    fetch, fineness = row_fetch(items), row_fineness(side, HELD)
    octet, units = _slicing(side)
    SIZE, WORDS, TWICE = side.size, _words(side), _twice(side)

    def rows_of(
        index, x, slices, scales, flags,
        rows, batch_stride, stride, vector, strips, share_log, k_, steps,
    ):  # fmt: skip
        tops = cuda.shared.array(threads, BITS_SHARED)
        fines = cuda.shared.array(threads, types.int32)
        excesses = cuda.shared.array(LEFT, types.float32)
        factors = cuda.shared.array(FACTORS, WIDE_SHARED)
        # What the end needs again, so that no registers hold it meanwhile.
        words = cuda.shared.array(ROOM, types.int32)
        flagged = cuda.shared.array(ROOM, types.int32)
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
        batch = index // strips
        row = (index - batch * strips) * (np.int32(cuda.blockDim.x) >> share_log) + r
        present = row < rows
        start = batch * batch_stride + row * stride
        between = np.int32(share * ITEM)
        at = np.int32(lane * ITEM)
        turns = np.int32(((k - 1) >> TURN_LOG) + 1) if AGAIN else np.int32(1)

        top = BITS(0)
        fine = np.int32(0)
        if present:
            for turn in range(turns):
                fetch(values, x, start, np.int32(at + (turn << TURN_LOG)), between, k, vector)
                either = BITS(0)
                most = BITS(0)
                for j in range(HELD):
                    bits = bits_of(values[j])
                    either = BITS(either | bits)
                    size = BITS(bits & MAGNITUDE)
                    most = BITS(size if size > most else most)
                top = BITS(most if most > top else top)
                if FITTED:
                    fine = max(fine, fineness(values, 0, 1, HELD, either, most))
        tops[slot] = top
        if FITTED:
            fines[slot] = fine
        cuda.syncthreads()
        if lane < few:
            for other in range(lane + few, share, few):
                size = tops[slot - lane + other]
                top = BITS(size if size > top else top)
                if FITTED:
                    fine = np.int32(max(fine, fines[slot - lane + other]))
            tops[slot] = top
            if FITTED:
                fines[slot] = fine
        cuda.syncthreads()
        if lane == 0:
            for other in range(1, few):
                size = tops[slot + other]
                top = BITS(size if size > top else top)
                if FITTED:
                    fine = np.int32(max(fine, fines[slot + other]))
            word, one, two, ratio, worth, flag = units(top, fine)
            words[r] = word
            flagged[r] = flag
            places[r] = batch * rows + row if present else -1
            factors[4 * r] = one
            factors[4 * r + 1] = two
            factors[4 * r + 2] = ratio
            factors[4 * r + 3] = worth
        cuda.syncthreads()
        one = factors[4 * r]
        two = factors[4 * r + 1]
        ratio = factors[4 * r + 2]
        worth = factors[4 * r + 3]

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
            for turn in range(turns):
                first = np.int32(at + (turn << TURN_LOG))
                if AGAIN:
                    fetch(values, x, start, first, between, k, vector)
                if TWICE and two != WIDE(1):
                    for j in range(HELD):
                        values[j] = MEMORY(values[j] * two) if two > WIDE(0) else MEMORY(0)
                for i in range(items):
                    position = np.int32(first + i * between)
                    if position < end:
                        octet(
                            values, i * ITEM, 1, one, ratio, worth,
                            norms, squares, cut, slices, place, slice_words,
                        )  # fmt: skip
                        place += advance
        if SUMS > 0:
            norm = np.float32(norms[0])
            excesses[slot] = np.float32(norms[1]) - np.float32(LOSS) * norm
            unit = np.float32(worth) * np.float32(worth)
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
            out = False
            for p in range(SUMS):
                excess = 0.0
                for other in range(few):
                    excess += np.float64(excesses[p * threads + slot + other])
                out = out or excess > 0.0
            word, flag = words[r], flagged[r]
            if out and flag == 0:
                flag = OUTLIER
            scales[places[r]] = word if flag == 0 else word & ~511
            flags[places[r]] = flag

    return device(rows_of)


def _largest(side: Side, threads: int, across: int) -> Any:
    """The device function for the largest magnitudes, and how fine, of rows and a chunk of K."""
    it = facts(side)
    MEMORY, BITS, MAGNITUDE, BITS_SHARED = it.memory, it.bits, it.magnitude, it.bits_in_shared
    bits_of = bits32 if side.memory == "float32" else bits64
    fetch, fineness = tile_fetch(), row_fineness(side, 8)
    FITTED = side.fitted
    ROWS, LEFT = WARP * across, QUAD * threads
    ACROSS = ROWS // QUAD
    ACROSS_LOG, PARTS = ACROSS.bit_length() - 1, threads // ACROSS
    STRIDE = 8 * PARTS

    def largest(
        index, x, tops, fines, counters,
        rows, batch_stride, stride, vector, tiles, chunk, chunks, k_,
    ):  # fmt: skip
        top_of = cuda.shared.array(LEFT, BITS_SHARED)
        fine_of = cuda.shared.array(LEFT, types.int32)
        values = cuda.local.array(32, MEMORY)
        most = cuda.local.array(4, BITS)
        fine = cuda.local.array(4, np.int32)
        thread = np.int32(cuda.threadIdx.x)
        k = np.int32(k_)
        piece = index // tiles
        tile = index - piece * tiles
        batch = piece // chunks
        piece -= batch * chunks
        lane = thread & np.int32(ACROSS - 1)
        part = np.int32(thread >> ACROSS_LOG)
        row = tile * ROWS + np.int32(4 * lane)
        last = np.int32(min(rows - row, 4))
        begin = np.int32(piece * chunk)
        end = np.int32(min(begin + chunk, k))
        start = batch * batch_stride + row
        for i in range(4):
            most[i] = BITS(0)
            fine[i] = np.int32(0)
        if last > 0:
            for first in range(begin + part, end, STRIDE):
                fetch(values, x, start, stride, np.int32(first), np.int32(PARTS), end, last, vector)
                for i in range(4):
                    either = BITS(0)
                    here = BITS(0)
                    for j in range(8):
                        bits = bits_of(values[4 * j + i])
                        either = BITS(either | bits)
                        size = BITS(bits & MAGNITUDE)
                        here = BITS(size if size > here else here)
                    most[i] = BITS(here if here > most[i] else most[i])
                    if FITTED:
                        fine[i] = max(fine[i], fineness(values, i, 4, 8, either, here))
        for i in range(4):
            top_of[ROWS * part + ACROSS * i + lane] = most[i]
            if FITTED:
                fine_of[ROWS * part + ACROSS * i + lane] = fine[i]
        cuda.syncthreads()
        if thread < ROWS:
            place = ACROSS * (thread & 3) + (thread >> 2)
            top = top_of[place]
            finest = fine_of[place] if FITTED else np.int32(0)
            for other in range(1, PARTS):
                size = top_of[ROWS * other + place]
                top = BITS(size if size > top else top)
                if FITTED:
                    finest = np.int32(max(finest, fine_of[ROWS * other + place]))
            row = tile * ROWS + thread
            if row < rows:
                tops[(batch * chunks + piece) * rows + row] = top
                if FITTED:
                    fines[(batch * chunks + piece) * rows + row] = finest
        if thread == 0 and piece == 0:
            counters[batch * tiles + tile] = 0

    return device(largest)


def _tile(side: Side, threads: int, across: int) -> Any:
    """The device function that packs a tile: contiguous rows and a chunk of K."""
    it = facts(side)
    MEMORY, WIDE, BITS, WIDE_SHARED = it.memory, it.wide, it.bits, it.in_shared
    SUMS, LOWER, LOSS = it.sums, it.lower, side.loss
    COUNT, FITTED, LEFT = side.slices, side.fitted, max(SUMS, 1) * 4 * threads
    ROWS, FACTORS, ACROSS_LOG = WARP * across, QUAD * WARP * across, across.bit_length() - 1
    PARTS = threads // (8 * across)
    KIND, STRIDE = 4 * threads, 8 * PARTS
    SIZE, WORDS, TWICE = side.size, _words(side), _twice(side)
    fetch = tile_fetch()
    octet, units = _slicing(side)

    def tile_of(
        index, x, slices, scales, flags, tops, fines, counters, partials,
        rows, batch_stride, stride, vector, tiles, looks, chunk, chunks, k_, steps,
    ):  # fmt: skip
        excesses = cuda.shared.array(LEFT, types.float32)
        factors = cuda.shared.array(FACTORS, WIDE_SHARED)
        # What the end needs again, so that no registers hold it meanwhile.
        words = cuda.shared.array(ROWS, types.int32)
        flagged = cuda.shared.array(ROWS, types.int32)
        places = cuda.shared.array(3, types.int64)
        values = cuda.local.array(32, MEMORY)
        cut = cuda.local.array(WORDS, np.uint32)
        norms = cuda.local.array(2, WIDE)
        squares = cuda.local.array(COUNT, np.int32)

        thread = np.int32(cuda.threadIdx.x)
        k = np.int32(k_)
        piece = index // tiles
        tile = index - piece * tiles
        batch = piece // chunks
        piece -= batch * chunks
        if thread == 0:
            places[0] = batch
            places[1] = tile
            places[2] = piece
        own = tile * ROWS + thread  # the row this thread decides on
        extreme = np.int32(0)
        if thread < ROWS and own < rows:
            top = BITS(0)
            fine = np.int32(0)
            for look in range(looks):
                place = (batch * looks + look) * rows + own
                size = tops[place]
                top = BITS(size if size > top else top)
                if FITTED:
                    fine = np.int32(max(fine, fines[place]))
            word, one, two, ratio, worth, flag = units(top, fine)
            words[thread] = word
            flagged[thread] = flag
            factors[4 * thread] = one
            factors[4 * thread + 1] = two
            factors[4 * thread + 2] = ratio
            factors[4 * thread + 3] = worth
            extreme = np.int32(1 if two != WIDE(1) else 0)
        extreme = cuda.syncthreads_or(extreme)

        # Of a warp, 8 threads lie along the rows and 4 along K.
        warp = np.int32(thread >> 5)
        in_tile = np.int32((warp & (across - 1)) * 32 + (thread & 7) * 4)
        part = np.int32((warp >> ACROSS_LOG) * 4 + ((thread >> 3) & 3))  # of a row's threads
        row = tile * ROWS + in_tile
        last = np.int32(min(rows - row, 4))
        start = batch * batch_stride + row
        slice_words = ((rows + 7) & ~7) * 16
        base = batch * steps * COUNT * slice_words + row * 16
        swizzle = np.int32((row >> 1) & 3)
        begin = np.int32(piece * chunk)
        end = np.int32(min(begin + chunk, steps * (STEP // SIZE)))
        limit = np.float32(LOWER * np.float64(k))
        # Unsigned, indices of an array need no look at whether they count from its end.
        slot = np.uint32(thread)
        factor = np.uint32(4 * in_tile)
        for i in range(SUMS * QUAD):
            excesses[slot + np.uint32(i * threads)] = np.float32(0)
        if last > 0:
            for at in range(begin + 8 * part, end, STRIDE):
                fetch(values, x, start, stride, np.int32(at), np.int32(1), k, last, vector)
                place = base + place_of(np.int32(at), SIZE, swizzle, COUNT, slice_words)
                # Rows 2 and 3 of the thread's four have the next chunk's place.
                flipped = base + place_of(
                    np.int32(at), SIZE, np.int32(swizzle ^ 1), COUNT, slice_words
                )
                for i in range(4):
                    if i < last:
                        if TWICE and extreme != 0:
                            two = factors[factor + np.uint32(4 * i + 1)]
                            for j in range(8):
                                value = MEMORY(values[4 * j + i] * two)
                                values[4 * j + i] = value if two > WIDE(0) else MEMORY(0)
                        norms[0] = WIDE(0)
                        norms[1] = WIDE(0)
                        for p in range(COUNT):
                            squares[p] = np.int32(0)
                        worth = factors[factor + np.uint32(4 * i + 3)]
                        octet(
                            values, i, 4, factors[factor + np.uint32(4 * i)],
                            factors[factor + np.uint32(4 * i + 2)], worth, norms, squares,
                            cut, slices, (place if i < 2 else flipped) + 16 * i, slice_words,
                        )  # fmt: skip
                        # In registers, the sums of four rows would cost a third of the threads.
                        if SUMS > 0:
                            norm = np.float32(norms[0])
                            excess = np.float32(norms[1]) - np.float32(LOSS) * norm
                            excesses[slot + np.uint32(i * threads)] += excess
                            unit = np.float32(worth) * np.float32(worth)
                            for p in range(1, SUMS):
                                excess = np.float32(squares[p]) * unit - limit * norm
                                excesses[slot + np.uint32(p * KIND + i * threads)] += excess

        if SUMS > 0:
            cuda.syncthreads()
            batch, tile, piece = places[0], places[1], places[2]
            own = tile * ROWS + thread
            mine = thread < ROWS and own < rows
            if mine:
                for p in range(SUMS):
                    excess = np.float32(0)
                    # The first of the threads that share the row; four to a warp.
                    place = (
                        p * KIND
                        + (thread & 3) * threads
                        + np.int32((thread & ~31) + ((thread >> 2) & 7))
                    )
                    for other in range(PARTS):
                        excess += excesses[place + (other & 3) * 8 + (other >> 2) * ROWS]
                    partials[((batch * chunks + piece) * SUMS + p) * rows + own] = excess
            # Whoever comes last sees what the others have written.
            cuda.threadfence()
            cuda.syncthreads()
            come = np.int32(0)
            if thread == 0:
                come = count_one(counters, batch * tiles + tile) == chunks - 1
            if cuda.syncthreads_or(come) == 0:
                return
            cuda.threadfence()
        else:
            batch, tile, piece = places[0], places[1], places[2]
            own = tile * ROWS + thread
            mine = piece == 0 and thread < ROWS and own < rows
        if mine:
            out = False
            for p in range(SUMS):
                excess = 0.0
                for other in range(chunks):
                    place = ((batch * chunks + other) * SUMS + p) * rows + own
                    excess += np.float64(partials[place])
                out = out or excess > 0.0
            word, flag = words[thread], flagged[thread]
            if out and flag == 0:
                flag = OUTLIER
            scales[batch * rows + own] = word if flag == 0 else word & ~511
            flags[batch * rows + own] = flag

    return device(tile_of)
