"""The kernel for stacks of products with sides of up to 32: FP32, and as fast as memory.

Each element of C is one chain of fused multiply-adds along K, in order, from +0: what native
kernels make, so that NaN, Inf and subnormals come by themselves, and two runs give the same bits.

A block reads the operands of its products, all loads of a thread before the first is used, into
shared memory, and multiplies them from there. There is no loop over products: while one block
waits for memory, others of the multiprocessor compute, and the hardware has the next one begin.
"""

# The bodies of kernels are Numba's to type.
# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
# mypy: disable-error-code="attr-defined"

from typing import Any

import numpy as np
from numba import cuda
from numba.cuda import types

from mixpert_py.runtime.kernels.intrinsics import (
    device,
    fused,
    let_next_begin,
    load_four,
    read_four,
    store_four,
    wait_for_launch,
)
from mixpert_py.runtime.kernels.tiny_block import (
    FOUR,
    RESIDENT,
    Matrix,
    Memory,
    TinyBlock,
    block,
    lane_spot,
    spot_of,
)


def tiny_kernel(
    m: int, k: int, n: int, left: Memory, right: Memory, wide: bool
) -> tuple[Any, tuple[Any, ...]]:
    """The kernel, to be compiled, and the Numba types of its arguments.

    left, right: how the operands of A (m, k) and B (k, n) lie. wide: where n is a multiple of four,
    whether rows of C are aligned; else whether the stack of C is dense, and aligned.
    """
    it = block(m, k, n, left, right)
    PRODUCTS, FLOATS, B = it.products, it.floats, it.products * it.a.product
    A_HELD, B_HELD, SUMS = _held(it.a), _held(it.b), it.rows * it.columns
    DIRECT = n % FOUR == 0
    read_a, keep_a = _read(it.a, it), _keep(it.a, it)
    read_b, keep_b = _read(it.b, it), _keep(it.b, it)
    multiply = _multiply_thread(it, k)
    store, put, copy = _store(it, m, wide), _put(it, m, n), _copy(it, m, n, wide)
    spot = _spot(it)

    def kernel(
        a, b, c, batch, a_product, a_line, a_place, b_product, b_line, b_place,
        c_product, c_line, c_place,
    ):  # fmt: skip
        memory = cuda.shared.array(FLOATS, types.float32, alignment=16)
        a_held = cuda.local.array(A_HELD, types.float32)
        b_held = cuda.local.array(B_HELD, types.float32)
        sums = cuda.local.array(SUMS, types.float32)
        wait_for_launch()
        let_next_begin()
        thread = np.uint32(cuda.threadIdx.x)
        first = np.int64(cuda.blockIdx.x) * PRODUCTS
        count = np.uint32(min(batch - first, PRODUCTS))
        read_a(a_held, a, first * a_product, a_product, a_line, a_place, count, thread)
        read_b(b_held, b, first * b_product, b_product, b_line, b_place, count, thread)
        keep_a(a_held, memory, np.uint32(0), count, thread)
        keep_b(b_held, memory, np.uint32(B), count, thread)
        cuda.syncthreads()
        product, row, group = spot(thread)
        if product < count:
            multiply(sums, memory, product, row, group)
        start = first * c_product
        if DIRECT:
            if product < count:
                store(sums, c, start + np.int64(product) * c_product, c_line, c_place, row, group)
        else:
            cuda.syncthreads()
            if product < count:
                put(sums, memory, product, row, group)
            cuda.syncthreads()
            copy(memory, c, start, c_product, c_line, c_place, count, thread)

    # What is read element by element has an address for each.
    resident = RESIDENT if left.wide and right.wide else RESIDENT // 2
    kernel.launch_bounds = it.threads, resident // it.threads
    return kernel, (*[types.CPointer(types.float32)] * 3, *[types.int64] * 10)


def _held(x: Matrix) -> int:
    """Elements of an operand that a thread reads."""
    return FOUR * x.loads if x.memory.wide else x.singles


def _spot(it: TinyBlock) -> Any:
    """The device function for a thread's product, first row, and group of columns."""
    DOWN, ALONG, LANES = it.down, it.along, np.uint32(it.down * it.along)
    lane_spot_of = device(lane_spot)

    def spot(thread):
        row, group = lane_spot_of(np.uint32(thread % LANES), DOWN, ALONG)
        return np.uint32(thread // LANES), np.uint32(row), np.uint32(group)

    return device(spot)


def _read(x: Matrix, it: TinyBlock) -> Any:
    """The device function that reads a thread's elements of an operand.

    Past the last element, of the block or of the stack, it reads one again: so no load waits for a
    condition.
    """
    THREADS, LOADS, SINGLES, PRODUCTS = it.threads, x.loads, x.singles, it.products
    SIZE = x.lines * x.length
    ALL = np.uint32(it.products * SIZE)
    WIDE, DENSE, ALONG = x.memory.wide, x.dense, x.memory.order == "along"
    spot = device(spot_of(x.lines, x.length, x.memory.order, it.products))

    def read(values, x, start, between, line, place, count, thread):
        if WIDE and (not DENSE or count == PRODUCTS):
            for load in range(LOADS):
                first = min(np.uint32(FOUR * (thread + load * THREADS)), np.uint32(ALL - FOUR))
                if DENSE:
                    at = start + first
                else:
                    product, i, j = spot(first)
                    product = min(np.uint32(product), np.uint32(count - 1))
                    at = start + np.int64(product) * between
                    if ALONG:
                        at += np.int64(i) * line + np.int64(j)
                    else:
                        at += np.int64(j) * place + np.int64(i)
                read_four(values, FOUR * load, x, at)
        else:
            for single in range(SINGLES):
                at = np.uint32(thread + single * THREADS)
                if DENSE:
                    values[single] = x[start + min(at, np.uint32(count * SIZE - 1))]
                else:
                    product, i, j = spot(min(at, np.uint32(ALL - 1)))
                    product = min(np.uint32(product), np.uint32(count - 1))
                    inside = np.int64(i) * line + np.int64(j) * place
                    values[single] = x[start + np.int64(product) * between + inside]

    return device(read)


def _keep(x: Matrix, it: TinyBlock) -> Any:
    """The device function that writes what `_read` has read to shared memory, from `base` on."""
    THREADS, LOADS, SINGLES, PRODUCTS = it.threads, x.loads, x.singles, it.products
    ALL = np.uint32(it.products * x.lines * x.length)
    WIDE, DENSE, ALONG = x.memory.wide, x.dense, x.memory.order == "along"
    LINE, PRODUCT = x.line, x.product
    spot = device(spot_of(x.lines, x.length, x.memory.order, it.products))

    def keep(values, memory, base, count, thread):
        if WIDE and (not DENSE or count == PRODUCTS):
            for load in range(LOADS):
                to = min(np.uint32(FOUR * (thread + load * THREADS)), np.uint32(ALL - FOUR))
                if not DENSE:
                    product, i, j = spot(to)
                    to = np.uint32(product * PRODUCT + i * LINE + j)
                to = np.uint32(base + to)
                p, q = values[FOUR * load], values[FOUR * load + 1]
                r, s = values[FOUR * load + 2], values[FOUR * load + 3]
                if DENSE or ALONG:
                    store_four(memory, to, p, q, r, s)
                else:
                    memory[to] = p
                    memory[np.uint32(to + LINE)] = q
                    memory[np.uint32(to + 2 * LINE)] = r
                    memory[np.uint32(to + 3 * LINE)] = s
        else:
            for single in range(SINGLES):
                to = min(np.uint32(thread + single * THREADS), np.uint32(ALL - 1))
                if not DENSE:
                    product, i, j = spot(to)
                    to = np.uint32(product * PRODUCT + i * LINE + j)
                memory[np.uint32(base + to)] = values[single]

    return device(keep)


def _multiply_thread(it: TinyBlock, k: int) -> Any:
    """The device function for a thread's elements of C, from operands in shared memory."""
    ROWS, COLUMNS, K = it.rows, it.columns, k
    A_LINE, A_PLACE, A_PRODUCT = it.a.line, it.a.place, it.a.product
    B_LINE, B_PLACE, B_PRODUCT = it.b.line, it.b.place, it.b.product
    B = it.products * it.a.product
    FOURS = k // FOUR * FOUR
    four, rest = _chain(it, FOUR), _chain(it, k % FOUR)

    def multiply(sums, memory, product, row, group):
        a = np.uint32(product * A_PRODUCT + row * A_LINE)
        b = np.uint32(B + product * B_PRODUCT + group * (COLUMNS * B_PLACE))
        for i in range(ROWS * COLUMNS):
            sums[i] = np.float32(0)
        for at in range(0, FOURS, FOUR):
            four(sums, memory, np.uint32(a + at * A_PLACE), np.uint32(b + at * B_LINE))
        if K > FOURS:
            rest(sums, memory, np.uint32(a + FOURS * A_PLACE), np.uint32(b + FOURS * B_LINE))

    return device(multiply)


def _chain(it: TinyBlock, count: int) -> Any:
    """The device function that goes on by `count` positions of K, four at most."""
    ROWS, COLUMNS, COUNT, HELD = it.rows, it.columns, count, FOUR * it.rows
    NEXT_ROW, A_PLACE, A_UNIT = it.down * it.a.line, it.a.place, it.a.unit
    B_LINE, B_PLACE, B_UNIT = it.b.line, it.b.place, it.b.unit

    def chain(sums, memory, a, b):
        rows = cuda.local.array(HELD, types.float32)
        columns = cuda.local.array(FOUR, types.float32)
        for i in range(ROWS):
            if A_UNIT == FOUR:
                read_four(rows, FOUR * i, memory, np.uint32(a + i * NEXT_ROW))
            else:
                for at in range(COUNT):
                    rows[FOUR * i + at] = memory[np.uint32(a + i * NEXT_ROW + at * A_PLACE)]
        for at in range(COUNT):
            if B_UNIT == FOUR:
                read_four(columns, 0, memory, np.uint32(b + at * B_LINE))
            else:
                for j in range(COLUMNS):
                    columns[j] = memory[np.uint32(b + at * B_LINE + j * B_PLACE)]
            for i in range(ROWS):
                for j in range(COLUMNS):
                    place = COLUMNS * i + j
                    sums[place] = fused(rows[FOUR * i + at], columns[j], sums[place])

    return device(chain)


def _store(it: TinyBlock, m: int, wide: bool) -> Any:
    """The device function that writes a thread's elements, of lines of whole fours."""
    M, ROWS, DOWN, WIDE = m, it.rows, it.down, wide

    def store(sums, c, start, line, place, row, group):
        for i in range(ROWS):
            to = np.uint32(row + i * DOWN)
            if to < M:
                at = start + np.int64(to) * line
                if WIDE:
                    store_four(
                        c, at + FOUR * group, sums[FOUR * i], sums[FOUR * i + 1],
                        sums[FOUR * i + 2], sums[FOUR * i + 3],
                    )  # fmt: skip
                else:
                    for j in range(FOUR):
                        c[at + (np.int64(FOUR * group) + j) * place] = sums[FOUR * i + j]

    return device(store)


def _put(it: TinyBlock, m: int, n: int) -> Any:
    """The device function that writes a thread's elements to shared memory, dense."""
    M, N, ROWS, COLUMNS, DOWN = m, n, it.rows, it.columns, it.down

    def put(sums, memory, product, row, group):
        for i in range(ROWS):
            for j in range(COLUMNS):
                to, at = np.uint32(row + i * DOWN), np.uint32(COLUMNS * group + j)
                if to < M and at < N:
                    memory[np.uint32((product * M + to) * N + at)] = sums[COLUMNS * i + j]

    return device(put)


def _copy(it: TinyBlock, m: int, n: int, wide: bool) -> Any:
    """The device function that writes a block's elements of C from there."""
    M, N, THREADS, PRODUCTS, WIDE = m, n, it.threads, it.products, wide
    ALL = it.products * m * n

    def copy(memory, c, start, between, line, place, count, thread):
        if WIDE and count == PRODUCTS:
            for at in range(FOUR * thread, ALL, FOUR * THREADS):
                p, q, r, s = load_four(memory, np.uint32(at))
                store_four(c, start + at, p, q, r, s)
        else:
            for at in range(thread, count * (M * N), THREADS):
                product, row, column = at // (M * N), at % (M * N) // N, at % N
                to = start + np.int64(product) * between
                c[to + np.int64(row) * line + np.int64(column) * place] = memory[np.uint32(at)]

    return device(copy)
