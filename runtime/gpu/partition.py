"""Divides a product on a GPU that does not fit in memory."""

from collections.abc import Iterator
from typing import Any

from mixpert_py.runtime.arrays import GpuArray
from mixpert_py.runtime.gpu.stacks import Batch, batches

PANEL = 128  # rows or columns: one matrix is divided at multiples of it
ONE = batches((), (), ())  # one launch, operands as they are


def parts_of(
    a: GpuArray, b: GpuArray, c: GpuArray, batch: tuple[Batch, ...]
) -> Iterator[tuple[Any, Any, Any, tuple[Batch, ...]]]:
    """A·B into c, (m, n) or (count, m, n), as smaller products: (a, b, c, batch) of each.

    All are views. The list is empty if the product is already small.
    """
    if len(batch) > 1:
        for some in batch:
            rows = _some(a, some.a, some.count, some.shares_a)
            columns = _some(b, some.b, some.count, some.shares_b)
            yield rows, columns, c[some.c : some.c + some.count], ONE
        return
    count, m, n = c.shape if c.ndim == 3 else (1, *c.shape)
    if count > 1:
        for part in two(count, 1):
            yield _matrices(a, part), _matrices(b, part), c[part], ONE
    elif max(m, n) > PANEL:
        for part in two(max(m, n), PANEL):
            if m >= n:
                yield a[..., part, :], b, c[..., part, :], ONE
            else:
                yield a, b[..., part], c[..., part], ONE


def two(length: int, multiple: int) -> tuple[slice, slice]:
    """The two halves of a length, the first a multiple of the unit."""
    middle = -(-length // 2 // multiple) * multiple
    return slice(0, middle), slice(middle, length)


def _matrices(x: GpuArray, part: slice) -> Any:
    """Some matrices of a stack, or the whole of a shared one."""
    return x if x.ndim == 2 or len(x) == 1 else x[part]


def _some(x: GpuArray, start: int, count: int, shared: bool) -> Any:
    return x if x.ndim == 2 else x[start : start + (1 if shared else count)]
