"""Splitting operands on the device where K is contiguous and one block."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from mixpert_py.errors import ShapeError
from mixpert_py.runtime.emulation.outliers import OutlierRule
from mixpert_py.runtime.kernels.compile import numba_kernel
from mixpert_py.runtime.kernels.ptx import Order
from mixpert_py.runtime.packing.layout import ITEM, Layout, layout
from mixpert_py.runtime.packing.operand import VECTOR, Form
from mixpert_py.runtime.packing.side import Side, side
from mixpert_py.runtime.packing.whole_rows import WholeRows, whole_rows
from mixpert_py.runtime.splitter import FloatSlices, Splitter

KERNELS = "mixpert_py.runtime.packing.row_kernels"
MOST_FLOATS = 3  # slices that a thread has registers for
LONGEST = 1 << 26  # of K, so that sums of squares of digits fit 32 bits


class Tuning(NamedTuple):
    """Sizes of launches that change no bit.

    threads: of a block, more up to `most_threads` for long rows; items: of eight elements that a
    thread holds, 0 for as many as there are registers for.
    """

    threads: int = 256
    most_threads: int = 512
    items: int = 0


DEFAULT = Tuning()


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """A launch, but for addresses. words: the integers that follow each operand's addresses, and
    those of the launch.
    """

    sides: tuple[Side, Side]
    layouts: tuple[Layout, ...]
    constants: tuple[Any, ...]
    words: tuple[tuple[int, ...], ...]
    lengths: tuple[int, ...]
    grid: int
    threads: int


def prepared_rows(
    splitters: tuple[Splitter, ...],
    forms: tuple[Form, ...],
    result: str,
    rule: OutlierRule,
    tuning: Tuning = DEFAULT,
    order: Order = "after",
    has_gate: bool = False,
) -> WholeRows:
    """For operands of these forms, contiguous along K, on the current device; what `suits`.

    result: the type of the product. order: see `ptx.ordered`; has_gate: `ptx.gated`. Raises
    ShapeError where an operand is empty, DeviceError where the kernel does not compile.
    """
    how = packing(splitters, forms, result, rule, tuning)
    return whole_rows(
        numba_kernel(KERNELS, "row_kernel", how.constants, order=order, has_gate=has_gate),
        *(splitters, how.layouts, how.words, how.lengths),
        grid=how.grid,
        threads=how.threads,
        shared=0,
    )


def suits(
    splitters: tuple[Splitter, ...], k: int, block: int, measure: bool, rule: OutlierRule
) -> bool:
    """Whether rows of k, of which every `block` share a unit, can be split by whole rows."""
    return (
        not measure
        and 0 < k <= min(block, LONGEST)
        and all(_is_plain(splitter, rule) for splitter in splitters)
    )


def _is_plain(splitter: Splitter, rule: OutlierRule) -> bool:
    if isinstance(splitter, FloatSlices):
        return splitter.count <= MOST_FLOATS
    return (
        rule in ("loss", "none")
        and splitter.width == 8
        and splitter.group == 1
        and splitter.count <= 4
        and splitter.digits == splitter.count
    )


def packing(
    splitters: tuple[Splitter, ...],
    forms: tuple[Form, ...],
    result: str,
    rule: OutlierRule,
    tuning: Tuning = DEFAULT,
) -> Packing:
    """For one operand or two. Raises ShapeError where an operand is empty."""
    layouts, sides = places(splitters, forms, result, rule)
    k = forms[0].k
    threads, items, again = shares(k, max(x.itemsize for x in forms), tuning)
    of_row = share(k, threads, items)
    strips = [-(-x.rows // (threads // of_row)) for x in forms]
    grids = [x.batch * count for x, count in zip(forms, strips, strict=True)]
    words = tuple(
        (x.rows, x.batch_stride, x.row_stride, int(has_vectors(x, x.row_stride)), count)
        for x, count in zip(forms, strips, strict=True)
    )
    return Packing(
        (sides[0], sides[-1]),
        layouts,
        (sides[0], sides[-1], threads, items, again, of_row == threads),
        words,
        (grids[0], of_row.bit_length() - 1, k, layouts[0].steps),
        sum(grids),
        threads,
    )


def places(
    splitters: tuple[Splitter, ...], forms: tuple[Form, ...], result: str, rule: OutlierRule
) -> tuple[tuple[Layout, ...], tuple[Side, ...]]:
    """Of operands, K as one block. Raises ShapeError where one is empty."""
    for x in forms:
        if x.batch == 0 or x.rows == 0 or x.k == 0:
            raise ShapeError(f"nothing to pack in {x.batch} × {x.rows} rows of {x.k}")
    pairs = list(zip(splitters, forms, strict=True))
    layouts = tuple([layout(splitter, x.batch, x.rows, x.k, x.k, False) for splitter, x in pairs])
    return layouts, tuple([side(splitter, x.memory, result, rule, False) for splitter, x in pairs])


def has_vectors(x: Form, stride: int) -> bool:
    """Whether lines `stride` apart begin at multiples of 16 bytes."""
    return x.aligned and (stride | x.batch_stride) * x.itemsize % VECTOR == 0


def shares(k: int, itemsize: int, tuning: Tuning = DEFAULT) -> tuple[int, int, bool]:
    """Threads of a block, items of each, and whether rows of k are too long to be held by them.

    A thread holds 32 registers' worth: with more, too few would be resident to hide what memory
    takes to answer; with less, they do too little for what they cost.
    """
    items = tuning.items or 16 // itemsize
    threads = tuning.threads
    while threads < tuning.most_threads and threads * items * ITEM < k:
        threads *= 2
    return threads, items, threads * items * ITEM < k


def share(k: int, threads: int, items: int) -> int:
    """Threads of a row, of those of a block."""
    return min(threads, max(ITEM, 1 << (-(-k // (items * ITEM)) - 1).bit_length()))
