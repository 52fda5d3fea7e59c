"""Captured operands: copies of those of some calls, to make the products again later."""

import operator
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod
from time import perf_counter
from typing import Any

import numpy as np

from mixpert_py.runtime.arrays import AnyArray
from mixpert_py.runtime.reasons import Shape
from mixpert_py.runtime.reference.emulation import is_transpose
from mixpert_py.runtime.request import Call, Native

MAX_BYTES = 1 << 29  # of all captured operands
MAX_ELEMENTS = 1 << 24  # of one; of larger ones rows of A and columns of B are left out
LEAST_ROWS = 128  # that are not left out, however long they are
PAGE = 4096  # bytes of memory
LEAST_ROW = 512  # bytes: copies of shorter rows are not spread over pages


@dataclass(frozen=True, slots=True)
class CapturedCall:
    """A call whose operands were copied, or a part. shape: (m, k, n) of the whole call.

    native: the function that makes the product as the program made it; None where that is bound to
    the program's own operands, as an einsum's is. out_strides: of the array that the program gave
    for the result, if any. threads: of BLAS, where the program may have set their number itself.
    """

    site: str
    shape: Shape
    native: Native | None
    a: Any
    b: Any
    out_strides: tuple[int, ...] | None = None
    threads: int | None = None

    @property
    def nbytes(self) -> int:
        return _bytes(self.a) + _bytes(self.b)


class Captures:
    """The operands of one call of each kind, a site with a shape and dtypes: the last that came.

    Where memory does not suffice, those of small products give way to those of larger ones.
    seconds: the time that copying took, which is none of the program's. Safe to share between
    threads.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self.max_bytes = max_bytes
        self.seconds = 0.0
        self._calls: dict[tuple[str, Shape, tuple[str, str]], CapturedCall] = {}
        self._lock = threading.Lock()

    @property
    def calls(self) -> list[CapturedCall]:
        return list(self._calls.values())

    def add(self, site: str | None, shape: Shape, dtypes: tuple[str, str], call: Call) -> None:
        """Copy the operands of a call, or a part of large ones; K is never cut."""
        key = (site or "-", shape, dtypes)
        with self._lock:
            start = perf_counter()
            self._calls.pop(key, None)
            # An array in name only (being traced, deleted …) is not captured.
            with suppress(
                AttributeError, BufferError, MemoryError, RuntimeError, TypeError, ValueError
            ):
                a, b = _first(call.a, -2), _first(call.b, -1)
                native = operator.matmul if call.takes_tensors else _unbound(call.native)
                out = call.destination
                strides = out.strides if type(out) is np.ndarray else None
                found = CapturedCall(key[0], shape, native, a, b, strides, _blas_threads())
                if self._make_room(found):
                    left, right = _copies(a, b)
                    self._calls[key] = replace(found, a=left, b=right)
            self.seconds += perf_counter() - start

    def _make_room(self, call: CapturedCall) -> bool:
        """Drop smaller products until this one fits; false, and none is dropped, if it cannot."""
        room = self.max_bytes - sum(known.nbytes for known in self._calls.values())
        dropped = []
        for key, known in sorted(self._calls.items(), key=lambda item: prod(item[1].shape)):
            if room >= call.nbytes or prod(known.shape) >= prod(call.shape):
                break
            dropped.append(key)
            room += known.nbytes
        if room < call.nbytes:
            return False
        for key in dropped:
            del self._calls[key]
        return True


def shared_out(seconds: float, shapes: Iterable[tuple[int, int, int, int]]) -> dict[Shape, float]:
    """The seconds of a site by shape, in proportion to multiplications. shapes: m, k, n, calls."""
    works = {(m, k, n): float(m * k * n * calls) for m, k, n, calls in shapes}
    whole = sum(works.values())
    return {shape: seconds * work / whole if whole else 0.0 for shape, work in works.items()}


def _unbound(native: Native) -> Native | None:
    """The native function, which does not hold the program's operands; None where it does."""
    return None if getattr(native, "__closure__", None) else native


def _blas_threads() -> int | None:
    """The number of BLAS threads now, where the program has imported what sets it."""
    control = sys.modules.get("threadpoolctl")
    libraries = control.threadpool_info() if control else ()
    found = [one["num_threads"] for one in libraries if one["user_api"] == "blas"]
    return max(found, default=None)


def _first(x: AnyArray, axis: int) -> Any:
    """The first rows or columns of an operand, as many as MAX_ELEMENTS allow."""
    if x.ndim < 2 or x.size <= MAX_ELEMENTS:
        return x
    count = max(LEAST_ROWS, x.shape[axis] * MAX_ELEMENTS // x.size)
    return x[..., :count, :] if axis == -2 else x[..., :count]


def _copies(a: AnyArray, b: AnyArray) -> tuple[Any, Any]:
    """Copies of two operands; where they share all memory, these do too: X·Xᵀ is made quicker."""
    left = _copy(a)
    if b is a:
        return left, left
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and is_transpose(a, b):
        return left, left.T
    return left, _copy(b)


def _copy(x: Any) -> Any:
    """A copy with the same layout, on which the speed of a product depends."""
    if hasattr(x, "detach"):
        return x.detach().clone()
    if not isinstance(x, np.ndarray) or not _has_rows(x.shape, x.itemsize, x.strides):
        return x.copy(order="K")
    made = empty(x.shape, x.dtype, x.strides)
    made[...] = x
    return made


def empty(shape: tuple[int, ...], dtype: "np.dtype[Any]", strides: tuple[int, ...]) -> Any:
    """An empty array. Of a matrix each row begins where one of a matrix of such strides does within
    a page of memory: how much of it a cache can hold at a time depends on that.
    """
    if not _has_rows(shape, dtype.itemsize, strides):
        return np.empty(shape, dtype)
    if strides[0] < strides[1]:
        return empty(shape[::-1], dtype, strides[::-1]).T
    row = shape[1] * dtype.itemsize
    return np.empty((shape[0], _pitch(row, strides[0])), np.uint8)[:, :row].view(dtype)


def _pitch(row: int, stride: int) -> int:
    """Bytes from row to row of a copy. row: bytes of a row; stride: from row to row, at least."""
    return row + (stride - row) % PAGE


def _has_rows(shape: tuple[int, ...], itemsize: int, strides: tuple[int, ...]) -> bool:
    """Whether an array is a matrix whose rows, or columns, lie in memory one after the other."""
    if len(shape) != 2:
        return False
    (least, length), (most, _) = sorted(zip(strides, shape, strict=True))
    return least == itemsize and LEAST_ROW <= length * itemsize <= most


def _bytes(x: AnyArray) -> int:
    """The memory of an operand's copy."""
    size: int = prod(x.shape) * x.itemsize
    if size and isinstance(x, np.ndarray) and _has_rows(x.shape, x.itemsize, x.strides):
        rows: int = x.shape[x.strides.index(max(x.strides))]
        return rows * _pitch(size // rows, max(x.strides))
    return size
