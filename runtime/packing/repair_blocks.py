"""Many lines that left the slices: as many at once as fit, times columns of a tile.

A thread has 4 × 4 elements of C, or 4 × 2 in float64, and their factors come from shared memory.
While a step of K is multiplied, the next one is on its way to registers; from there it goes to the
half of shared memory that the step before has left.
"""

# The bodies of kernels are Numba's to type.
# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
# mypy: disable-error-code="attr-defined"

from typing import Any, NamedTuple

import numpy as np
from numba import cuda

from mixpert_py.runtime.kernels.abi import LEAVES, NONFINITE, OUTLIER
from mixpert_py.runtime.packing.intrinsics import device, fused

ACROSS = 16  # threads beside each other
EACH = 4  # lines of a thread
CHAIN = 512  # of K, in a sum: then it is added to C, and rounding grows less


class Blocks(NamedTuple):
    """How flagged lines are taken: so many at once, times so many columns, by a device function
    that needs so many elements of shared memory for either operand.
    """

    lines: int
    columns: int
    x_elements: int
    y_elements: int
    add: Any


def blocks_of(result: str, threads: int) -> Blocks:
    """The function adds alpha · x·y to C, where a line is flagged, or the one that it meets: for
    lines from `start` on, of `found` that `members` tells, and columns from `columns` to `last`.
    along: whether an operand's K is its nearest direction, as threads lie then. threads: of a
    block, a multiple of 64.
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
    multiply = _multiply(REAL, BESIDE, STEP, DOWN, X_ROW, Y_ROW)

    def add_block(
        xs, ys, x_at, y_at, start, found, members, marks, first, columns, last, batch,
        x, y, c, y_flags, x_outliers, y_outliers, x_lines, y_lines, k, block, blocks, alpha,
        x_batch, x_line, x_k, x_marks, y_batch, y_line, y_k, y_marks,
        c_start, c_x, c_y, x_along, y_along, unmarked,
    ):  # fmt: skip
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
            # Outliers are kept, as flags are, of one product or of each.
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
                        if place < found and not (unmarked and theirs & LEAVES != 0):
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
                            c[at] = c[at] + REAL(alpha) * sums[BESIDE * i + j]
        cuda.syncthreads()  # before shared memory is another block's

    return Blocks(X_SIDE, Y_SIDE, 2 * STEP * X_ROW, 2 * STEP * Y_ROW, device(add_block))


def _spot(side: int, step: int, threads: int) -> Any:
    """The device function for the line, of so many, and the place of a thread's load number i."""
    SIDE, STEP, LINES_A_LOAD, PLACES_A_LOAD = side, step, threads // step, threads // side

    def spot(thread, i, along):
        if along:
            return np.int32(thread // STEP + i * LINES_A_LOAD), np.int32(thread % STEP)
        return np.int32(thread % SIDE), np.int32(thread // SIDE + i * PLACES_A_LOAD)

    return device(spot)


def _read(real: Any, loads: int, spot: Any) -> Any:
    """The device function that reads a step of an operand from K = `begin` on: past `length`, 0."""
    REAL, LOADS = real, loads

    def read(held, x, at, begin, x_k, length, thread, along):
        for i in range(LOADS):
            line, place = spot(thread, i, along)
            held[i] = (
                REAL(x[at[line] + np.int64(begin + place) * x_k]) if place < length else REAL(0)
            )

    return device(read)


def _keep(loads: int, step: int, row: int, spot: Any) -> Any:
    """The device function that writes to a half of shared memory what was read."""
    LOADS, STEP, ROW = loads, step, row

    def keep(held, memory, half, thread, along):
        for i in range(LOADS):
            line, place = spot(thread, i, along)
            memory[np.uint32((half * STEP + place) * ROW + line)] = held[i]

    return device(keep)


def _multiply(real: Any, beside: int, step: int, apart: int, x_row: int, y_row: int) -> Any:
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
