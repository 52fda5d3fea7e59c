"""The repair kernel: what left the slices is multiplied natively and added to C.

A tile of work is LINES rows of A and COLUMNS columns of C: the rows of C that are flagged are made
there. The other half of the tiles does the same for columns of B, but where the row is flagged as
well. So every element of C has one thread that adds to it. Where C is symmetric there are no such
tiles: a row's elements are mirrored, each by the thread that adds to it, and of the two between
flagged rows only the one below the diagonal is made.

A few thread blocks share the tiles of a product, or one takes those of several. Each looks first at
all the flags of its products, 16 bytes a load, and mostly ends there. Where they are too many to be
read by every block, a block takes one tile, and looks at what that needs.

Elements of large lines that are not finite, and could be, are made again by a thread each.

Of a few flagged lines, one is multiplied after the other. Threads lie along the columns if those
are contiguous, else along K; several share an element's sum, which they add up in a fixed order.
Of many, as many at once as fit are multiplied, times columns of a tile: see `blocks_of`.
"""

# The bodies of kernels are Numba's to type, and what it offers is made at run time.
# mypy: allow-untyped-calls, allow-untyped-defs, no-check-untyped-defs
# mypy: disable-error-code="attr-defined"

import math
from typing import Any, NamedTuple

import numpy as np
from numba import cuda
from numba.cuda import types

from mixpert_py.runtime.kernels.abi import LARGE, LEAVES, NONFINITE, OUTLIER
from mixpert_py.runtime.kernels.intrinsics import (
    device,
    fused,
    let_next_begin,
    load_four,
    wait_for_launch,
)
from mixpert_py.runtime.packing.repair import COLUMNS, LINES, RESIDENT, THREADS, WIDE

ACROSS = 16  # threads beside each other
EACH = 4  # lines of a thread
# Whether lines are multiplied by other marked ones as well: by all of them, by none, or, where C is
# symmetric, by those up to the line itself.
ALL, NONE, MIRRORED = 0, 1, 2
CHAIN = 512  # of K, in a sum: then it is added to C, and rounding grows less


class Blocks(NamedTuple):
    """A block of flagged lines that are multiplied at once, times columns. add: the device function
    that does so; x_elements, y_elements: the elements of shared memory that it takes for either
    operand.
    """

    lines: int
    columns: int
    x_elements: int
    y_elements: int
    add: Any


def blocks_of(result: str, threads: int) -> Blocks:
    """The block sizes for a type of C and a number of threads, a multiple of 64.

    The function adds x·y to C where either line is flagged: for lines from `start` on, of
    the `found` that `members` lists, and columns from `columns` to `last`. Operands are tuples as
    `_lines` has them.
    """
    # Elements of a line that a thread has, and how much of K a step is: registers are few.
    REAL, BESIDE, STEP = (np.float32, 4, 16) if result == "float32" else (np.float64, 2, 8)
    DOWN, SUMS = threads // ACROSS, EACH * BESIDE
    X_SIDE, Y_SIDE = DOWN * EACH, ACROSS * BESIDE
    X_ROW, Y_ROW = X_SIDE + 2, Y_SIDE + 2  # so that writes along K meet no bank twice
    X_LOADS, Y_LOADS = X_SIDE * STEP // threads, Y_SIDE * STEP // threads
    x_spot, y_spot = _spot(X_SIDE, STEP, threads), _spot(Y_SIDE, STEP, threads)
    x_read, y_read = _read(REAL, X_LOADS, x_spot), _read(REAL, Y_LOADS, y_spot)
    x_keep, y_keep = _keep(X_LOADS, STEP, X_ROW, x_spot), _keep(Y_LOADS, STEP, Y_ROW, y_spot)
    multiply = _multiply_step(REAL, BESIDE, STEP, DOWN, X_ROW, Y_ROW)

    def add_block(
        memory, start, found, first, columns, last, batch,
        of_x, of_y, of_c, depth, marked_too,
    ):  # fmt: skip
        marks, members, _, _, _, xs, ys, x_at, y_at = memory
        x, _, x_outliers, x_lines, x_batch, x_line, x_k, x_marks, x_along = of_x
        y, y_flags, y_outliers, y_lines, y_batch, y_line, y_k, y_marks, y_along = of_y
        c, c_start, c_x, c_y = of_c
        k, block, blocks = depth
        x_held = cuda.local.array(X_LOADS, REAL)
        y_held = cuda.local.array(Y_LOADS, REAL)
        sums = cuda.local.array(SUMS, REAL)
        thread = np.int32(cuda.threadIdx.x)
        down, across = np.int32(thread // ACROSS), np.int32(thread % ACROSS)

        # Where lines begin. Past the last one, threads read that one again.
        if thread < X_SIDE:
            line = np.int64(first + members[min(start + thread, found - 1)])
            x_at[thread] = np.int64(batch) * x_batch + line * x_line
        if thread < Y_SIDE:
            line = np.int64(min(columns + thread, last - 1))
            y_at[thread] = np.int64(batch) * y_batch + line * y_line

        half = np.int32(0)
        for t in range(np.int32(blocks)):
            # Outliers belong, as flags do, to one product or to each.
            x_out = ((batch if x_marks != 0 else 0) * blocks + t) * x_lines + first
            y_out = ((batch if y_marks != 0 else 0) * blocks + t) * y_lines
            wanted = np.uint32(0)  # a bit for each of the thread's elements
            for j in range(BESIDE):
                other = np.int32(columns + across + j * ACROSS)
                if other < last:
                    theirs = y_flags[batch * y_marks + other]
                    right = (theirs & OUTLIER) != 0
                    if right and blocks > 1:
                        right = y_outliers[y_out + other] != 0
                    for i in range(EACH):
                        place = np.int32(start + down + i * DOWN)
                        mine = place < found
                        if mine and marked_too != ALL and theirs & LEAVES != 0:
                            line_of = np.int32(first + members[place])
                            mine = marked_too == MIRRORED and other <= line_of
                        if mine:
                            mark = marks[members[place]]
                            left = (mark & OUTLIER) != 0
                            if left and blocks > 1:
                                left = x_outliers[x_out + members[place]] != 0
                            if left or right or ((mark | theirs) & NONFINITE) != 0:
                                wanted = np.uint32(wanted | (1 << (BESIDE * i + j)))
            if cuda.syncthreads_or(wanted) == 0:
                continue
            end = np.int32(min((t + 1) * block, k))
            for begin in range(np.int32(t * block), end, np.int32(CHAIN)):
                length = np.int32(min(end - begin, CHAIN))
                for i in range(SUMS):
                    sums[i] = REAL(0)
                x_read(x_held, x, x_at, begin, x_k, length, thread, x_along)
                y_read(y_held, y, y_at, begin, y_k, length, thread, y_along)
                for step in range(np.int32(0), length, np.int32(STEP)):
                    x_keep(x_held, xs, half, thread, x_along)
                    y_keep(y_held, ys, half, thread, y_along)
                    cuda.syncthreads()
                    after, rest = np.int32(begin + step + STEP), np.int32(length - step - STEP)
                    if rest > 0:
                        x_read(x_held, x, x_at, after, x_k, rest, thread, x_along)
                        y_read(y_held, y, y_at, after, y_k, rest, thread, y_along)
                    multiply(sums, xs, ys, half, down, across)
                    half = np.int32(1 - half)
                for i in range(EACH):
                    for j in range(BESIDE):
                        if (wanted >> np.uint32(BESIDE * i + j)) & np.uint32(1):
                            line = np.int64(first + members[start + down + i * DOWN])
                            at = c_start + line * c_x
                            at += np.int64(columns + across + j * ACROSS) * c_y
                            c[at] = c[at] + sums[BESIDE * i + j]
                if marked_too == MIRRORED:  # unrolled, this would need too many registers
                    for place in range(np.int32(EACH * BESIDE)):
                        if (wanted >> np.uint32(place)) & np.uint32(1):
                            line = np.int64(first + members[start + down + place // BESIDE * DOWN])
                            other_line = np.int64(columns + across + place % BESIDE * ACROSS)
                            value = c[c_start + line * c_x + other_line * c_y]
                            c[c_start + other_line * c_x + line * c_y] = value
        cuda.syncthreads()  # before shared memory is another block's

    return Blocks(X_SIDE, Y_SIDE, 2 * STEP * X_ROW, 2 * STEP * Y_ROW, device(add_block))


def _spot(side: int, step: int, threads: int) -> Any:
    """The device function for the line and the place along K of a thread's load number i."""
    SIDE, STEP, LINES_A_LOAD, PLACES_A_LOAD = side, step, threads // step, threads // side

    def spot(thread, i, along):
        if along:
            return np.int32(thread // STEP + i * LINES_A_LOAD), np.int32(thread % STEP)
        return np.int32(thread % SIDE), np.int32(thread // SIDE + i * PLACES_A_LOAD)

    return device(spot)


def _read(real: Any, loads: int, spot: Any) -> Any:
    """The device function that reads a step of K from `begin` on, with zeros past `length`."""
    REAL, LOADS = real, loads

    def read(held, x, at, begin, x_k, length, thread, along):
        for i in range(LOADS):
            line, place = spot(thread, i, along)
            held[i] = (
                REAL(x[at[line] + np.int64(begin + place) * x_k]) if place < length else REAL(0)
            )

    return device(read)


def _keep(loads: int, step: int, row: int, spot: Any) -> Any:
    """The device function that writes a step that was read to one half of shared memory."""
    LOADS, STEP, ROW = loads, step, row

    def keep(held, memory, half, thread, along):
        for i in range(LOADS):
            line, place = spot(thread, i, along)
            memory[np.uint32((half * STEP + place) * ROW + line)] = held[i]

    return device(keep)


def _multiply_step(real: Any, beside: int, step: int, apart: int, x_row: int, y_row: int) -> Any:
    """The device function that adds a step's products to a thread's sums."""
    REAL, BESIDE, STEP, APART, X_ROW, Y_ROW = real, beside, step, apart, x_row, y_row

    def multiply(sums, xs, ys, half, down, across):
        x = cuda.local.array(EACH, REAL)
        y = cuda.local.array(BESIDE, REAL)
        x_at = np.uint32(half * (STEP * X_ROW) + down)
        y_at = np.uint32(half * (STEP * Y_ROW) + across)
        for place in range(STEP):
            for i in range(EACH):
                x[i] = xs[np.uint32(x_at + place * X_ROW + i * APART)]
            for j in range(BESIDE):
                y[j] = ys[np.uint32(y_at + place * Y_ROW + j * ACROSS)]
            for i in range(EACH):
                for j in range(BESIDE):
                    sums[BESIDE * i + j] = fused(x[i], y[j], sums[BESIDE * i + j])

    return device(multiply)


LOADS = 2  # of each operand's flags that a thread has under way
# Flagged lines of a tile that are multiplied one by one. On an H200, 32 at once take as long as
# five in float32, as seven in float64.
FEW = 5
PARTS_LOG, PARTS_ALONG_LOG = 2, 5  # threads to a sum: a few, or a warp where they lie along K


def repair_kernel(
    left: str, right: str, result: str, threads: int = THREADS
) -> tuple[Any, tuple[Any, ...]]:
    """The kernel, to be compiled, and the Numba types of its arguments. The types of A, B and C."""
    REAL, THREADS = np.float32 if result == "float32" else np.float64, threads
    at_once = blocks_of(result, threads)
    AT_ONCE, BESIDE, X_ELEMENTS, Y_ELEMENTS, _ = at_once
    rows = columns = _lines(result, threads, at_once)

    def kernel(
        a, b, c, a_flags, b_flags, a_words, b_words, a_outliers, b_outliers,
        a_other_flags, b_other_flags, a_other_words, b_other_words, guard, guarded,
        m, n, k, block, blocks,
        a_batch, a_row, a_k, a_marks, b_batch, b_row, b_k, b_marks, c_batch, c_row,
        lines, a_tiles, tiles, a_along, b_along, batches, products, share, look,
    ):  # fmt: skip
        marks = cuda.shared.array(LINES, np.uint8)
        members = cuda.shared.array(LINES, np.uint16)
        counts = cuda.shared.array(THREADS, np.uint16)
        sums = cuda.shared.array(THREADS, REAL)
        others = cuda.shared.array(THREADS, REAL)
        xs = cuda.shared.array(X_ELEMENTS, REAL)
        ys = cuda.shared.array(Y_ELEMENTS, REAL)
        x_at = cuda.shared.array(AT_ONCE, np.int64)
        y_at = cuda.shared.array(BESIDE, np.int64)
        memory = marks, members, counts, sums, others, xs, ys, x_at, y_at
        wait_for_launch()
        let_next_begin()
        index = np.int32(cuda.blockIdx.x)
        own = np.int32(index // share)
        start = np.int32(own * products)
        end = np.int32(min(start + products, batches))
        if guarded and guard[0] != 0:  # what was packed anew has flags of its own
            a_flags, b_flags = a_other_flags, b_other_flags
            a_words, b_words = a_other_words, b_other_words
        of_a = a, a_flags, a_outliers, m, a_batch, a_row, a_k, a_marks, a_along
        of_b = b, b_flags, b_outliers, n, b_batch, b_row, b_k, b_marks, b_along
        depth = k, block, blocks
        in_a = in_b = True
        if look:
            flags_a = a_flags, a_words, start * a_marks, (end - 1) * a_marks + m
            flags_b = b_flags, b_words, start * b_marks, (end - 1) * b_marks + n
            set_a, set_b = any_set(flags_a, flags_b)
            if cuda.syncthreads_or(set_a | set_b) == 0:
                return
            in_a = cuda.syncthreads_or(set_a) != 0
            in_b = cuda.syncthreads_or(set_b) != 0
        # Tiles and lines are counted in 32 bits: too many registers would be alive at once.
        marked_too = np.int32(MIRRORED if tiles == a_tiles else ALL)
        first, all_tiles = np.int32(index - own * share), np.int32((end - start) * tiles)
        for item in range(first, all_tiles, np.int32(share)):
            batch, tile = np.int32(start + item // tiles), np.int32(item % tiles)
            if in_a if tile < a_tiles else in_b:
                if tile < a_tiles:
                    of_c = c, np.int64(batch) * c_batch, c_row, 1
                    rows(memory, lines, tile, batch, of_a, of_b, of_c, depth, marked_too)
                else:
                    of_c_columns = c, np.int64(batch) * c_batch, 1, c_row
                    columns(
                        memory, lines, np.int32(tile - a_tiles), batch,
                        of_b, of_a, of_c_columns, depth, np.int32(NONE),
                    )  # fmt: skip

    kernel.launch_bounds = threads, RESIDENT
    bytes_, words = types.CPointer(types.uint8), types.CPointer(types.uint32)
    flags = bytes_, bytes_, words, words, bytes_, bytes_
    others = bytes_, bytes_, words, words, types.CPointer(types.int32), types.int64
    operands = [types.CPointer(getattr(types, name)) for name in (left, right, result)]
    return kernel, (*operands, *flags, *others, *[types.int64] * 24)


@device
def any_set(flags_a, flags_b):
    """The bits that are set in this thread's share of each operand's flags, from start to end."""
    a_flags, a_words, a_start, a_end = flags_a
    b_flags, b_words, b_start, b_end = flags_b
    thread = np.int64(cuda.threadIdx.x)
    threads = np.int64(cuda.blockDim.x)
    a_first, a_count, in_a = ends(a_flags, a_start, a_end, thread)
    b_first, b_count, in_b = ends(b_flags, b_start, b_end, thread)
    # Both at once, and past the last again that one: loads that wait for nothing.
    a_last, b_last = max(a_count - 1, 0), max(b_count - 1, 0)
    all_a = all_b = np.uint32(0)
    for i in range(thread, max(a_count, b_count), LOADS * threads):
        for j in range(LOADS):
            w, x, y, z = load_four(a_words, 4 * (a_first + min(i + j * threads, a_last)))
            all_a = np.uint32(all_a | w | x | y | z)
            w, x, y, z = load_four(b_words, 4 * (b_first + min(i + j * threads, b_last)))
            all_b = np.uint32(all_b | w | x | y | z)
    if a_count > 0:
        in_a = np.uint32(in_a | all_a)
    if b_count > 0:
        in_b = np.uint32(in_b | all_b)
    return in_a, in_b


@device
def ends(flags, start, end, thread):
    """The first of the sixteens of flags that lie whole between start and end, 0 if none does;
    their number; and the flag that this thread has outside of them.
    """
    head = min((start + WIDE - 1) // WIDE * WIDE, end)
    tail = max(end // WIDE * WIDE, head)
    found = np.uint32(0)
    if start + thread < head:
        found = np.uint32(flags[start + thread])
    if tail + thread < end:
        found = np.uint32(found | flags[tail + thread])
    count = (tail - head) // WIDE
    return (head // WIDE if count > 0 else 0), count, found


def _lines(result: str, threads: int, at_once: Blocks) -> Any:
    """The device function for flagged lines x (rows, say) times all lines y, or unmarked ones only.

    An operand is a tuple: its address, flags, outliers, lines, the strides in elements of a
    product, of a line and of K, the flags from one product's lines to the next's, 0 where all share
    them, and whether K is its nearest direction.
    """
    REAL, THREADS = np.float32 if result == "float32" else np.float64, threads
    AT_ONCE, BESIDE, add_block = at_once.lines, at_once.columns, at_once.add

    def lines(
        memory, span, tile, batch, of_x, of_y, of_c, depth, marked_too
    ):  # fmt: skip
        marks, members, counts, sums, others, _, _, _, _ = memory
        x, x_flags, x_outliers, x_lines, x_batch, x_line, x_k, x_marks, _ = of_x
        y, y_flags, y_outliers, y_lines, y_batch, y_line, y_k, y_marks, y_along = of_y
        c, c_start, c_x, c_y = of_c
        k, block, blocks = depth
        thread = np.int32(cuda.threadIdx.x)
        across = (y_lines + COLUMNS - 1) // COLUMNS
        chunk = np.int32(tile // across)
        first = np.int32(chunk * span)
        columns = np.int32((tile - chunk * across) * COLUMNS)
        last = np.int32(min(columns + COLUMNS, y_lines))

        marked = np.uint8(0)
        count = np.int32(min(span, x_lines - first))
        for i in range(thread, count, THREADS):
            mark = x_flags[batch * x_marks + first + i]
            marks[i] = mark
            marked = np.uint8(marked | mark)
        # What overflowed of large lines, where neither line has left and will be added to.
        if cuda.syncthreads_or(marked & LARGE):
            for spot in range(thread, count * np.int32(COLUMNS), np.int32(THREADS)):
                i, other = np.int32(spot // COLUMNS), np.int32(columns + spot % COLUMNS)
                if marks[i] == LARGE and other < last:
                    theirs = y_flags[batch * y_marks + other]
                    at = c_start + np.int64(first + i) * c_x + np.int64(other) * c_y
                    if theirs & LEAVES == 0 and math.isinf(c[at]):
                        x_start = batch * x_batch + np.int64(first + i) * x_line
                        y_start = batch * y_batch + np.int64(other) * y_line
                        total = REAL(0)
                        for place_k in range(k):
                            total += REAL(x[x_start + place_k * x_k]) * REAL(
                                y[y_start + place_k * y_k]
                            )
                        c[at] = total
                        if marked_too == MIRRORED:
                            c[c_start + np.int64(other) * c_x + np.int64(first + i) * c_y] = total
        if cuda.syncthreads_or(marked & LEAVES) == 0:
            return
        found = np.int32(list_members(members, counts, marks, count, thread, THREADS))

        if found > FEW:
            for column in range(columns, last, np.int32(BESIDE)):
                for start in range(np.int32(0), found, np.int32(AT_ONCE)):
                    add_block(
                        memory, start, found, first,
                        column, np.int32(min(column + BESIDE, last)), batch,
                        of_x, of_y, of_c, depth, marked_too,
                    )  # fmt: skip
            return

        parts_log = np.int32(PARTS_ALONG_LOG if y_along else PARTS_LOG)
        parts, at_once = np.int32(1 << parts_log), np.int32(THREADS >> parts_log)
        if y_along:
            part, place = np.int32(thread & (parts - 1)), np.int32(thread >> parts_log)
        else:  # neighbouring threads take neighbouring lines
            part, place = np.int32(thread // at_once), np.int32(thread % at_once)
        for i in range(found):
            mark = marks[members[i]]
            line = first + np.int32(members[i])
            for column in range(columns, last, at_once):
                other = column + place
                mine = other < last
                theirs = np.uint8(0)
                if mine:
                    theirs = y_flags[batch * y_marks + other]
                if mine and marked_too != ALL and theirs & LEAVES != 0:
                    mine = marked_too == MIRRORED and other <= line
                whole = ((mark | theirs) & NONFINITE) != 0
                total = REAL(0)
                of_rest = REAL(0)
                if mine:
                    x_start = batch * x_batch + line * x_line
                    y_start = batch * y_batch + other * y_line
                    # Outliers belong, as flags do, to one product or to each.
                    x_out = (batch if x_marks != 0 else 0) * blocks * x_lines + line
                    y_out = (batch if y_marks != 0 else 0) * blocks * y_lines + other
                    for t in range(blocks):
                        # Only the outliers are left out, of lines that have any.
                        left = whole or (mark & OUTLIER) != 0
                        right = (theirs & OUTLIER) != 0
                        if blocks > 1 and not whole:
                            left = left and x_outliers[x_out + t * x_lines] != 0
                            right = right and y_outliers[y_out + t * y_lines] != 0
                        end = min((t + 1) * block, k)
                        if left or right:
                            chain = total if left else of_rest
                            for place_k in range(t * block + part, end, parts):
                                chain += REAL(x[x_start + place_k * x_k]) * REAL(
                                    y[y_start + place_k * y_k]
                                )
                            if left:
                                total = chain
                            else:
                                of_rest = chain
                slot = place * parts + part
                sums[slot] = total
                others[slot] = of_rest
                cuda.syncthreads()
                if mine and part == 0:
                    for i_part in range(1, parts):
                        total += sums[slot + i_part]
                        of_rest += others[slot + i_part]
                    at = c_start + line * c_x + other * c_y
                    value = (c[at] + total) + of_rest
                    c[at] = value
                    if marked_too == MIRRORED:
                        c[c_start + other * c_x + line * c_y] = value
                cuda.syncthreads()
        cuda.syncthreads()  # before the marks are another tile's

    return device(lines)


@device
def list_members(members, counts, marks, count, thread, threads):
    """The number of a tile's lines that are marked. Writes which they are, in order."""
    share = (count + threads - 1) // threads
    start, end = min(thread * share, count), min((thread + 1) * share, count)
    own = np.int32(0)
    for i in range(start, end):
        own += np.int32(marks[i] & LEAVES != 0)
    counts[thread] = own
    cuda.syncthreads()
    before = found = np.int32(0)
    for i in range(threads):
        if i < thread:
            before += np.int32(counts[i])
        found += np.int32(counts[i])
    for i in range(start, end):
        if marks[i] & LEAVES != 0:
            members[before] = i
            before += np.int32(1)
    cuda.syncthreads()
    return found
