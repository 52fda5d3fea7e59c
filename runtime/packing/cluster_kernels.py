"""The packing kernel where rows are contiguous, not K, and K is one block that a cluster holds.

A panel, 32 rows and all of K, is read once and written once: a cluster's blocks hold a slab of K
each, in registers, threads of a block as many positions as they are, each 4 rows × 8 of them, as
`panel_kernels` has it. What a block sees of its rows it sends to the shared memory of all of the
cluster. Each then makes the same units, and cuts what it holds.

Rows that may leave are decided on by the cluster's first block, which the others send what those
lose. All blocks know whether a panel has any. A block may be sent something once it runs, and ends
after all that it is sent has come. Flags and digits are as `row_kernels` says.
"""

# The bodies of kernels are Numba's to type.
# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
# mypy: disable-error-code="attr-defined"

from typing import Any

import numpy as np
from numba import cuda
from numba.cuda import types

from mixpert_py.runtime.kernels.abi import LEAVES, OUTLIER, SIGNIFICAND_MASK, STEP
from mixpert_py.runtime.packing.digits import facts, place_of
from mixpert_py.runtime.packing.intrinsics import (
    arrive,
    expect,
    meet_warp,
    quotient,
    receive,
    thread_anew,
    wait,
)
from mixpert_py.runtime.packing.loads import load_panel
from mixpert_py.runtime.packing.operand import ACROSS, APART, ITEM, PANEL, QUAD
from mixpert_py.runtime.packing.panel_kernels import resident
from mixpert_py.runtime.packing.panel_parts import (
    DECIDED,
    FACTORS,
    LOST,
    NUMBERS,
    SEEN,
    cuts,
    lost_bytes,
    plain,
    seeing,
    seen_bytes,
    tellings,
    words_made,
)
from mixpert_py.runtime.packing.side import Side


def cluster_kernel(side: Side, threads: int, blocks: int) -> tuple[Any, tuple[Any, ...]]:
    """The kernel, to be compiled, and the Numba types of its arguments; for one operand, or two
    that are split alike, K up to the threads of a block times the blocks of a cluster.

    Launches are to say how much memory blocks share besides: `clusters.room`.
    """
    it = facts(side)
    MEMORY, WIDE, BITS = it.memory, it.wide, it.bits
    WIDE_SHARED, BITS_SHARED, SUMS = it.in_shared, it.bits_in_shared, it.sums
    COUNT, SIZE, WORDS = side.slices, side.size, words_made(side)
    BLOCKS = blocks
    ROOM, HELD, ALL = threads // ACROSS * APART, QUAD * ITEM, blocks * PANEL
    SEEN_BYTES, LOST_BYTES = seen_bytes(side, blocks), lost_bytes(side, blocks)
    LEFT = max(SUMS, 1) * ALL
    cut_plain = plain(side)
    clear, see, show = seeing(side, True)
    put_together, tell, told, lose, lost = tellings(side, threads, blocks)
    make_units, cut_hards = cuts(side)

    def kernel(
        a, a_slices, a_scales, a_flags, a_rows, a_batch, a_stride, a_vector, a_panels,
        b, b_slices, b_scales, b_flags, b_rows, b_batch, b_stride, b_vector, b_panels,
        a_total, k_, steps,
    ):  # fmt: skip
        # What threads see, then warps; and lose.
        top_of = cuda.shared.array(ROOM, BITS_SHARED)
        fine_of = cuda.shared.array(ROOM, types.int32)
        sums = cuda.shared.array(0, types.float32)
        # What all blocks of the cluster see, and what rows lose in all of them.
        tops = cuda.shared.array(ALL, BITS_SHARED)
        fines = cuda.shared.array(ALL, types.int32)
        powers = cuda.shared.array(ALL, types.float32)
        left = cuda.shared.array(LEFT, types.float32)
        factors = cuda.shared.array(FACTORS, WIDE_SHARED)
        numbers = cuda.shared.array(NUMBERS, types.int32)
        again = cuda.shared.array(5, types.int32)
        boxes = cuda.shared.array(2, types.uint64)
        values = cuda.local.array(HELD, MEMORY)
        either = cuda.local.array(QUAD, BITS)
        most = cuda.local.array(QUAD, BITS)
        power = cuda.local.array(QUAD, np.float32)
        cut = cuda.local.array(WORDS, np.uint32)
        norms = cuda.local.array(2, WIDE)
        squares = cuda.local.array(COUNT, np.int32)

        thread = np.int32(cuda.threadIdx.x)
        if thread == 0:
            expect(boxes, SEEN, np.int32(SEEN_BYTES))
            if SUMS > 0:
                expect(boxes, LOST, np.int32(LOST_BYTES))
        arrive()
        index = np.int32(cuda.blockIdx.x)
        which = quotient(index, np.int32(BLOCKS))
        rank = np.int32(index - which * BLOCKS)
        if which < a_total:
            x, rows, batch_stride, stride = a, a_rows, a_batch, a_stride
            vector, panels = a_vector, np.int32(a_panels)
            first_panel = np.int32(0)
        else:
            x, rows, batch_stride, stride = b, b_rows, b_batch, b_stride
            vector, panels = b_vector, np.int32(b_panels)
            first_panel = np.int32(a_total)
        k = np.int32(k_)
        batch = quotient(np.int32(which - first_panel), panels)
        panel_row = np.int64((which - first_panel - batch * panels) * PANEL)
        if thread == 0:
            again[0] = which
            again[1] = batch
            again[2] = np.int32(panel_row)
            again[3] = np.int32(min(rows - panel_row, PANEL))
            again[4] = rank
        lane = np.int32(thread & (ACROSS - 1))
        part = np.int32(thread // ACROSS)
        slot = np.int32(APART * part + QUAD * lane)
        # What a thread puts together of one row: of its warp's parts, or of all warps or blocks.
        own = np.int32(thread & (PANEL - 1))
        group = np.int32(thread // PANEL)
        row = panel_row + QUAD * lane
        last = np.int32(min(rows - row, QUAD))
        at = np.int32(rank * threads + ITEM * part)
        source = batch * batch_stride + row + at * stride

        clear(either, most, power)
        load_panel(values, x, source, stride, np.int32(k - at), last, vector)
        see(values, either, most, power)
        show(
            values, either, most, power, x, source, stride, np.int32(k - at), np.int32(1),
            last, threads, top_of, fine_of, sums, slot, False,
        )  # fmt: skip
        meet_warp()
        put_together(top_of, fine_of, sums, own, group)
        cuda.syncthreads()
        wait()
        tell(top_of, fine_of, sums, own, group, rank, tops, fines, powers, boxes)
        receive(boxes, SEEN)

        # From here on as above. Meanwhile no registers hold it: elements are to have them.
        thread = np.int32(thread_anew())
        own = np.int32(thread & (PANEL - 1))
        group = np.int32(thread // PANEL)
        any_hard = np.int32(0)
        if group == 0:
            top, fine, strength = told(tops, fines, powers, own)
            make_units(own, top, fine, strength, np.int32(k_), factors, numbers)
            if own < again[3]:
                any_hard = np.int32(1 - (numbers[PANEL + own] & 1))
        any_hard = np.int32(cuda.syncthreads_or(any_hard))

        lane = np.int32(thread & (ACROSS - 1))
        rank = again[4]
        batch = again[1]
        panel_row = np.int64(again[2])
        if again[0] < a_total:
            slices, scales, flags, rows = a_slices, a_scales, a_flags, a_rows
        else:
            slices, scales, flags, rows = b_slices, b_scales, b_flags, b_rows
        row = panel_row + QUAD * lane
        last = np.int32(min(rows - row, QUAD))
        if rank == 0 and group == 0 and own < again[3]:
            found = numbers[PANEL + own]
            # Those that may leave are decided on when they have been cut.
            if SUMS == 0 or found != 0:
                whose = np.int64(batch) * rows + panel_row + own
                scales[whose] = (
                    numbers[own] & ~SIGNIFICAND_MASK if (found >> 1) & LEAVES else numbers[own]
                )
                flags[whose] = found >> 1
        slice_words = ((rows + 7) & ~7) * 16
        swizzle = np.int32((np.int32(row) >> 1) & 3)
        base = np.int64(batch) * steps * COUNT * slice_words + row * 16
        at = np.int32(rank * threads + ITEM * (thread // ACROSS))
        if at < steps * (STEP // SIZE):
            place = base + place_of(at, SIZE, swizzle, COUNT, slice_words)
            # Rows 2 and 3 of the thread's four have the next chunk's place.
            flipped = base + place_of(at, SIZE, np.int32(swizzle ^ 1), COUNT, slice_words)
            for i in range(QUAD):
                r = np.int32(QUAD * lane + i)
                if i < last and numbers[PANEL + r] & 1:
                    cut_plain(
                        values, i, QUAD, factors[r], factors[2 * PANEL + r], cut, squares,
                        slices, (place if i < 2 else flipped) + 16 * i, slice_words,
                    )  # fmt: skip
        if any_hard == 0:
            return

        cuda.syncthreads()
        thread = np.int32(thread_anew())
        own = np.int32(thread & (PANEL - 1))
        group = np.int32(thread // PANEL)
        lane = np.int32(thread & (ACROSS - 1))
        slot = np.int32(APART * (thread // ACROSS) + QUAD * lane)
        rank = again[4]
        at = np.int32(rank * threads + ITEM * (thread // ACROSS))
        batch = again[1]
        panel_row = np.int64(again[2])
        if again[0] < a_total:
            x, slices, rows, batch_stride, stride = a, a_slices, a_rows, a_batch, a_stride
        else:
            x, slices, rows, batch_stride, stride = b, b_slices, b_rows, b_batch, b_stride
        row = panel_row + QUAD * lane
        last = np.int32(min(rows - row, QUAD))
        source = batch * batch_stride + row + at * stride
        slice_words = ((rows + 7) & ~7) * 16
        swizzle = np.int32((np.int32(row) >> 1) & 3)
        base = np.int64(batch) * steps * COUNT * slice_words + row * 16
        if SUMS > 0:
            for i in range(QUAD):
                for p in range(SUMS):
                    sums[ROOM * p + slot + i] = np.float32(0)
        if at < steps * (STEP // SIZE):
            place = base + place_of(at, SIZE, swizzle, COUNT, slice_words)
            flipped = base + place_of(at, SIZE, np.int32(swizzle ^ 1), COUNT, slice_words)
            cut_hards(
                values, x, source, stride, np.int32(k_ - at), np.int32(k_), lane, last,
                factors, numbers, norms, cut, squares,
                slices, place, flipped, slice_words, sums, slot, np.int32(ROOM),
            )  # fmt: skip
        if SUMS == 0:
            return
        cuda.syncthreads()
        lose(sums, own, group, rank, left, boxes)
        if rank > 0:
            return
        receive(boxes, LOST)
        if group == 0 and own < again[3] and numbers[PANEL + own] & DECIDED == 0:
            out = lost(left, own)
            if again[0] < a_total:
                scales, flags, rows = a_scales, a_flags, a_rows
            else:
                scales, flags, rows = b_scales, b_flags, b_rows
            whose = np.int64(again[1]) * rows + again[2] + own
            scales[whose] = numbers[own] & ~SIGNIFICAND_MASK if out else numbers[own]
            flags[whose] = OUTLIER if out else numbers[PANEL + own] >> 1

    def operand() -> list[Any]:
        pointers = getattr(types, side.memory), types.uint32, types.int32, types.uint8
        return [*map(types.CPointer, pointers), *[types.int64] * 5]

    kernel.launch_bounds = threads, max(resident(side) // threads, 1)
    kernel.cluster = blocks
    return kernel, (*operand(), *operand(), *[types.int64] * 3)
