"""The division of products of matrices with sides up to 32 among the threads of a block.

A block's operands go through shared memory. A thread makes up to 4 × 4 elements of one product, its
rows apart from one another, so that threads side by side store whole lines of C.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import product as pairs
from typing import Any, Literal, NamedTuple

import numpy as np

EDGE = 32  # the longest side
FOUR = 4  # float32 of a wide load; the most rows, and columns, of C that a thread has
WARP = 32
BANKS = 32  # of shared memory, a float32 each
THREADS = 128  # of a block, but where FEWEST products need more
FEWEST = 4  # products: blocks have multiples of it, so that each one's are aligned in a dense stack
LOADS = 8  # wide ones of a thread, for which it waits together
# Threads of a multiprocessor: with 128 bytes each on their way, memory that takes 1 µs to answer
# has enough to do with a quarter of them.
RESIDENT = 1024
PADS = 8  # so many ways to pad are tried

Spot = Callable[[Any], tuple[Any, Any, Any]]


class Memory(NamedTuple):
    """The direction of neighbours in memory: along a matrix's lines, across them, or along the
    stack.

    wide: whether four elements are read at once.
    """

    order: Literal["along", "across", "stack"]
    wide: bool


class Matrix(NamedTuple):
    """An operand of a block's products: rows of A or of B, `lines` of `length` elements.

    line, place, product: floats of shared memory from one line, element of a line, and matrix, to
    the next. unit: floats that are read from there at a time, 4 along a line, or 1. loads: of a
    thread, wide ones; singles: where they are of one element.
    """

    lines: int
    length: int
    memory: Memory
    line: int
    place: int
    product: int
    unit: int
    loads: int
    singles: int

    @property
    def dense(self) -> bool:
        """Whether it is read four by four without regard to lines, which then is how it lies in
        shared memory, too.
        """
        run = self.lines if self.memory.order == "across" else self.length
        return self.memory.wide and run % FOUR > 0


class TinyBlock(NamedTuple):
    """rows, columns: of C that a thread makes. down, along: threads that share a product's rows,
    and its columns. floats: of shared memory.
    """

    products: int
    threads: int
    rows: int
    columns: int
    down: int
    along: int
    a: Matrix
    b: Matrix
    floats: int


@lru_cache(1024)
def block(m: int, k: int, n: int, left: Memory, right: Memory) -> TinyBlock:
    """The block for products of A (m, k) and B (k, n), no side longer than EDGE."""
    rows, columns = min(m, FOUR), min(n, FOUR)
    down, along = -(-m // rows), -(-n // columns)
    lanes, quads = down * along, -(-(m * k + k * n) // FOUR)
    most = min(THREADS // lanes, LOADS * THREADS // quads)
    products = max(most // FEWEST * FEWEST, FEWEST)
    busy = max(products * lanes, products * quads // LOADS, THREADS)
    threads = -(-busy // WARP) * WARP
    places = [divmod(thread, lanes) for thread in range(WARP)]
    spots = [(product, *lane_spot(lane, down, along)) for product, lane in places]

    def reads_a(line: int, product: int) -> int:
        return rows * -(-k // FOUR) * turns([p * product + r * line for p, r, _ in spots], FOUR)

    def reads_b(_: int, product: int) -> int:
        words = [p * product + columns * c for p, _, c in spots]
        return k * (turns(words, FOUR) if columns == FOUR else columns * turns(words, 1))

    shared_by = products, threads
    a = _matrix((m, k), left, shared_by, rows * down, FOUR, reads_a)
    b = _matrix((k, n), right, shared_by, k, FOUR if columns == FOUR else 1, reads_b)
    # Rows and columns that C has not are read, too.
    past_a = (rows * down - m) * a.line
    past_b = (columns * along - n) * b.place
    floats = products * (a.product + b.product) + past_a + past_b
    if n % FOUR:  # C comes by there, too
        floats = max(floats, products * m * n)
    return TinyBlock(products, threads, rows, columns, down, along, a, b, floats)


def lane_spot(lane: Any, down: int, along: int) -> tuple[Any, Any]:
    """First row, and group of columns, of a product's thread.

    Where that can be, every four make a square: shared memory serves threads together of which
    neighbours, or next but one, ask for the same.
    """
    if down % 2 == 0 and along % 2 == 0:
        square, corner = lane // 4, lane % 4
        return square // (along // 2) * 2 + corner % 2, square % (along // 2) * 2 + corner // 2
    return lane // along, lane % along


def spot_of(lines: int, length: int, order: str, products: int) -> Spot:
    """Product, line and place of elements, numbered as they lie in memory."""
    # Of 32 bits each, for no GPU divides by 64.
    size, high, wide, many = map(np.uint32, (lines * length, lines, length, products))
    if order == "along":
        return lambda at: (at // size, at % size // wide, at % wide)
    if order == "across":
        return lambda at: (at // size, at % high, at % size // high)
    return lambda at: (at % many, at // many // wide, at // many % wide)


def turns(words: Sequence[int], width: int) -> int:
    """The number of turns in which shared memory serves a warp.

    Each thread asks for `width` words, 1 or 4, starting at one of these; with four words each, a
    quarter of the threads is served at a time.
    """
    together = WARP // width
    found = 0
    for start in range(0, len(words), together):
        asked: dict[int, set[int]] = {}
        for word in words[start : start + together]:
            asked.setdefault(word % BANKS // width, set()).add(word)
        found += max(map(len, asked.values()))
    return found


def _matrix(
    sides: tuple[int, int],
    memory: Memory,
    shared_by: tuple[int, int],
    held_lines: int,
    unit: int,
    reads: Callable[[int, int], int],
) -> Matrix:
    """An operand, padded so that threads seldom wait for one another.

    shared_by: the numbers of products and threads. held_lines: lines that there is room for. unit:
    floats to be read at a time. reads: turns that reading takes, of line and product.
    """
    (lines, length), (products, threads) = sides, shared_by
    size = lines * length
    loads, singles = (-(-products * size // (each * threads)) for each in (FOUR, 1))
    it = Matrix(lines, length, memory, length, 1, size, 1, loads, singles)
    if it.dense:
        return it if memory.order == "along" else it._replace(line=1, place=lines)
    spot = spot_of(lines, length, memory.order, products)
    spots = [[int(i) for i in spot(np.uint32(at))] for at in range(FOUR * WARP)]
    found: list[tuple[int, int, int]] = []
    for wider, apart in pairs(range(2), range(PADS)):
        line = (-(-length // unit) + wider) * unit
        product = held_lines * line + apart * unit
        words = [p * product + i * line + j for p, i, j in spots]
        found.append((reads(line, product) + _writes(it, words), product, line))
    _, product, line = min(found)
    return it._replace(line=line, product=product, unit=unit)


def _writes(it: Matrix, words: Sequence[int]) -> int:
    """Turns that a warp's writing of what it has read takes. words: where its elements go."""
    if not it.memory.wide:
        return it.singles * turns(words[:WARP], 1)
    if it.memory.order == "along":
        return it.loads * turns(words[::FOUR], FOUR)
    return it.loads * sum(turns(words[i::FOUR], 1) for i in range(FOUR))
