"""Products of NumPy arrays on the GPU: moved there and back in panels, while others are computed.

B is moved and packed once. Panels of rows of A go through two lanes, each a stream with page-locked
memory of its own: while one lane copies on the host, the other copies to, computes on, and copies
from the device.
"""

from collections.abc import Iterator
from math import prod
from time import perf_counter
from typing import Any

import numpy as np

from mixpert_py.runtime.call import Array, Made, result_shape
from mixpert_py.runtime.cuda import backend as cuda_backend
from mixpert_py.runtime.cuda import limited
from mixpert_py.runtime.cuda import product as device_product
from mixpert_py.runtime.cuda.backend import WorkspaceError
from mixpert_py.runtime.cuda.busy import Busy, noted
from mixpert_py.runtime.cuda.product import Ready
from mixpert_py.runtime.cuda.workspace import besides
from mixpert_py.runtime.in_force import current
from mixpert_py.runtime.packing import pooled
from mixpert_py.runtime.packing.operand import Form
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.trace import Reason

PANEL_BYTES = 1 << 26  # of a panel of A, or of C; large enough for a product to fill the device
GRANULE = 128  # rows; a panel has a multiple of it
NO_MEMORY = 2  # cudaErrorMemoryAllocation


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
    limit = current().workspace_limit
    try:
        alike = a.dtype.kind == b.dtype.kind and a.ndim == b.ndim == 2
        if alike and guarantee is None and not certificate and a.size and b.size:
            made = _by_panels(xp, a, b, name, block, busy, limit)
        else:
            made = _whole(xp, a, b, name, block, guarantee, certificate, busy, limit)
    except WorkspaceError:
        return Reason.WORKSPACE
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
    limit: int | None,
) -> Made | Reason:
    """Operands of any shape, moved as they are."""
    if limit is not None:
        size = prod(result_shape(a, b)) * np.result_type(a, b).itemsize
        limit -= sum(map(pooled, (a.nbytes, b.nbytes, size)))
        if limit < 0:
            return Reason.WORKSPACE
    left, right = xp.asarray(a), xp.asarray(b)
    with noted(busy):
        made = limited.make(
            left,
            right,
            name,
            block,
            guarantee=guarantee,
            certificate=certificate,
            traced=busy is not None,
            limit=limit,
        )
    if isinstance(made, Reason):
        return made
    value = made.value.get()
    return made.into(value if result_shape(a, b) else value[()])


def _by_panels(
    xp: Any,
    a: Array,
    b: Array,
    name: str,
    block: int | None,
    busy: Busy | None,
    limit: int | None,
) -> Made | Reason:
    """A (m, k) times B (k, n), nothing empty, both real or both complex."""
    value = np.empty((a.shape[0], b.shape[1]), np.result_type(a, b))
    scheme = device_product.steps(name, block, a.shape, b.shape)
    outliers = _into(xp, value, a, b, name, scheme, busy, limit)
    if isinstance(outliers, Reason):
        return outliers
    return Made(value, name, lambda: outliers)


def _into(
    xp: Any,
    value: Array,
    a: Array,
    b: Array,
    name: str,
    scheme: Scheme,
    busy: Busy | None,
    limit: int | None,
) -> float | Reason:
    """A·B into `value`; the largest share of outliers of a panel. In halves where B is too large
    for the device, or for the limit.
    """
    try:
        height = _height(xp, value, a, b, scheme, limit)
        return _moved(xp, value, a, b, name, scheme, busy, height)
    except (xp.cuda.memory.OutOfMemoryError, WorkspaceError):
        if b.shape[1] <= GRANULE:
            raise
    # Not in the handler, which holds what the attempt has allocated.
    middle = -(-b.shape[1] // 2 // GRANULE) * GRANULE
    largest = 0.0
    for part in (slice(0, middle), slice(middle, None)):
        outliers = _into(xp, value[:, part], a, b[:, part], name, scheme, busy, limit)
        if isinstance(outliers, Reason):
            return outliers
        largest = max(largest, outliers)
    return largest


def _moved(
    xp: Any,
    value: Array,
    a: Array,
    b: Array,
    name: str,
    scheme: Scheme,
    busy: Busy | None,
    height: int,
) -> float | Reason:
    m, k = a.shape
    lanes = [_Lane(xp, height, k, b.shape[1], value.dtype) for _ in range(2)]
    first, second = lanes
    largest = 0.0
    try:
        with first.stream:  # the caller's may yet write to what it has freed
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
            share = lanes[number % 2].multiply(value, rows, a, right, name, ready, busy)
            if isinstance(share, Reason):
                return _refused(xp, share)
            largest = max(largest, share)
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
    ) -> float | Reason:
        """Begin some rows of the product, once those begun before are in `value`. Returns their
        share of outliers, for which it waits where they are asked for.
        """
        self.collect()
        count = len(a[rows])
        left, result = self._left[:count], self._result[:count]
        self.send(left, a[rows])
        with self.stream:
            with noted(busy):
                made = device_product.make(
                    left, right, name, out=result, right=ready, traced=busy is not None
                )
            if isinstance(made, Reason):
                return made
            result.get(stream=self.stream, out=self._back[:count], blocking=False)
            self._target = value[rows]
            return made.outliers()

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


def _height(xp: Any, value: Array, a: Array, b: Array, scheme: Scheme, limit: int | None) -> int:
    """Rows of a panel. Raises WorkspaceError where even the lowest takes more than the limit."""
    m, k = a.shape
    height = panel_rows(m, max(k, b.shape[1]), value.itemsize)
    if limit is None:
        return height
    device = xp.cuda.runtime.getDevice()
    while moved_bytes(height, k, b.shape[1], value.dtype, scheme, device) > limit:
        if height == GRANULE:
            raise WorkspaceError
        height = -(-height // 2 // GRANULE) * GRANULE
    return height


def moved_bytes(
    height: int, k: int, n: int, dtype: np.dtype[Any], scheme: Scheme, device: int
) -> int:
    """What a product in panels of so many rows takes of the device: B (k, n), as it is and packed,
    and of two lanes each a panel of A and of C, and what their product takes. See `workspace`.
    """
    needs = cuda_backend.cuda_kernels().needs
    a, b, c = (np.broadcast_to(dtype.type(), shape) for shape in ((height, k), (k, n), (height, n)))
    whole = dtype.kind == "c"
    real, batch = np.dtype(f"f{dtype.itemsize // (1 + whole)}").name, 1 + whole
    rows = Form(real, batch, height, k, height * k, k, 1, True)
    columns = Form(real, batch, n, k, k * n, 1, n, True)
    parts = b.size * dtype.itemsize if whole else 0
    lane = needs(rows, None, scheme, real, batch * batch, height, n, device)
    lane += besides(scheme.name, a, b, c, None, True)
    lane += sum(pooled(x.size * dtype.itemsize) for x in (a, c))
    right = needs(None, columns, scheme, real, batch, height, n, device) + pooled(parts)
    return pooled(b.size * dtype.itemsize) + right + 2 * lane


def _refused(xp: Any, reason: Reason) -> Reason:
    """The reason, but for one that a smaller B may not have."""
    if reason is Reason.MEMORY:
        raise xp.cuda.memory.OutOfMemoryError(0, 0)
    return reason


def _panels(length: int, height: int) -> Iterator[slice]:
    return (slice(start, start + height) for start in range(0, length, height))


def _page_locked(xp: Any, count: int, dtype: np.dtype[Any]) -> Array:
    size = count * dtype.itemsize
    try:
        memory = xp.cuda.alloc_pinned_memory(size)
    except xp.cuda.runtime.CUDARuntimeError as error:
        if error.status != NO_MEMORY:
            raise
        raise xp.cuda.memory.OutOfMemoryError(size, 0) from None  # CuPy's, of the device alone
    return np.frombuffer(memory, dtype, count)
