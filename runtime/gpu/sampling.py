"""Errors of products on a GPU: of some entries, for the guard of a plan, without waiting for the
device; or of the whole product, which waits.
"""

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, TypeVar

import numpy as np

from mixpert_py.runtime.arrays import GpuArray
from mixpert_py.runtime.gpu import foreign
from mixpert_py.runtime.product_error import (
    entries,
    error_of,
    error_of_projections,
    projections,
)
from mixpert_py.runtime.reasons import Reason

T = TypeVar("T")


class DeviceSample:
    """Some entries of a product of CuPy arrays, which are being copied to pinned host memory."""

    def __init__(self, a: GpuArray, b: GpuArray, product: GpuArray, turn: int) -> None:
        import cupy

        exact, found = entries(a, b, product, turn)
        self._exact, self._found = (self._fetch(cupy, x) for x in (exact, found))
        self._event = cupy.cuda.Event(disable_timing=True)
        self._event.record()

    @staticmethod
    def _fetch(cupy: Any, x: GpuArray) -> Any:
        """A host array that holds x once the current stream has reached this point."""
        pinned = cupy.cuda.alloc_pinned_memory(x.nbytes)
        out = np.frombuffer(pinned, x.dtype, x.size).reshape(x.shape)
        cupy.ascontiguousarray(x).get(out=out, blocking=False)
        return out

    def error(self, *, waits: bool) -> float | None:
        """The error of these entries; None if they have not arrived and `waits` is False."""
        if waits:
            self._event.synchronize()
        elif not self._event.done:
            return None
        with np.errstate(all="ignore"):
            return error_of(self._exact, self._found)


def sample(a: Any, b: Any, product: Any, turn: int) -> DeviceSample | None:
    """Enqueue the check of a product of arrays on one GPU, on the stream that made it.

    a, b, product: arrays of one library. turn: the seed of the choice of entries. Returns None
    while a CUDA graph is being captured, whose launches have no results yet, or if memory is full.
    """
    return _beside(a, b, product, lambda x, y, z: DeviceSample(x, y, z, turn), full=None)


def whole_error(a: Any, b: Any, product: Any, turn: int) -> float | None:
    """An estimate of ‖C − Ĉ‖F / ‖C‖F of a product of arrays on one GPU; waits for the device.

    a, b, product: arrays of one library. turn: the seed of the random vectors. NaN if entries are
    not finite, or memory is full; None while a CUDA graph is being captured.
    """
    return _beside(a, b, product, lambda x, y, z: _whole_error(x, y, z, turn), full=math.nan)


def _whole_error(a: GpuArray, b: GpuArray, product: GpuArray, turn: int) -> float:
    import cupy

    exact, found = (x.get() for x in projections(cupy, a, b, product, turn))
    with np.errstate(all="ignore"):
        return error_of_projections(exact, found)


def _beside(
    a: Any, b: Any, product: Any, work: Callable[[Any, Any, Any], T], *, full: T | None
) -> T | None:
    """The result of `work` for the arrays as CuPy arrays, on the stream that made the product.

    None if that stream is being captured, or the arrays are not on one GPU; `full` if memory is
    full.
    """
    import cupy

    placement = foreign.placement(a, b)
    if not isinstance(placement, foreign.Placement):
        return None
    borrowed = foreign.borrow(placement, a, b)
    if isinstance(borrowed, Reason):
        return None
    with (borrowed.scope or nullcontext)():
        if cupy.cuda.get_current_stream().is_capturing():
            return None
        made = product if isinstance(product, cupy.ndarray) else cupy.from_dlpack(product)
        try:
            return work(borrowed.a, borrowed.b, made)
        except cupy.cuda.memory.OutOfMemoryError:
            return full
