"""The launch where K is contiguous and one block."""

from typing import NamedTuple

from mixpert_py.runtime.emulation.outliers import OutlierRule
from mixpert_py.runtime.packing.launch import Plan, has_vectors, places
from mixpert_py.runtime.packing.layout import ITEM
from mixpert_py.runtime.packing.operand import Form
from mixpert_py.runtime.splitter import FloatSlices, Splitter

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


def plan(
    splitters: tuple[Splitter, ...],
    forms: tuple[Form, ...],
    result: str,
    rule: OutlierRule,
    tuning: Tuning = DEFAULT,
) -> Plan:
    """For one operand or two that are contiguous along K, and that `suits`.

    result: the type of the product. Raises ShapeError where an operand is empty.
    """
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
    return Plan(
        ("row_kernels", "row_kernel"),
        (sides[0], sides[-1], threads, items, again, of_row == threads),
        *(splitters, layouts, words),
        (grids[0], of_row.bit_length() - 1, k, layouts[0].steps),
        sum(grids),
        threads,
    )


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
