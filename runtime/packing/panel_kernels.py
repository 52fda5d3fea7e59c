"""The packing kernel where rows are contiguous, not K, and K is one block.

A panel is 32 rows and all of K, a piece of it as many positions of K as a block has threads, a run
one piece after the other. A thread holds 4 rows × 8 positions of a piece in registers, so that it
reads 16 bytes of each position and writes 8 of each row and slice of digits, 16 or 32 of floats; a
warp reads lines of 128 bytes and writes sectors of 32 or more.

A row's unit follows from its largest magnitude, so runs are read twice, by two launches: the first
scans them, the second puts together what was found of a panel's runs, and splits each of them into
slices. (Splitting the runs of some panels before others are scanned, while the L2 cache may still
hold them, gains nothing: see the log beside the GEMM kernels.)

If rows of a panel may leave, its runs are counted as they are split: the block that splits the last
one decides. Flags and digits are as `row_kernels` says.
"""

# The bodies of kernels are Numba's to type.
# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
# mypy: disable-error-code="attr-defined"

from typing import Any

import numpy as np
from numba import cuda
from numba.cuda import types

from mixpert_py.runtime.kernels.abi import OUTLIER, STEP
from mixpert_py.runtime.kernels.intrinsics import count, launched, quotient
from mixpert_py.runtime.packing.digits import FORMATS, place_of
from mixpert_py.runtime.packing.operand import ACROSS, APART, ITEM, PANEL, QUAD, Side
from mixpert_py.runtime.packing.parts import (
    DECIDED,
    FACTORS,
    NUMBERS,
    argument_types,
    findings,
    load_panel,
    panel_splits,
    run_scans,
    words_made,
    write_row,
)

# Threads that a multiprocessor is to have room for, and in double precision.
RESIDENT, RESIDENT_DOUBLE = 1024, 512


def resident_threads(side: Side) -> int:
    return RESIDENT if side.single else RESIDENT_DOUBLE


def panel_kernel(side: Side, threads: int) -> tuple[Any, tuple[Any, ...]]:
    """The kernel, to be compiled, and the Numba types of its arguments; for one operand, or two
    that are split alike.
    """
    it, wide = FORMATS[side.memory], FORMATS[side.wide]
    MEMORY, WIDE, BITS, SUMS = it.number, wide.number, it.bits, side.sums
    WIDE_SHARED, BITS_SHARED = wide.in_shared, it.bits_in_shared
    COUNT = side.slices
    PARTS, GROUPS = threads // ACROSS, threads // PANEL
    ROOM, HELD, LEFT = PARTS * APART, QUAD * ITEM, max(SUMS, 1) * PARTS * APART
    SIZE, WORDS = side.size, words_made(side)
    scan_run, store_run, load_runs = run_scans(side, threads)
    make_units, split_safe_rows, split_slow_rows = panel_splits(side)

    unite, leave = findings(side)

    def unite_groups(
        own, group, top, fine, power, k,
        top_of, fine_of, sums, factors, numbers,
    ):  # fmt: skip
        # Of what the groups of threads have found.
        leave(top, fine, power, top_of, fine_of, sums, APART * group + own)
        cuda.syncthreads()
        if group == 0:
            for other in range(1, GROUPS):
                place = APART * other + own
                top, fine, power = unite(top, fine, power, top_of, fine_of, sums, place)
            make_units(own, top, fine, power, k, factors, numbers)
        cuda.syncthreads()

    unite_groups = cuda.jit(device=True)(unite_groups)  # it uses `cuda`: the simulator is to know

    def kernel(
        a, a_slices, a_scales, a_flags, a_tops, a_fines, a_powers, a_partials, a_counters,
        a_rows, a_batch, a_stride, a_vector, a_panels,
        b, b_slices, b_scales, b_flags, b_tops, b_fines, b_powers, b_partials, b_counters,
        b_rows, b_batch, b_stride, b_vector, b_panels,
        a_total, total, runs_, length_, k_, steps, splits,
    ):  # fmt: skip
        top_of = cuda.shared.array(ROOM, BITS_SHARED)
        fine_of = cuda.shared.array(ROOM, types.int32)
        sums = cuda.shared.array(LEFT, types.float32)
        factors = cuda.shared.array(FACTORS, WIDE_SHARED)
        numbers = cuda.shared.array(NUMBERS, types.int32)
        values = cuda.local.array(HELD, MEMORY)
        either = cuda.local.array(QUAD, BITS)
        most = cuda.local.array(QUAD, BITS)
        power_of = cuda.local.array(QUAD, np.float32)
        cut = cuda.local.array(WORDS, np.uint32)
        norms = cuda.local.array(2, WIDE)
        squares = cuda.local.array(COUNT, np.int32)

        # Neighbouring panels at a time: what they read lies side by side in memory.
        thread = np.int32(cuda.threadIdx.x)
        runs, length = np.int32(runs_), np.int32(length_)
        index = np.int32(cuda.blockIdx.x)
        run = quotient(index, np.int32(total))
        which = np.int32(index - run * total)
        if which < a_total:
            x, slices, scales, flags = a, a_slices, a_scales, a_flags
            tops, fines, powers, partials = a_tops, a_fines, a_powers, a_partials
            counters = a_counters
            rows, batch_stride, stride, vector = a_rows, a_batch, a_stride, a_vector
            panels = np.int32(a_panels)
        else:
            which -= np.int32(a_total)
            x, slices, scales, flags = b, b_slices, b_scales, b_flags
            tops, fines, powers, partials = b_tops, b_fines, b_powers, b_partials
            counters = b_counters
            rows, batch_stride, stride, vector = b_rows, b_batch, b_stride, b_vector
            panels = np.int32(b_panels)
        k = np.int32(k_)
        batch = quotient(which, panels)
        panel_row = np.int64((which - batch * panels) * PANEL)
        lane = np.int32(thread & (ACROSS - 1))
        part = np.int32(thread // ACROSS)
        slot = np.int32(APART * part + QUAD * lane)
        # What a thread adds up for one row: of every GROUPS-th run, or part.
        own = np.int32(thread & (PANEL - 1))
        group = np.int32(thread // PANEL)
        row = panel_row + QUAD * lane
        last = np.int32(min(rows - row, QUAD))
        at = np.int32(run * length * threads + ITEM * part)
        source = batch * batch_stride + row + at * stride
        first = np.int64(which) * runs * PANEL + own  # where its first run leaves a row's

        if splits == 0:
            scan_run(
                values, x, source, stride, np.int32(k - at), length, last, vector,
                top_of, fine_of, sums, slot, either, most, power_of,
            )  # fmt: skip
            cuda.syncthreads()
            store_run(
                top_of, fine_of, sums, group, own, np.int32(cuda.blockDim.x // ACROSS),
                tops, fines, powers, first + run * PANEL,
            )  # fmt: skip
            if thread == 0 and run == 0:
                counters[which] = np.int32(0)
            return

        top, fine, power = load_runs(first, group, runs, tops, fines, powers)
        unite_groups(
            own, group, top, fine, power, k,
            top_of, fine_of, sums, factors, numbers,
        )  # fmt: skip
        # Those that may leave are decided on when they have been cut.
        is_decided = SUMS == 0 or (numbers[PANEL + own] & DECIDED) != 0
        if thread < PANEL and run == 0 and panel_row + own < rows and is_decided:
            whose = np.int64(batch) * rows + panel_row + own
            write_row(scales, flags, whose, numbers[own], numbers[PANEL + own] >> 1)

        # Of a panel's runs all or none: what is safe does not depend on the run.
        any_slow = np.int32(0)
        if thread < PANEL and panel_row + own < rows:
            any_slow = np.int32(1 - (numbers[PANEL + own] & 1))
        any_slow = np.int32(cuda.syncthreads_or(any_slow))
        if SUMS > 0 and any_slow != 0:
            for i in range(QUAD):
                for p in range(SUMS):
                    sums[ROOM * p + slot + i] = np.float32(0)
        end = np.int32(steps * (STEP // SIZE))
        slice_words = ((rows + 7) & ~7) * 16
        swizzle = np.int32((np.int32(row) >> 1) & 3)
        base = np.int64(batch) * steps * COUNT * slice_words + row * 16
        for _ in range(length):
            if at >= end:
                break
            load_panel(values, x, source, stride, np.int32(k - at), last, vector)
            place = base + place_of(at, SIZE, swizzle, COUNT, slice_words)
            # Rows 2 and 3 of the thread's four have the next chunk's place.
            flipped = base + place_of(at, SIZE, np.int32(swizzle ^ 1), COUNT, slice_words)
            split_safe_rows(
                values, lane, last, factors, numbers, cut, squares,
                slices, place, flipped, slice_words,
            )  # fmt: skip
            if any_slow != 0:
                split_slow_rows(
                    values, x, source, stride, np.int32(k - at), k, lane, last,
                    factors, numbers, norms, cut, squares,
                    slices, place, flipped, slice_words, sums, slot, np.int32(ROOM),
                )  # fmt: skip
            at += np.int32(threads)
            source += threads * stride
        if SUMS == 0 or any_slow == 0:
            return
        cuda.syncthreads()
        for p in range(group, SUMS, GROUPS):
            excess = np.float32(0)
            for i in range(PARTS):
                excess += sums[ROOM * p + APART * i + own]
            partials[SUMS * (first - own) + (p * runs + run) * PANEL + own] = excess
        cuda.syncthreads()
        done = np.int32(0)
        if thread == 0:
            cuda.threadfence()
            # What the block has written comes before it counts.
            done = np.int32(count(counters, which, np.int32(1)) == runs - 1)
            cuda.threadfence()
        if cuda.syncthreads_or(done) == 0:
            return
        if thread < PANEL and panel_row + own < rows and numbers[PANEL + own] & DECIDED == 0:
            out = False
            for p in range(SUMS):
                whole = 0.0
                start = SUMS * (first - own) + p * runs * PANEL + own
                for i in range(runs):
                    whole += np.float64(partials[start + i * PANEL])
                out = out or whole > 0.0
            whose = np.int64(batch) * rows + panel_row + own
            flag = OUTLIER if out else numbers[PANEL + own] >> 1
            write_row(scales, flags, whose, numbers[own], flag)

    between = BITS_SHARED, types.int32, types.float32, types.float32, types.int32
    operand = argument_types(side, *between)
    found, signature = launched(kernel, *operand, *operand, *[types.int64] * 7)
    found.launch_bounds = threads, max(resident_threads(side) // threads, 1)
    return found, signature
