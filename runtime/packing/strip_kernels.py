"""The packing kernel: one launch splits both operands, each read once from memory.

A thread block takes a strip of `height` rows of one operand and walks along K, block after block of
it. Per block: every thread finds the largest magnitude of its share of one row, the block agrees on
the row's, then each thread cuts its share into slices and stores them. What a thread read for the
first step it keeps for the second: in registers if that is all, else in shared memory as far as it
reaches; the rest is read again, the latest first, while it still lies in the L2 cache. Units that
are to be fitted need the lowest bit that is set as well, which a thread looks for until what it saw
spans more bits than two digits hold: mostly not beyond what it read first.

Threads lie along K, 32 bytes of it each, or along the rows where those are contiguous. A thread
owns one row of the strip. Short blocks are shared out: `lanes` threads to each, several at a time.

Nothing but the order of threads decides the order of a sum: two runs give the same bits. Rows found
to be not finite, or outliers, are zeros: the strip that holds one is done again without it.
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
    LEAVES,
    NONFINITE,
    OUTLIER,
    SIGNIFICAND_BITS,
)
from mixpert_py.runtime.kernels.intrinsics import chosen, device, launched, power_of_two
from mixpert_py.runtime.packing.digits import FINEST, FORMATS, finer_of, place_of
from mixpert_py.runtime.packing.floats import finest_of
from mixpert_py.runtime.packing.operand import CACHE_LANES, DEPTH, ITEM, MOST_THREADS, Side
from mixpert_py.runtime.packing.parts import (
    argument_types,
    load_strip,
    slow_path,
    units_of,
    words_made,
)

NONE = -(1 << 20)  # the exponent of a row that has held zeros so far
NONFINITE_CODE, OUTLIER_CODE = 1 << 22, 1 << 21  # above every exponent: the row leaves


def strip_kernel(left: Side, right: Side) -> tuple[Any, tuple[Any, ...]]:
    """The kernel, to be compiled, and the Numba types of its arguments."""
    first, same = _strip(left), left == right
    second = first if same else _strip(right)

    def kernel(
        a, a_slices, a_scales, a_flags, a_outliers,
        a_rows, a_batch, a_row, a_k, a_mapping, a_height, a_strips,
        b, b_slices, b_scales, b_flags, b_outliers,
        b_rows, b_batch, b_row, b_k, b_mapping, b_height, b_strips,
        a_grid, k, block, padded, blocks, spans, steps, share, cached, threads_log,
    ):  # fmt: skip
        scratch = cuda.shared.array(MOST_THREADS, np.float64)
        partials = cuda.shared.array(MOST_THREADS, np.float64)
        index = cuda.blockIdx.x
        of_a = (
            a, a_slices, a_scales, a_flags, a_outliers,
            a_rows, a_batch, a_row, a_k, a_mapping, a_height, a_strips,
        )  # fmt: skip
        of_b = (
            b, b_slices, b_scales, b_flags, b_outliers,
            b_rows, b_batch, b_row, b_k, b_mapping, b_height, b_strips,
        )  # fmt: skip
        lengths = k, block, padded, blocks, spans, steps, share, cached, threads_log
        if same:
            is_a = index < a_grid
            index -= 0 if is_a else a_grid
            first(index, chosen(is_a, of_a, of_b), lengths, scratch, partials)
        elif index < a_grid:
            first(index, of_a, lengths, scratch, partials)
        else:
            second(index - a_grid, of_b, lengths, scratch, partials)

    operands = [argument_types(side, types.uint8, integers=7) for side in (left, right)]
    found, signature = launched(kernel, *operands[0], *operands[1], *[types.int64] * 10)
    found.launch_bounds = MOST_THREADS, 1
    return found, signature


def _strip(side: Side) -> Any:
    """The device function that packs one strip."""
    assert side.group == 1 or not side.fitted
    COUNT, GROUP, SIZE, WORDS = side.slices, side.group, side.size, words_made(side)
    DIGITS, FITTED, SPANS = side.kind == "digits", side.fitted, side.span >= 0
    LOSS, LOWER, CROWDED = side.loss, side.lower, side.crowded
    SINGLE = side.memory == "float32"
    it, WIDE = FORMATS[side.memory], FORMATS[side.wide].number
    MEMORY, BITS, MAGNITUDE, INFINITE = it.number, it.bits, it.magnitude, it.infinite
    IN_SHARED, FRACTION = it.in_shared, it.fraction  # the simulator wants this one's size
    # A row whose fineness and largest exponent field come to less is held by two digits.
    HELD_BELOW = FINEST + it.bias + side.held
    bits_of, float_of = it.bits_of, it.float_of
    # A tile's segment of K gives a thread no more than one item.
    ITEMS = 1 if GROUP > 1 else DEPTH
    HELD = ITEM * ITEMS
    CACHE_LANES_LOG = CACHE_LANES.bit_length() - 1
    # Sums of squares: of the row, of what it loses, and of digits past the first if they count.
    SUMS = 1 + COUNT if CROWDED else 2
    load, finer, finest_entry = load_strip(HELD), finer_of(side), finest_of(side)
    units, split = units_of(side), slow_path(side)
    inf = math.inf

    def strip(index, operand, lengths, scratch, partials):
        x, slices, scales, flags, outliers = operand[:5]
        rows, batch_stride, row_stride, k_stride, mapping, height_log, strips = operand[5:]
        k, block, padded, blocks, spans, steps, share_log, cached, threads_log = lengths
        cache = cuda.shared.array(0, IN_SHARED)
        values = cuda.local.array(HELD, MEMORY)
        sums = cuda.local.array(SUMS, np.float64)  # of the row
        parts = cuda.local.array(SUMS, np.float64)  # of the block in hand
        words = cuda.local.array(WORDS, np.uint32)
        norms = cuda.local.array(2, WIDE)
        squares = cuda.local.array(COUNT, np.int32)

        # What counts elements along K fits 32 bits; what counts elements of an operand does not.
        block, padded, blocks = np.int32(block), np.int32(padded), np.int32(blocks)
        thread = np.int32(cuda.threadIdx.x)
        across_log = np.int32(threads_log - height_log)  # of a row
        across = np.int32(1 << across_log)
        if mapping & 1:  # along the rows
            r = thread & np.int32((1 << height_log) - 1)
            lane = np.int32(thread >> height_log)
        else:
            r = np.int32(thread >> across_log)
            lane = thread & np.int32(across - 1)
        vector = (mapping & 2) != 0
        batch = index // strips
        row = ((index - batch * strips) << height_log) + r
        present = row < rows
        origin = batch * batch_stride + row * row_stride

        lanes_log = np.int32(min(share_log, across_log))
        lanes = np.int32(1 << lanes_log)
        segment = np.int32(lane >> lanes_log)
        place = np.int32(lane & (lanes - 1))
        parallel = np.int32(across >> lanes_log)
        slot = np.int32((r << across_log) + lane)
        strand = np.int32((r << (across_log - lanes_log)) + segment)
        between = np.int32(ITEM << lanes_log)  # from one item of a thread to its next
        turns = np.int32((padded + between - 1) >> (lanes_log + 3))
        # In the cache, a thread's elements are CACHE_LANES apart: first comes its place among so
        # many threads, then its elements.
        cache_log = np.int32(max(threads_log - CACHE_LANES_LOG, 0))
        own_place = np.int32(
            (thread & (CACHE_LANES - 1)) + ((thread >> CACHE_LANES_LOG) << CACHE_LANES_LOG) * HELD
        )
        slice_words = ((rows + 7) & ~7) * 16
        base = batch * steps * COUNT * slice_words + row * 16
        swizzle = np.int32((row >> 1) & 3)

        dead = 0
        searching = True
        while searching:
            found = NONE  # why the row leaves now, if it does
            reference = NONE
            may_overflow = np.int32(0)  # LARGE, where this thread has seen that
            spread = False  # whether a tile of this row is an outlier
            for i in range(SUMS):
                sums[i] = 0.0
            for first in range(0, spans, parallel):
                t = np.int32(first + segment)
                here = np.int64(t) * block
                length = np.int32(min(block, k - here) if t < blocks else 0)
                last = np.int32(length - 1)
                start = origin + here * k_stride
                live = present and dead == 0 and length > 0

                top = BITS(0)
                least = MAGNITUDE
                fine = np.int32(0)
                bare = FITTED  # whether two digits may hold what this thread has seen
                if live:
                    for turn in range(0, turns, ITEMS):
                        at = np.int32(turn * between + place * ITEM)
                        load(values, x, start, k_stride, at, between, last, vector)
                        for j in range(HELD):
                            size = BITS(bits_of(values[j]) & MAGNITUDE)
                            top = BITS(size if size > top else top)
                            if SPANS:
                                least = BITS(size if 0 < size < least else least)
                        if bare:
                            for j in range(HELD):
                                fine = np.int32(finer(values[j], fine))
                            field = np.int32(top >> BITS(FRACTION))
                            bare = field == 0 or fine + field < HELD_BELOW
                        if turn < cached:
                            cell = np.uint32(
                                own_place + ((turn * ITEM) << (CACHE_LANES_LOG + cache_log))
                            )
                            for j in range(HELD):
                                cache[cell + np.uint32(j * CACHE_LANES)] = values[j]
                own = np.float64(float_of(top)) if top < INFINITE else inf
                own = highest(scratch, partials, own, slot, place, lanes, strand)
                largest = own
                many = max(lanes >> 3, 1)
                top_row = r - (r & (GROUP - 1))
                if GROUP > 1:
                    largest = 0.0
                    for i in range(GROUP):
                        other = (((top_row + i) << (across_log - lanes_log)) + segment) * many
                        for j in range(many):
                            if partials[other + j] < inf:
                                largest = max(largest, partials[other + j])
                out = (dead & OUTLIER) != 0
                if SPANS:
                    fine = finest_entry(least)
                if FITTED or SPANS:
                    finest = np.float64(fine)
                    finest = highest(scratch, partials, finest, slot, place, lanes, strand)
                    fine = np.int32(finest)
                size = bits_of(MEMORY(largest))
                word, one, two, ratio, worth, flag, _ = units(size, fine, np.float32(0), k)
                if own == inf:
                    found = NONFINITE_CODE
                elif flag & OUTLIER:
                    found = max(found, OUTLIER_CODE)
                may_overflow |= np.int32(flag & LARGE)
                alive = live and own < inf and flag & LEAVES == 0 and largest > 0.0 and not out
                exponent = np.int64(word >> SIGNIFICAND_BITS) + FIRST_DIGIT  # of digits
                if place == 0 and present and t < blocks:
                    scales[(batch * blocks + t) * rows + row] = word

                for i in range(SUMS):
                    parts[i] = 0.0
                final = ((turns + ITEMS - 1) // ITEMS) * ITEMS
                for back in range(0, final, ITEMS):
                    turn = final - ITEMS - back
                    if alive and turns > ITEMS:
                        if turn < cached:
                            cell = np.uint32(
                                own_place + ((turn * ITEM) << (CACHE_LANES_LOG + cache_log))
                            )
                            for j in range(HELD):
                                values[j] = cache[cell + np.uint32(j * CACHE_LANES)]
                        else:
                            at = np.int32(turn * between + place * ITEM)
                            load(values, x, start, k_stride, at, between, last, vector)
                    for d in range(ITEMS):
                        at = np.int32((turn + d) * between + place * ITEM)
                        if at < padded and t < spans and present:
                            if not alive or at + ITEM - 1 > last:
                                for j in range(ITEM):
                                    if not alive or at + j > last:
                                        values[d * ITEM + j] = MEMORY(0)
                            norms[0] = WIDE(0)
                            norms[1] = WIDE(0)
                            for p in range(COUNT):
                                squares[p] = np.int32(0)
                            to = np.int32(t * padded + at)
                            to = place_of(to, SIZE, swizzle, COUNT, slice_words)
                            split(
                                values, d * ITEM, one, two, ratio, worth, norms, squares,
                                words, slices, base + to, slice_words,
                            )  # fmt: skip
                            parts[0] += norms[0]
                            parts[1] += norms[1]
                            if CROWDED:
                                square = np.float64(worth) * np.float64(worth)
                                for p in range(1, COUNT):
                                    parts[1 + p] += np.float64(squares[p]) * square

                if GROUP > 1:
                    excess = parts[1] - LOSS * parts[0]
                    total(scratch, partials, excess, slot, place, lanes, strand)
                    excess = 0.0
                    for i in range(GROUP):
                        other = (((top_row + i) << (across_log - lanes_log)) + segment) * many
                        for j in range(many):
                            excess += partials[other + j]
                    if excess > 0.0:
                        out = True
                        for j in range(ITEM):
                            values[j] = MEMORY(0)
                        for turn in range(turns):
                            at = np.int32(turn * between + place * ITEM)
                            if at < padded and t < spans and present:
                                to = np.int32(t * padded + at)
                                to = place_of(to, SIZE, swizzle, COUNT, slice_words)
                                split(
                                    values, 0, one, two, ratio, worth, norms, squares,
                                    words, slices, base + to, slice_words,
                                )  # fmt: skip
                spread = spread or out
                if place == 0 and present and t < blocks and blocks > 1:
                    outliers[(batch * blocks + t) * rows + row] = 1 if out else 0
                if DIGITS and GROUP == 1 and largest > 0.0 and length > 0:
                    if exponent > reference:
                        factor = power_of_two(2 * (reference - exponent))
                        for i in range(SUMS):
                            sums[i] *= factor
                        reference = exponent
                    factor = power_of_two(2 * (exponent - reference))
                    for i in range(SUMS):
                        sums[i] += parts[i] * factor

            # What the row's threads found, together.
            if parallel > 1 or blocks > 1:
                code = np.float64(max(found, reference))
                code = highest(scratch, partials, code, slot, lane, across, r)
                found = int(code)
                if found < OUTLIER_CODE:
                    factor = power_of_two(2 * (reference - found))
                    for i in range(SUMS):
                        sums[i] *= factor
                    reference = found
            verdict = False
            if DIGITS and GROUP == 1:
                excess = sums[1] - LOSS * sums[0]
                excess = total(scratch, partials, excess, slot, lane, across, r)
                verdict = excess > 0.0
                for i in range(2, SUMS):
                    excess = sums[i] - LOWER * k * sums[0]
                    excess = total(scratch, partials, excess, slot, lane, across, r)
                    verdict = verdict or excess > 0.0
            if GROUP > 1:
                marked = 1.0 if spread else 0.0
                spread = highest(scratch, partials, marked, slot, lane, across, r) > 0.0
            newly = 0
            if dead == 0 and present:
                if found >= NONFINITE_CODE:
                    newly = NONFINITE
                elif found >= OUTLIER_CODE or verdict:
                    newly = OUTLIER
            dead |= newly
            searching = cuda.syncthreads_or(newly) != 0

        if DIGITS or not SINGLE:
            seen = np.float64(may_overflow)
            may_overflow = np.int32(highest(scratch, partials, seen, slot, lane, across, r))
        if lane == 0 and present:
            flag = dead | (OUTLIER if spread else 0)
            flags[batch * rows + row] = may_overflow if flag == 0 else flag

    return device(strip)


def _reduction(combine: Any) -> Any:
    """The device function that combines float64 values of `lanes` threads next to each other, for
    all of them, always in the same order.
    """
    combined = device(combine)

    def of_lanes(scratch, partials, value, slot, place, lanes, strand):
        many = max(lanes >> 3, 1)
        scratch[slot] = value
        cuda.syncthreads()
        if place < many:
            for other in range(place + many, lanes, many):
                value = combined(value, scratch[slot - place + other])
            partials[strand * many + place] = value
        cuda.syncthreads()
        value = partials[strand * many]
        for other in range(1, many):
            value = combined(value, partials[strand * many + other])
        return value

    return cuda.jit(device=True)(of_lanes)  # it uses `cuda`: the simulator is to know


highest = _reduction(lambda value, other: max(value, other))
total = _reduction(lambda value, other: value + other)
