"""Products of NumPy arrays on the GPU: moved there and back in panels, while others are computed.

B is moved and packed once. Panels of rows of A go through two lanes in turn: while the host copies
for one, the device copies to, computes on, and copies from the other. The host is what it takes
longest for, so nothing is moved twice: A that is B, or its transpose, not at all.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from time import perf_counter
from typing import Any

import numpy as np

from mixpert_py.runtime.call import Addend, Array, Made, result_shape
from mixpert_py.runtime.cuda import backend as cuda_backend
from mixpert_py.runtime.cuda import limited, panels
from mixpert_py.runtime.cuda import product as device_product
from mixpert_py.runtime.cuda.backend import WorkspaceError
from mixpert_py.runtime.cuda.busy import Busy, noted
from mixpert_py.runtime.cuda.lane import Lane, fetched, same, sent, two_lanes
from mixpert_py.runtime.cuda.parts import two
from mixpert_py.runtime.cuda.product import Ready
from mixpert_py.runtime.faithful import settled
from mixpert_py.runtime.in_force import current
from mixpert_py.runtime.overlap import shares
from mixpert_py.runtime.packing import pooled
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.tracing.trace import Reason


def make(
    a: Array,
    b: Array,
    name: str,
    block: int | None = None,
    *,
    out: Array | None = None,
    addend: Addend | None = None,
    guarantee: str | None = None,
    certificate: bool = False,
    traced: bool = False,
) -> Made | Reason:
    """A·B of NumPy arrays, as np.matmul takes them, under a scheme, on the current device.

    Returns the reason where the device cannot make it. Waits for the device. out: an array of the
    result's shape and type, which is written, and is the result, where that can be. addend: A·B is
    added to its c, or subtracted, as it comes, where `Made.added` says so: c is a matrix of the
    result's shape and type that shares no memory with a and b, alpha 1 or −1, beta 1. There is no
    `out` then. traced: the time in which the device did not compute is told as that of the
    transfer.
    """
    xp = cuda_backend.cuda_kernels().xp
    start, busy = perf_counter(), Busy(xp) if traced else None
    limit = current().workspace_limit
    try:
        alike = a.dtype.kind == b.dtype.kind and a.ndim == b.ndim == 2
        if alike and guarantee is None and not certificate and a.size and b.size:
            made = _by_panels(xp, a, b, name, block, out, addend, busy, limit)
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
    with two_lanes(xp, panels.PANEL_BYTES, panels.PANEL_BYTES) as lanes:
        first, second = lanes
        left = sent(xp, lanes, a, a.dtype)
        right = same(b, a, left)
        if right is None:
            right = sent(xp, lanes, b, b.dtype)
        with first.stream, noted(busy):
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
        second.stream.wait_event(first.stream.record())
        value = fetched(lanes, made.value)
    return made.into(value if value.shape else value[()])


@dataclass(frozen=True, slots=True)
class _How:
    """How panels are multiplied. limit, busy: as `make` has them. sum_of: what the result's memory
    becomes of itself and the product, np.add or np.subtract; None: it becomes the product.
    """

    xp: Any
    name: str
    scheme: Scheme
    busy: Busy | None
    limit: int | None
    sum_of: np.ufunc | None = None


def _by_panels(
    xp: Any,
    a: Array,
    b: Array,
    name: str,
    block: int | None,
    out: Array | None,
    addend: Addend | None,
    busy: Busy | None,
    limit: int | None,
) -> Made | Reason:
    """A (m, k) times B (k, n), nothing empty, both real or both complex."""
    scheme = device_product.steps(name, block, a.shape, b.shape)
    if name == "faithful":  # here, since to ask the device would be to wait for every panel
        scheme = settled(scheme, a, b)
    how = _How(xp, name, scheme, busy, limit)
    if addend is not None:
        adding = replace(how, sum_of=np.add if addend.alpha > 0 else np.subtract)
        with suppress(xp.cuda.memory.OutOfMemoryError, WorkspaceError):
            share = _whole_b(adding, addend.c, a, b)
            if isinstance(share, Reason):
                return share
            return Made(addend.c, name, partial(float, share), added=True)
    value = out
    if value is None or any(shares(value, x) for x in (a, b)):
        value = np.empty((a.shape[0], b.shape[1]), np.result_type(a, b))
    outliers = _into(how, value, a, b)
    if isinstance(outliers, Reason):
        return outliers
    return Made(value, name, lambda: outliers)


def _into(how: _How, value: Array, a: Array, b: Array) -> float | Reason:
    """A·B into `value`; the largest share of outliers of a panel. In halves where B is too large
    for the device, or for the limit.
    """
    try:
        return _whole_b(how, value, a, b)
    except (how.xp.cuda.memory.OutOfMemoryError, WorkspaceError):
        if b.shape[1] <= panels.GRANULE:
            raise
    # Not in the handler, which holds what the attempt has allocated.
    largest = 0.0
    for part in two(b.shape[1], panels.GRANULE):
        outliers = _into(how, value[:, part], a, b[:, part])
        if isinstance(outliers, Reason):
            return outliers
        largest = max(largest, outliers)
    return largest


def _whole_b(how: _How, value: Array, a: Array, b: Array) -> float | Reason:
    """As `_into`, but in one go. A is moved in single panels where more at a time are too much."""
    height = panels.height(how.xp, value, a, b, how.scheme, how.limit)
    strip = height if how.limit is not None else panels.strip_rows(a, height)
    if strip > height:
        with suppress(how.xp.cuda.memory.OutOfMemoryError):
            return _moved(how, value, a, b, height, strip)
    return _moved(how, value, a, b, height, height)


def _moved(how: _How, value: Array, a: Array, b: Array, height: int, strip: int) -> float | Reason:
    """Of A, `strip` rows are moved at once, and `height` are multiplied."""
    xp = how.xp
    row_bytes = b.shape[1] * value.itemsize
    found: float | Reason | None = None
    with two_lanes(xp, panels.PANEL_BYTES, max(panels.PANEL_BYTES, height * row_bytes)) as lanes:
        try:
            found = _in_turn(how, lanes, value, a, b, height, strip)
        except xp.cuda.memory.OutOfMemoryError:
            if how.sum_of is None:
                raise
        done = sum(lane.collected for lane in lanes) * height
    if isinstance(found, float):
        return found
    if how.sum_of is None or done == 0:
        return _refused(xp, Reason.MEMORY if found is None else found)
    # What is added cannot be taken back, nor added again.
    rest = value[done:]
    how.sum_of(rest, np.matmul(a[done:], b), out=rest)
    return 0.0


def _in_turn(
    how: _How,
    lanes: tuple[Lane, Lane],
    value: Array,
    a: Array,
    b: Array,
    height: int,
    strip: int,
) -> float | Reason:
    """Panel after panel, each by the lane that is free first. They end in their order."""
    first, second = lanes
    largest = 0.0
    shares: dict[Lane, Callable[[], float]] = {}

    def collect(lane: Lane) -> None:
        nonlocal largest
        lane.collect()
        if lane in shares:  # now that the device has them
            largest = max(largest, shares.pop(lane)())

    right = sent(how.xp, lanes, b, value.dtype)
    with first.stream, noted(how.busy):
        ready = device_product.pack_one(right, how.scheme, "right")
    if isinstance(ready, Reason):
        return ready
    second.stream.wait_event(first.stream.record())
    left = same(a, b, right)
    for rows in panels.places(len(a), strip if left is None else len(a)):
        collect(lanes[0])
        part = left if left is not None else sent(how.xp, lanes, a[rows], value.dtype)
        target = value[rows]
        if strip > height:  # both lanes use it
            lanes[1].stream.wait_event(lanes[0].stream.record())
        for panel in panels.places(len(part), height):
            collect(lanes[0])
            share = _begun(how, lanes[0], part[panel], right, ready, target[panel])
            if isinstance(share, Reason):
                return share
            shares[lanes[0]] = share
            lanes = lanes[::-1]
        if strip > height:  # what comes next may have its memory
            for lane in lanes:  # what was begun first ends first
                collect(lane)
    for lane in lanes:
        collect(lane)
    return largest


def _begun(
    how: _How, lane: Lane, left: Any, right: Any, ready: Ready, target: Array
) -> Callable[[], float] | Reason:
    """Have a product in `target` when the lane has collected it. Returns what says its share of
    outliers.

    ready: `right`, packed.
    """
    with lane.stream:
        result = how.xp.empty(target.shape, target.dtype)
        with noted(how.busy):
            made = device_product.make(
                *(left, right, how.name),
                out=result,
                right=ready,
                traced=how.busy is not None,
            )
        if isinstance(made, Reason):
            return made
        lane.fetch(target, result, how.sum_of)
        return made.outliers


def _refused(xp: Any, reason: Reason) -> Reason:
    """The reason, but for one that a smaller B may not have."""
    if reason is Reason.MEMORY:
        raise xp.cuda.memory.OutOfMemoryError(0, 0)
    return reason
