"""The packing kernel where rows are contiguous, not K, and K is one block that a cluster holds.

A panel, 32 rows and all of K, is read once and written once: a cluster's blocks hold a slab of K
each in registers, a thread 4 rows × 8 positions of it, as in `panel_kernels`. What a block finds of
its rows it sends to the shared memory of all blocks of the cluster. Each then makes the same units,
and splits what it holds.

The cluster's first block decides on rows that may leave: the others send it what those lose. All
blocks know whether a panel has any. A block may be sent something once it runs, and it ends after
all that it is sent has come. Flags and digits are as `row_kernels` says.
"""

# The bodies of kernels are Numba's to type.
# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
# mypy: disable-error-code="attr-defined"

from typing import Any

import numpy as np
from numba import cuda
from numba.cuda import types

from mixpert_py.runtime.kernels.abi import OUTLIER, STEP
from mixpert_py.runtime.kernels.intrinsics import (
    arrive,
    chosen,
    device,
    expect,
    launched,
    meet_warp,
    quotient,
    receive,
    send,
    thread_anew,
    wait,
)
from mixpert_py.runtime.packing.digits import FORMATS, place_of
from mixpert_py.runtime.packing.operand import ACROSS, APART, ITEM, PANEL, QUAD, Side
from mixpert_py.runtime.packing.panel_kernels import resident_threads
from mixpert_py.runtime.packing.parts import (
    DECIDED,
    FACTORS,
    NUMBERS,
    argument_types,
    findings,
    load_panel,
    panel_splits,
    reductions,
    thread_scan,
    words_made,
    write_row,
)

SEEN, LOST = 0, 1  # boxes of what all find, sent to all, and of what rows lose, sent to the first
OF_WARP = PANEL // ACROSS  # parts


def cluster_kernel(side: Side, threads: int, blocks: int) -> tuple[Any, tuple[Any, ...]]:
    """The kernel, to be compiled, and the Numba types of its arguments; for one operand, or two
    that are split alike, K up to the threads of a block times the blocks of a cluster.

    Launches must say how much shared memory blocks take besides: see `readers.cluster_config`.
    """
    it, wide = FORMATS[side.memory], FORMATS[side.wide]
    MEMORY, WIDE, BITS, SUMS = it.number, wide.number, it.bits, side.sums
    WIDE_SHARED, BITS_SHARED = wide.in_shared, it.bits_in_shared
    COUNT, SIZE, WORDS = side.slices, side.size, words_made(side)
    BLOCKS = blocks
    ROOM, HELD, ALL = threads // ACROSS * APART, QUAD * ITEM, blocks * PANEL
    SEEN_BYTES, LOST_BYTES = seen_bytes(side, blocks), lost_bytes(side, blocks)
    LEFT = max(SUMS, 1) * ALL
    clear, scan, publish = thread_scan(side, True)
    reduce_warp, send_seen, reduce_seen, send_lost, reduce_lost = cluster_exchange(
        side, threads, blocks
    )
    make_units, split_safe_rows, split_slow_rows = panel_splits(side)

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

        of_a = a, a_slices, a_scales, a_flags, a_rows, a_batch, a_stride, a_vector, a_panels
        of_b = b, b_slices, b_scales, b_flags, b_rows, b_batch, b_stride, b_vector, b_panels
        thread = np.int32(cuda.threadIdx.x)
        if thread == 0:
            expect(boxes, SEEN, np.int32(SEEN_BYTES))
            if SUMS > 0:
                expect(boxes, LOST, np.int32(LOST_BYTES))
        arrive()
        index = np.int32(cuda.blockIdx.x)
        which = quotient(index, np.int32(BLOCKS))
        rank = np.int32(index - which * BLOCKS)
        is_a = which < a_total
        x, _, _, _, rows, batch_stride, stride, vector, panels_ = chosen(is_a, of_a, of_b)
        panels = np.int32(panels_)
        first_panel = np.int32(0 if is_a else a_total)
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
        scan(values, either, most, power)
        publish(
            values, either, most, power, x, source, stride, np.int32(k - at), np.int32(1),
            last, threads, top_of, fine_of, sums, slot,
        )  # fmt: skip
        meet_warp()
        reduce_warp(top_of, fine_of, sums, own, group)
        cuda.syncthreads()
        wait()
        send_seen(top_of, fine_of, sums, own, group, rank, tops, fines, powers, boxes)
        receive(boxes, SEEN)

        # From here on as above. Meanwhile no registers hold it: elements are to have them.
        thread = np.int32(thread_anew())
        own = np.int32(thread & (PANEL - 1))
        group = np.int32(thread // PANEL)
        any_slow = np.int32(0)
        if group == 0:
            top, fine, strength = reduce_seen(tops, fines, powers, own)
            make_units(own, top, fine, strength, np.int32(k_), factors, numbers)
            if own < again[3]:
                any_slow = np.int32(1 - (numbers[PANEL + own] & 1))
        any_slow = np.int32(cuda.syncthreads_or(any_slow))

        lane = np.int32(thread & (ACROSS - 1))
        rank = again[4]
        batch = again[1]
        panel_row = np.int64(again[2])
        _, slices, scales, flags, rows, _, _, _, _ = chosen(again[0] < a_total, of_a, of_b)
        row = panel_row + QUAD * lane
        last = np.int32(min(rows - row, QUAD))
        if rank == 0 and group == 0 and own < again[3]:
            found = numbers[PANEL + own]
            # Those that may leave are decided on when they have been cut.
            if SUMS == 0 or found != 0:
                whose = np.int64(batch) * rows + panel_row + own
                write_row(scales, flags, whose, numbers[own], found >> 1)
        slice_words = ((rows + 7) & ~7) * 16
        swizzle = np.int32((np.int32(row) >> 1) & 3)
        base = np.int64(batch) * steps * COUNT * slice_words + row * 16
        at = np.int32(rank * threads + ITEM * (thread // ACROSS))
        if at < steps * (STEP // SIZE):
            place = base + place_of(at, SIZE, swizzle, COUNT, slice_words)
            # Rows 2 and 3 of the thread's four have the next chunk's place.
            flipped = base + place_of(at, SIZE, np.int32(swizzle ^ 1), COUNT, slice_words)
            split_safe_rows(
                values, lane, last, factors, numbers, cut, squares,
                slices, place, flipped, slice_words,
            )  # fmt: skip
        if any_slow == 0:
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
        which_is_a = again[0] < a_total
        x, slices, _, _, rows, batch_stride, stride, _, _ = chosen(which_is_a, of_a, of_b)
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
            split_slow_rows(
                values, x, source, stride, np.int32(k_ - at), np.int32(k_), lane, last,
                factors, numbers, norms, cut, squares,
                slices, place, flipped, slice_words, sums, slot, np.int32(ROOM),
            )  # fmt: skip
        if SUMS == 0:
            return
        cuda.syncthreads()
        send_lost(sums, own, group, rank, left, boxes)
        if rank > 0:
            return
        receive(boxes, LOST)
        if group == 0 and own < again[3] and numbers[PANEL + own] & DECIDED == 0:
            out = reduce_lost(left, own)
            _, _, scales, flags, rows, _, _, _, _ = chosen(again[0] < a_total, of_a, of_b)
            whose = np.int64(again[1]) * rows + again[2] + own
            flag = OUTLIER if out else numbers[PANEL + own] >> 1
            write_row(scales, flags, whose, numbers[own], flag)

    operand = argument_types(side)
    found, signature = launched(kernel, *operand, *operand, *[types.int64] * 3)
    found.launch_bounds = threads, max(resident_threads(side) // threads, 1)
    found.cluster = blocks
    return found, signature


def seen_bytes(side: Side, blocks: int) -> int:
    """Bytes that a block is sent, in all, of what blocks find."""
    of_row = (4 if side.memory == "float32" else 8) + 4 * side.fineness + 4 * (side.sums > 0)
    return blocks * PANEL * of_row


def lost_bytes(side: Side, blocks: int) -> int:
    """Bytes that the first block is sent of what rows lose, if any may leave."""
    return 4 * blocks * PANEL * side.sums


def cluster_exchange(side: Side, threads: int, blocks: int) -> list[Any]:
    """Device functions for blocks of so many threads, and clusters of so many blocks.

    `reduce_warp` reduces what a warp's parts have found, in the first of them. `send_seen` sends
    what a block's warps have found to all blocks of the cluster, and `reduce_seen` reduces that for
    one row. `send_lost` sends what a block's parts lose of rows to the first block, and
    `reduce_lost` says whether a row has lost too much in all.
    """
    BLOCKS, SUMS, FINENESS = blocks, side.sums, side.fineness
    BITS = FORMATS[side.memory].bits
    PARTS, GROUPS = threads // ACROSS, threads // PANEL
    ROOM, ALL = PARTS * APART, blocks * PANEL
    reduce_tops, reduce_fines, reduce_powers = reductions(side)
    unite, _ = findings(side)

    def reduce_warp(top_of, fine_of, power_of, own, group):
        first = np.int32(APART * OF_WARP * group + own)
        top_of[first] = reduce_tops(top_of, first, APART, OF_WARP)
        if FINENESS:
            fine_of[first] = reduce_fines(fine_of, first, APART, OF_WARP)
        if SUMS > 0:
            power_of[first] = reduce_powers(power_of, first, APART, OF_WARP)

    def send_seen(top_of, fine_of, power_of, own, group, rank, tops, fines, powers, boxes):
        mine = np.int32(rank * PANEL + own)
        # Three warps, one for each.
        for task in range(group, 3, GROUPS):
            if task == 0:
                top = reduce_tops(top_of, own, APART * OF_WARP, GROUPS)
                for block in range(BLOCKS):
                    send(tops, mine, top, np.int32(block), boxes, SEEN)
            if FINENESS and task == 1:
                fine = reduce_fines(fine_of, own, APART * OF_WARP, GROUPS)
                for block in range(BLOCKS):
                    send(fines, mine, fine, np.int32(block), boxes, SEEN)
            if SUMS > 0 and task == 2:
                power = reduce_powers(power_of, own, APART * OF_WARP, GROUPS)
                for block in range(BLOCKS):
                    send(powers, mine, power, np.int32(block), boxes, SEEN)

    def reduce_seen(tops, fines, powers, own):
        top, fine, power = BITS(0), np.int32(0), np.float32(0)
        for block in range(BLOCKS):
            top, fine, power = unite(top, fine, power, tops, fines, powers, PANEL * block + own)
        return top, fine, power

    def send_lost(sums, own, group, rank, left, boxes):
        for p in range(group, SUMS, GROUPS):
            excess = reduce_powers(sums, np.int32(ROOM * p + own), APART, PARTS)
            send(left, ALL * p + PANEL * rank + own, excess, np.int32(0), boxes, LOST)

    def reduce_lost(left, own):
        out = False
        for p in range(SUMS):
            whole = 0.0
            for block in range(BLOCKS):
                whole += np.float64(left[ALL * p + PANEL * block + own])
            out = out or whole > 0.0
        return out

    functions = reduce_warp, send_seen, reduce_seen, send_lost, reduce_lost
    return [device(one) for one in functions]
