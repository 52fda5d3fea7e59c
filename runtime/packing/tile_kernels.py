"""The packing kernel for tiles of rows × 32 of K that share an exponent: 7-bit digits.

A warp takes 16 rows and goes along K, 64 of it at a time: each thread reads 4 rows × 8 of K once,
as two loads of each row where K is contiguous, or one at each place along K where rows are. The
16 or 8 threads of a tile tell each other the largest magnitude they hold, cut what they hold into
digits, 8 bytes of each row and slice, and tell each other what that has lost: then the tile may
have to leave. A warp waits for none but its own threads until all of K is done. A block's warps
share out K, as far as it reaches, else rows.

A row that is not finite leaves its tiles, which changes what the others of them share, all along K:
the block that finds one does its rows again without it.

Nothing but the order of threads decides the order of a sum: two runs give the same bits.
"""

# The bodies of kernels are Numba's to type.
# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
# mypy: disable-error-code="attr-defined"

import math
from typing import Any

import numpy as np
from numba import cuda
from numba.cuda import types

from mixpert_py.runtime.kernels.abi import (
    FIRST_DIGIT,
    LARGE,
    NONFINITE,
    OUTLIER,
    SIGNIFICAND_BITS,
    STEP,
    WHOLE,
)
from mixpert_py.runtime.kernels.intrinsics import device, larger, meet_warp, store_two
from mixpert_py.runtime.packing.blocks import STRETCH, WARP, WARP_ROWS
from mixpert_py.runtime.packing.digits import is_large, tile_octet, tile_units
from mixpert_py.runtime.packing.loads import load_quad_across, load_quad_along
from mixpert_py.runtime.packing.operand import ITEM, QUAD
from mixpert_py.runtime.packing.side import Side

HELD = QUAD * ITEM  # elements of a thread
SPREAD = 1 << QUAD  # beside a bit for each row of a thread
HIGH = SPREAD << 1  # whether a tile is large
DEAD = HIGH << 1


def tile_kernel(
    left: Side, right: Side, threads: int, resident: int
) -> tuple[Any, tuple[Any, ...]]:
    """The kernel, to be compiled, and the Numba types of its arguments.

    threads: of a block; resident: blocks that a multiprocessor is to have room for.
    """
    first = _strip(left, threads)
    same = left == right
    second = first if same else _strip(right, threads)

    def kernel(
        a, a_slices, a_scales, a_flags, a_outliers,
        a_rows, a_batch, a_stride, a_along, a_vector, a_strips, a_deep,
        b, b_slices, b_scales, b_flags, b_outliers,
        b_rows, b_batch, b_stride, b_along, b_vector, b_strips, b_deep,
        a_grid, k, steps,
    ):  # fmt: skip
        index = np.int64(cuda.blockIdx.x)
        of_a = (
            a, a_slices, a_scales, a_flags, a_outliers,
            a_rows, a_batch, a_stride, a_along, a_vector, a_strips, a_deep,
        )  # fmt: skip
        of_b = (
            b, b_slices, b_scales, b_flags, b_outliers,
            b_rows, b_batch, b_stride, b_along, b_vector, b_strips, b_deep,
        )  # fmt: skip
        if same:
            # One by one: of a choice between tuples the compiler forgets that they are in global
            # memory.
            if index < a_grid:
                x, slices, scales, flags, outliers = a, a_slices, a_scales, a_flags, a_outliers
                rows, batch, stride, along = a_rows, a_batch, a_stride, a_along
                vector, strips, deep = a_vector, a_strips, a_deep
            else:
                index -= a_grid
                x, slices, scales, flags, outliers = b, b_slices, b_scales, b_flags, b_outliers
                rows, batch, stride, along = b_rows, b_batch, b_stride, b_along
                vector, strips, deep = b_vector, b_strips, b_deep
            pointers = x, slices, scales, flags, outliers
            first(index, (*pointers, rows, batch, stride, along, vector, strips, deep), k, steps)
        elif index < a_grid:
            first(index, of_a, k, steps)
        else:
            second(index - a_grid, of_b, k, steps)

    pointers = types.float32, types.uint32, types.int32, types.uint8, types.uint8
    operand = [*map(types.CPointer, pointers), *[types.int64] * 7]
    kernel.launch_bounds = threads, resident
    return kernel, (*operand, *operand, *[types.int64] * 3)


def _strip(side: Side, threads: int) -> Any:
    """The device function that packs the rows of a block."""
    COUNT, LOSSY = side.slices, side.rule == "loss"
    LOSS = np.float32(side.loss)
    SHARE = side.group * STRETCH // HELD  # threads of a tile
    WARPS_LOG = (threads // WARP).bit_length() - 1
    INFINITE = np.float32(math.inf)
    units, octet, large = tile_units(side), tile_octet(side), is_large(side)

    def strip(index, operand, k_, steps):
        x, slices, scales, flags, outliers = operand[:5]
        rows, batch_stride, stride, along, vector, strips, deep_ = operand[5:]
        tops = cuda.shared.array(threads, types.float32)
        excesses = cuda.shared.array(threads, types.float32)
        # Of a thread: a bit for each of its rows that is found not to be finite, whether a tile
        # left, or is large, and, times DEAD, the rows that are left out. Not in registers, which
        # are few.
        marks = cuda.shared.array(threads, types.int32)
        flagged = cuda.shared.array(threads, types.int64)  # the row whose flag a thread writes
        values = cuda.local.array(HELD, np.float32)
        words = cuda.local.array(ITEM, np.uint32)
        norms = cuda.local.array(2, np.float32)

        thread = np.int32(cuda.threadIdx.x)
        deep = np.int32(deep_)
        k = np.int32(k_)
        end = np.int32(steps * STEP)
        blocks = np.int32((k + np.int32(STRETCH - 1)) >> 5)
        eighth = np.int32(thread & 7)  # of a step
        quad = np.int32((thread >> 3) & 3)
        warp = np.int32(thread >> 5)
        of_k = np.int32(warp & np.int32((1 << deep) - 1))
        first_at = np.int32(of_k * STEP + eighth * ITEM)
        pace = np.int32(STEP << deep)
        # Threads that share a tile lie next to each other there. Unsigned, indices need no look at
        # whether they count from the end.
        slot = np.uint32((warp << 5) + ((eighth >> 2) << 4) + (quad << 2) + (eighth & 3))
        crew = np.uint32(slot & ~np.uint32(SHARE - 1))

        batch = index // strips
        in_strip = np.int32((warp >> deep) * WARP_ROWS + quad * QUAD)
        row = (index - batch * strips) * np.int32(WARP_ROWS << (WARPS_LOG - deep)) + in_strip
        count = np.int32(min(rows - row, QUAD))
        if along != 0:
            start = batch * batch_stride + row * stride + first_at
            advance = np.int64(STEP << deep)
        else:
            start = batch * batch_stride + row + first_at * stride
            advance = stride * (STEP << deep)
        slice_words = ((rows + 7) & ~7) * 16
        # The chunk of a step is the same each time, and rows 2 and 3 have its neighbour's place.
        chunk = np.int32((eighth >> 1) ^ ((quad & 1) << 1))
        target = (batch * steps + of_k) * COUNT * slice_words + row * 16
        target += np.int32(chunk * 4 + (eighth & 1) * 2)
        own = np.int32(eighth & 3)  # the row whose scales this thread writes
        unit = batch * blocks * rows + row + own

        flagged[slot] = batch * rows + row + eighth if of_k == 0 and eighth < count else -1
        dead = np.int32(0)
        searching = True
        while searching:
            marks[slot] = dead * DEAD
            source = start
            place = target
            at = first_at
            while at - first_at < end:  # as often for all of a block's warps
                if count > 0 and at < k:
                    full = vector != 0 and count == QUAD and at + ITEM <= k
                    if along != 0:
                        load_quad_along(values, x, source, stride, full, count, k - at)
                    else:
                        load_quad_across(values, x, source, stride, full, count, k - at)
                else:
                    for i in range(HELD):
                        values[i] = np.float32(0)
                gone = marks[slot]
                if gone >= DEAD:
                    for i in range(QUAD):
                        if gone & (DEAD << i):
                            for j in range(ITEM):
                                values[QUAD * j + i] = np.float32(0)
                top = np.float32(0)
                for i in range(HELD):
                    top = larger(top, abs(values[i]))
                if not top < INFINITE:
                    mark = np.int32(0)
                    for i in range(QUAD):
                        for j in range(ITEM):
                            if not abs(values[QUAD * j + i]) < INFINITE:
                                mark |= np.int32(1 << i)
                            values[QUAD * j + i] = np.float32(0)
                    marks[slot] |= mark
                    top = np.float32(0)
                tops[slot] = top
                meet_warp()
                for i in range(SHARE):
                    top = larger(top, tops[crew + np.uint32(i)])

                exponent, one, two = units(top)
                if two != np.float32(1):
                    for i in range(HELD):
                        values[i] = np.float32(values[i] * two)
                here = count > 0 and at < end
                norms[0] = np.float32(0)
                norms[1] = np.float32(0)
                if here:
                    for i in range(QUAD):
                        to = (place if i < 2 else place ^ 4) + 16 * i
                        octet(values, i, one, norms, words, slices, to, slice_words)
                out = np.int32(0)
                if LOSSY:
                    excesses[slot] = norms[1] - LOSS * norms[0]
                meet_warp()  # also before anybody overwrites what others may still read above
                if large(exponent, k):
                    marks[slot] |= HIGH
                if LOSSY:
                    excess = np.float32(0)
                    for i in range(SHARE):
                        excess += excesses[crew + np.uint32(i)]
                    if excess > np.float32(0):
                        out = np.int32(1)
                        marks[slot] |= SPREAD
                        if here:
                            for i in range(QUAD):
                                to = (place if i < 2 else place ^ 4) + 16 * i
                                for _ in range(COUNT):
                                    store_two(slices, to, np.uint32(0), np.uint32(0))
                                    to += slice_words
                t = np.int32(at >> 5)
                if own < count and t < blocks:
                    there = unit + t * rows
                    scales[there] = ((exponent - FIRST_DIGIT) << SIGNIFICAND_BITS) | WHOLE
                    if blocks > 1:
                        outliers[there] = out
                at = np.int32(at + pace)
                source += advance
                place += (COUNT << deep) * slice_words

            # What the threads of the same rows have found, together.
            mark = np.int32(marks[slot])
            newly = cuda.syncthreads_or(mark & (SPREAD - 1))
            if cuda.syncthreads_or(mark) != 0:
                for other_warp in range(1 << deep):
                    for other in range(8):
                        near = ((warp - of_k + other_warp) << 5) + (quad << 2)
                        near += ((other >> 2) << 4) + (other & 3)
                        mark |= marks[np.uint32(near)]
            dead = np.int32((mark // DEAD) | (mark & (SPREAD - 1)))
            # A second time, rows that leave have left.
            searching = newly != 0
            if searching:
                cuda.syncthreads()

        if flagged[slot] >= 0:
            flag = NONFINITE if (dead >> eighth) & 1 else 0
            flag |= OUTLIER if mark & SPREAD else 0
            flags[flagged[slot]] = flag | (LARGE if mark & HIGH and flag == 0 else 0)

    return device(strip)
