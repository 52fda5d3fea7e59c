"""Pairs the matrices of two stacks without copying either."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

from mixpert_py.runtime.arrays import GpuArray
from mixpert_py.runtime.request import result_shape

Extents = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """Products of one launch: `count` matrices of C, starting at the one at `c`.

    They use A's matrices from `a` on, or all use the one at `a` if A is shared; likewise B's.
    """

    c: int
    a: int
    b: int
    count: int
    shares_a: bool
    shares_b: bool


def matrices(x: GpuArray) -> Any:
    """x (…, rows, columns) as (count, rows, columns), or x itself if it is one matrix.

    Axes with stride 0, along which the stack repeats itself, are dropped. The result is a view if
    strides allow it; a copy keeps the order, by rows or by columns, in which matrices are stored.
    """
    if x.ndim == 2:
        return x
    once = tuple(
        slice(0, 1) if stride == 0 and size > 1 else slice(None)
        for size, stride in zip(x.shape[:-2], x.strides[:-2], strict=True)
    )
    stack: Any = x[once]
    if not is_one_stack(stack) and is_by_columns(stack):
        stack = stack.swapaxes(-2, -1).copy(order="C").swapaxes(-2, -1)
    return stack.reshape(math.prod(stack.shape[:-2]), *stack.shape[-2:])


def is_one_stack(x: GpuArray) -> bool:
    """Whether `matrices` of x is a view: the axes of its stack, except repeated ones, step
    through memory as one.
    """
    step = None
    for size, stride in zip(reversed(x.shape[:-2]), reversed(x.strides[:-2]), strict=True):
        if size == 1 or stride == 0:
            continue
        if step not in (None, stride):
            return False
        step = size * stride
    return True


def is_by_columns(x: GpuArray) -> bool:
    """Whether x is stored by columns: its next row is nearer in memory than its next column."""
    return bool(abs(x.strides[-2]) < abs(x.strides[-1]))


def as_matrices(out: GpuArray, a: GpuArray, b: GpuArray) -> Any:
    """A view of `out` with the axis that np.matmul removes for one-dimensional operands."""
    if a.ndim == 1:
        out = out[..., np.newaxis, :] if b.ndim > 1 else out[..., np.newaxis]
    return out[..., np.newaxis] if b.ndim == 1 else out


def as_matmul(value: GpuArray, a: GpuArray, b: GpuArray) -> Any:
    """A product of matrices without the axes that np.matmul removes."""
    return value.reshape(result_shape(a, b)) if a.ndim == 1 or b.ndim == 1 else value


def stack_sizes(x: GpuArray) -> Extents:
    """The sizes of x's stack axes, 1 for axes along which it repeats itself."""
    return tuple(
        1 if stride == 0 else size
        for size, stride in zip(x.shape[:-2], x.strides[:-2], strict=True)
    )


def launches(
    a: GpuArray, b: GpuArray, c: GpuArray, batch: tuple[Batch, ...]
) -> Iterator[tuple[Any, Any, Any]]:
    """The operands of each launch, and the matrices of C that it makes, as views.

    a, b: one matrix, or (count, rows, columns); an operand of one matrix is shared by all.
    """
    for it in batch:
        yield (
            _some(a, it.a, 1 if it.shares_a else it.count),
            _some(b, it.b, 1 if it.shares_b else it.count),
            c[it.c : it.c + it.count],
        )


def _some(x: GpuArray, start: int, count: int) -> Any:
    return x if x.ndim == 2 or len(x) == 1 else x[start : start + count]


@lru_cache(maxsize=1024)
def batches(a: Extents, b: Extents, c: Extents) -> tuple[Batch, ...]:
    """The launches that multiply stacks of these axes into one of c's, all matrices in C order.

    a, b: axes of the operands' stacks, 1 where an operand is shared along one. Runs of axes in
    which the same operands are shared are one axis; the last such run is one launch.
    """
    runs: list[tuple[str, int]] = []
    for size_a, size_b, size in zip(_padded(a, c), _padded(b, c), c, strict=True):
        if size == 1:
            continue
        # An axis along which both repeat themselves can only be walked.
        kind = ("both", "a", "b", "none")[2 * (size_a == 1) + (size_b == 1)]
        if runs and runs[-1][0] == kind:
            runs[-1] = kind, runs[-1][1] * size
        else:
            runs.append((kind, size))
    *outer, (last, count) = runs or [("both", 1)]
    shares = [last not in (name, "both") for name in ("a", "b")]
    found = []
    for index in product(*(range(size) for _, size in outer)):
        place = {"a": 0, "b": 0}
        at_c = 0
        for (kind, size), i in zip(outer, index, strict=True):
            at_c = at_c * size + i
            for name in place:
                if kind in (name, "both"):
                    place[name] = place[name] * size + i
        for name in place:
            if last in (name, "both"):
                place[name] *= count
        found.append(Batch(at_c * count, place["a"], place["b"], count, *shares))
    assert sum(batch.count for batch in found) == math.prod(c)
    return tuple(found)


def _padded(sizes: Extents, like: Extents) -> Extents:
    return (1,) * (len(like) - len(sizes)) + sizes
