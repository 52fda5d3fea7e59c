"""Memory for operands that are cast, and for products before they are cast back, used call by call.

The C library returns large freed blocks to the system, which then maps and clears every page again
at the next call: that can cost as much as the product itself. What a caller of a product receives
never lies in such memory.
"""

import math
from types import TracebackType
from typing import Any

import numpy as np

from mixpert_py.runtime.arrays import Array

# Bytes of all blocks that no call uses now. Products that need larger ones take so long that new
# pages do not matter.
MOST_BYTES = 1 << 26
LEAST_BYTES = 1 << 15  # of an array: smaller ones are as quick from the C library

# By their ids, the latest used last. Every step is one operation of a dict, so that neither other
# threads nor a signal's handler find a block that is in use.
_free: dict[int, Array] = {}


class Scratch:
    """The arrays of one product; their memory serves other products once the block is left."""

    __slots__ = ("_taken",)

    def __init__(self) -> None:
        self._taken: list[Array] = []

    def __enter__(self) -> "Scratch":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for block in self._taken:
            _free[id(block)] = block
        if self._taken:
            _drop_the_oldest()

    def empty(self, shape: tuple[int, ...], dtype: "np.dtype[Any]") -> Array:
        """An array in C order whose entries may be anything."""
        found = np.empty(0, dtype)
        size = math.prod(shape) * found.itemsize
        if size < LEAST_BYTES:
            return np.empty(shape, dtype)
        block = _taken_block(size)
        self._taken.append(block)
        return block[:size].view(dtype).reshape(shape)

    def cast(self, x: Array, dtype: "np.dtype[Any]") -> Array:
        """x.astype(dtype), with the axes in the same order in memory."""
        axes = sorted(range(x.ndim), key=lambda axis: -abs(x.strides[axis]))
        made = self.empty(tuple(x.shape[axis] for axis in axes), dtype)
        made = made.transpose(sorted(range(x.ndim), key=axes.__getitem__))
        np.copyto(made, x, casting="same_kind")
        return made


def _taken_block(size: int) -> Array:
    """A free block of at most twice the size, the latest used first; else a new one."""
    for key, block in reversed(list(_free.items())):
        if size <= block.nbytes <= 2 * size and _free.pop(key, None) is not None:
            return block
    return np.empty(size, np.uint8)


def _drop_the_oldest() -> None:
    """Drop the oldest free memory beyond MOST_BYTES."""
    total = 0
    for key, block in reversed(list(_free.items())):
        total += block.nbytes
        if total > MOST_BYTES and _free.pop(key, None) is not None:
            total -= block.nbytes
