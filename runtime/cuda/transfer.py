"""Products of NumPy arrays on the GPU: moved there and back in panels, while others are computed.

B is moved and packed once. Panels of rows of A go through two lanes, each a stream with page-locked
memory of its own: while one lane copies on the host, the other copies to, computes on, and copies
from the device.
"""

from collections.abc import Iterator
from time import perf_counter
from typing import Any

import numpy as np

from mixpert_py.runtime.call import Array, Made, result_shape
from mixpert_py.runtime.cuda import backend as cuda_backend
from mixpert_py.runtime.cuda import product as device_product
from mixpert_py.runtime.cuda.busy import Busy, noted
from mixpert_py.runtime.cuda.product import Ready
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.trace import Reason

PANEL_BYTES = 1 << 26  # of a panel of A, or of C; large enough for a product to fill the device
GRANULE = 128  # rows; a panel has a multiple of it


def make(
    a: Array,
    b: Array,
    name: str,
    block: int | None = None,
    *,
    guarantee: str | None = None,
    certificate: bool = False,
    traced: bool = False,
) -> Made | Reason:
    """A·B of NumPy arrays, as np.matmul takes them, under a scheme, on the current device.

    Returns the reason where the device cannot make it. Waits for the device. traced: the time in
    which it did not compute is told as that of the transfer.
    """
    xp = cuda_backend.cuda_kernels().xp
    start, busy = perf_counter(), Busy(xp) if traced else None
    try:
        if a.ndim == b.ndim == 2 and guarantee is None and not certificate and a.size and b.size:
            made = _by_panels(xp, a, b, name, block, busy)
        else:
            made = _whole(xp, a, b, name, block, guarantee, certificate, busy)
    except xp.cuda.memory.OutOfMemoryError:
        return Reason.MEMORY
    if isinstance(made, Reason) or busy is None:
        return made
    return made._replace(transfer=max(perf_counter() - start - busy.seconds(), 0.0))


def _whole(
    xp: Any,
    a: Array,
    b: Array,
    name: str,
    block: int | None,
    guarantee: str | None,
    certificate: bool,
    busy: Busy | None,
) -> Made | Reason:
    """Operands of any shape, moved as they are."""
    left, right = xp.asarray(a), xp.asarray(b)
    with noted(busy):
        made = device_product.make(
            left,
            right,
            name,
            block,
            guarantee=guarantee,
            certificate=certificate,
            traced=busy is not None,
        )
    if isinstance(made, Reason):
        return made
    value = made.value.get()
    return made.into(value if result_shape(a, b) else value[()])


def _by_panels(
    xp: Any, a: Array, b: Array, name: str, block: int | None, busy: Busy | None
) -> Made | Reason:
    """A (m, k) times B (k, n), nothing empty."""
    value = np.empty((a.shape[0], b.shape[1]), np.result_type(a, b))
    scheme = device_product.steps(name, block, a.shape, b.shape)
    outliers = _into(xp, value, a, b, name, scheme, busy)
    return outliers if isinstance(outliers, Reason) else Made(value, name, outliers)


def _into(
    xp: Any, value: Array, a: Array, b: Array, name: str, scheme: Scheme, busy: Busy | None
) -> float | Reason:
    """A·B into `value`; the largest share of outliers of a panel. In halves where B is too large
    for the device.
    """
    try:
        return _moved(xp, value, a, b, name, scheme, busy)
    except xp.cuda.memory.OutOfMemoryError:
        if b.shape[1] <= GRANULE:
            raise
    # Not in the handler, which holds what the attempt has allocated.
    middle = -(-b.shape[1] // 2 // GRANULE) * GRANULE
    largest = 0.0
    for part in (slice(0, middle), slice(middle, None)):
        outliers = _into(xp, value[:, part], a, b[:, part], name, scheme, busy)
        if isinstance(outliers, Reason):
            return outliers
        largest = max(largest, outliers)
    return largest


def _moved(
    xp: Any, value: Array, a: Array, b: Array, name: str, scheme: Scheme, busy: Busy | None
) -> float | Reason:
    m, k = a.shape
    height = panel_rows(m, max(k, b.shape[1]), value.itemsize)
    lanes = [_Lane(xp, height, k, b.shape[1], value.dtype) for _ in range(2)]
    first, second = lanes
    largest = 0.0
    try:
        right = xp.empty(b.shape, value.dtype)
        for number, rows in enumerate(_panels(k, height)):
            lanes[number % 2].send(right[rows], b[rows])
        first.stream.wait_event(second.stream.record())
        with first.stream, noted(busy):
            ready = device_product.pack_one(right, scheme, "right")
        if isinstance(ready, Reason):
            return _refused(xp, ready)
        second.stream.wait_event(first.stream.record())
        for number, rows in enumerate(_panels(m, height)):
            made = lanes[number % 2].multiply(value, rows, a, right, name, ready, busy)
            if isinstance(made, Reason):
                return _refused(xp, made)
            largest = max(largest, made.outliers)
        for lane in lanes:
            lane.collect()
    finally:
        for lane in lanes:
            lane.stream.synchronize()  # what is freed now is not in use any more
    return largest


class _Lane:
    """A stream, page-locked memory for one panel there and one back, and the panels there."""

    def __init__(self, xp: Any, height: int, k: int, n: int, dtype: np.dtype[Any]) -> None:
        self.stream = xp.cuda.Stream(non_blocking=True)
        self._there = _page_locked(xp, height * max(k, n), dtype)
        self._back = _page_locked(xp, height * n, dtype).reshape(height, n)
        with self.stream:
            self._left = xp.empty((height, k), dtype)
            self._result = xp.empty((height, n), dtype)
        self._target: Array | None = None

    def send(self, target: Any, x: Array) -> None:
        """Copy a NumPy array to one of the device, once what was sent before has left."""
        self.stream.synchronize()
        held = self._there[: x.size].reshape(x.shape)
        np.copyto(held, x)
        target.set(held, stream=self.stream)

    def multiply(
        self,
        value: Array,
        rows: slice,
        a: Array,
        right: Any,
        name: str,
        ready: Ready,
        busy: Busy | None,
    ) -> Made | Reason:
        """Begin some rows of the product, once those begun before are in `value`."""
        self.collect()
        count = len(a[rows])
        left, result = self._left[:count], self._result[:count]
        self.send(left, a[rows])
        with self.stream:
            with noted(busy):
                made = device_product.make(
                    left, right, name, out=result, right=ready, traced=busy is not None
                )
            if isinstance(made, Made):
                result.get(stream=self.stream, out=self._back[:count], blocking=False)
                self._target = value[rows]
        return made

    def collect(self) -> None:
        """Wait for the panel that was begun, and put it where it belongs."""
        self.stream.synchronize()
        if self._target is not None:
            np.copyto(self._target, self._back[: len(self._target)])
            self._target = None


def panel_rows(m: int, length: int, itemsize: int) -> int:
    """Rows of a panel: PANEL_BYTES of the longer of a row of A and one of C."""
    rows = PANEL_BYTES // (length * itemsize) // GRANULE * GRANULE
    return min(max(rows, GRANULE), -(-m // GRANULE) * GRANULE)


def _refused(xp: Any, reason: Reason) -> Reason:
    """The reason, but for one that a smaller B may not have."""
    if reason is Reason.MEMORY:
        raise xp.cuda.memory.OutOfMemoryError
    return reason


def _panels(length: int, height: int) -> Iterator[slice]:
    return (slice(start, start + height) for start in range(0, length, height))


def _page_locked(xp: Any, count: int, dtype: np.dtype[Any]) -> Array:
    memory = xp.cuda.alloc_pinned_memory(count * dtype.itemsize)
    return np.frombuffer(memory, dtype, count)
