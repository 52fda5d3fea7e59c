"""Products of NumPy arrays on the GPU, in panels of rows, so that transfers and products overlap.

B is moved and packed once. A is moved in panels of rows: while the device multiplies one panel, the
next panel is moved to it, and the result of the previous panel is moved back. Transfers take most
of the time, so no array is moved twice: if A is B, or the transpose of B, only B is moved.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from time import perf_counter
from types import ModuleType
from typing import Any

import numpy as np

from mixpert_py.runtime import worth
from mixpert_py.runtime.arrays import Array, GpuArray, shares
from mixpert_py.runtime.complex_product import is_complex
from mixpert_py.runtime.gpu import device, result_memory
from mixpert_py.runtime.gpu import multiply as gpu
from mixpert_py.runtime.gpu.moves import Fetched, Moves, Sent, moves, same
from mixpert_py.runtime.gpu.multiply import PackedOperand
from mixpert_py.runtime.gpu.slices import halves
from mixpert_py.runtime.gpu.speculation import SAMPLED_ROWS
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.reference.residues import bounds_of, rows_of
from mixpert_py.runtime.request import Product, Request
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes import emulation_of
from mixpert_py.runtime.schemes.crt import moduli_for
from mixpert_py.runtime.schemes.integers import scheme_for

# Bytes of a panel of A, or of C. For int8x6 of 16384³ float32 on an H200 with 16 cores, panels of
# half this size take 3 % longer, and of a quarter 28 %, because products of few rows are slower.
PANEL_BYTES = 1 << 27
AHEAD = 2  # strips of A in transfer at a time: with one, copiers would wait at its end
GRANULE = 128  # rows; a panel has a multiple of it
RUN_BYTES = 1 << 14  # shorter contiguous runs are copied at a fraction of the speed


class Busy:
    """Spans of work on a stream."""

    def __init__(self, xp: ModuleType) -> None:
        self._xp = xp
        self._spans: list[tuple[Any, Any]] = []

    @contextmanager
    def span(self) -> Iterator[None]:
        """Context manager: all work enqueued inside on the current stream is one span."""
        begin, end = self._xp.cuda.Event(), self._xp.cuda.Event()
        begin.record()
        yield
        end.record()
        self._spans.append((begin, end))

    def seconds(self) -> float:
        """The total time of the spans. All must have ended."""
        elapsed = self._xp.cuda.get_elapsed_time
        return float(sum(elapsed(*span) for span in self._spans)) / 1000  # CUDA's are milliseconds


def multiply(request: Request) -> Product | Reason:
    """A·B of NumPy arrays, on the current device, or the reason why the device cannot make it.

    Waits for the device. Writes to `out` and returns it, unless `out` overlaps an operand. If the
    product is traced, the time in which the device did not compute is reported as transfer time.
    """
    xp = gpu.cuda_kernels().xp
    a, b = request.a, request.b
    start, busy = perf_counter(), Busy(xp) if request.traced else None
    alike = a.dtype.kind == b.dtype.kind and a.ndim == b.ndim == 2
    way = _by_panels if alike and request.scheme != "crt" and a.size and b.size else _whole
    try:
        product = way(xp, request, busy)
    except xp.cuda.memory.OutOfMemoryError:
        return Reason.MEMORY
    if isinstance(product, Reason) or busy is None:
        return product
    return product._replace(transfer=max(perf_counter() - start - busy.seconds(), 0.0))


def _whole(xp: ModuleType, request: Request, busy: Busy | None) -> Product | Reason:
    """The product of operands of any shape, each moved whole.

    `crt` needs whole operands, because all their entries decide the number of moduli. If the
    exponents differ too much for `crt`, the device makes the product in FP64, since the operands
    are already there. If the host is faster than the device's FP64, as beside a GPU without fast
    FP64, it returns Reason.SPREAD instead, and moves nothing if a few rows show that.
    """
    a, b = request.a, request.b
    stays = request.scheme == "crt" and not _native_pays(a, b)
    if stays and not _may_suit(a, b):
        return Reason.SPREAD
    with moves(xp) as on_their_way:
        left = on_their_way.send(a, a.dtype).arrived()
        right = same(b, a, left)
        right = on_their_way.send(b, b.dtype).arrived() if right is None else right
        there = request._replace(a=left, b=right, out=None)
        with on_their_way.stream, busy.span() if busy else nullcontext():
            product = gpu.multiply(there)
            if product is Reason.SPREAD and request.scheme == "crt" and not stays:
                product = gpu.multiply(there._replace(scheme="float64"))
        if isinstance(product, Reason):
            return product
        on_their_way.stream.synchronize()
        value = result_memory.empty(xp, product.value.shape, product.value.dtype)
        on_their_way.fetch(value, product.value).end()
    return product.with_value(value if value.shape else value[()])


def _may_suit(a: Array, b: Array) -> bool:
    """Whether `crt` suits some rows of A and some columns of B: then it may suit all of them."""
    if not a.size or not b.size:
        return True
    left, right = _some_rows(a), _some_rows(b if b.ndim == 1 else b.swapaxes(-1, -2))
    if is_complex(a) != is_complex(b):  # each part of the complex one has scales of its own
        left, right = (
            np.concatenate((x.real, x.imag)) if is_complex(x) else x for x in (left, right)
        )
    bounds = bounds_of(left), bounds_of(right)
    suits = moduli_for(rows_of(left), rows_of(right)) is not None
    return suits or scheme_for(*bounds, a.shape[-1]) is not None


def _some_rows(x: Array) -> Array:
    """At most SAMPLED_ROWS rows of the first matrix of a stack, spread evenly over it."""
    matrix = np.atleast_2d(x[(0,) * (x.ndim - 2)])
    places = np.linspace(0, len(matrix) - 1, min(len(matrix), SAMPLED_ROWS))
    return np.asarray(matrix[places.astype(int)])


def _native_pays(a: Array, b: Array) -> bool:
    """Return whether the current device's own product takes less time than the host's."""
    found = device.find()
    return isinstance(found, device.Device) and worth.native_pays(a, b, worth.figures(found.name))


def _places(length: int, height: int) -> Iterator[slice]:
    """The row ranges of the panels for this number of rows."""
    return (slice(start, start + height) for start in range(0, length, height))


def panel_rows(m: int, length: int, itemsize: int) -> int:
    """The rows of a panel: PANEL_BYTES of the longer of a row of A and a row of C."""
    rows = PANEL_BYTES // (length * itemsize) // GRANULE * GRANULE
    return min(max(rows, GRANULE), -(-m // GRANULE) * GRANULE)


def strip_rows(a: Array, height: int) -> int:
    """The rows of A that are moved at once: a panel, or more if A's columns are contiguous,
    because short runs of rows take the host longer.
    """
    if height >= len(a) or abs(a.strides[0]) >= abs(a.strides[1]):
        return height
    return max(RUN_BYTES // a.itemsize // height, 1) * height


def panel_height(a: Array, b: Array) -> int:
    """The rows of a panel of A, or of C if A is not moved because it shares B's memory."""
    (m, k), n, dtype = a.shape, b.shape[1], np.result_type(a, b)
    return panel_rows(m, max(k, n) if same(a, b, b) is None else n, dtype.itemsize)


@dataclass(frozen=True, slots=True)
class _How:
    """What all panels of a product share. busy: measures when the device computes, or None."""

    xp: ModuleType
    name: str
    scheme: Scheme
    busy: Busy | None


def _by_panels(xp: ModuleType, request: Request, busy: Busy | None) -> Product | Reason:
    """A (m, k) times B (k, n), neither of them empty, both real or both complex."""
    a, b, name = request.a, request.b, request.scheme
    how = _How(xp, name, emulation_of(name), busy)
    value = request.out
    if value is None or any(shares(value, x) for x in (a, b)):
        value = result_memory.empty(how.xp, (a.shape[0], b.shape[1]), np.result_type(a, b))
    outliers = _into(how, value, a, b)
    return outliers if isinstance(outliers, Reason) else Product(value, name, lambda: outliers)


def _into(how: _How, value: Array, a: Array, b: Array) -> float | Reason:
    """Write A·B to `value`; returns the largest share of outliers in a panel.

    If B does not fit the device's memory, its columns are multiplied in halves.
    """
    try:
        return _whole_b(how, value, a, b)
    except how.xp.cuda.memory.OutOfMemoryError:
        if b.shape[1] <= GRANULE:
            raise
    # After the handler, because the exception keeps the memory of the failed attempt alive.
    largest = 0.0
    for start, stop in halves(b.shape[1], GRANULE):
        part = slice(start, stop)
        outliers = _into(how, value[:, part], a, b[:, part])
        if isinstance(outliers, Reason):
            return outliers
        largest = max(largest, outliers)
    return largest


def _whole_b(how: _How, value: Array, a: Array, b: Array) -> float | Reason:
    """As `_into`, with all of B at once. If strips of A do not fit, A is moved panel by panel."""
    height = panel_height(a, b)
    strip = strip_rows(a, height)
    if strip > height:
        with suppress(how.xp.cuda.memory.OutOfMemoryError):
            return _moved(how, value, a, b, height, strip)
    return _moved(how, value, a, b, height, height)


def _moved(how: _How, value: Array, a: Array, b: Array, height: int, strip: int) -> float | Reason:
    """As `_into`; `strip` rows of A are moved at once, and `height` rows are multiplied at once."""
    with moves(how.xp) as transfers:
        pipeline = _Pipeline(how, transfers)
        found = _in_turn(pipeline, value, a, b, height, strip)
        pipeline.end()
    if found is Reason.MEMORY:  # a smaller part of B may leave enough
        raise how.xp.cuda.memory.OutOfMemoryError(0, 0)
    return found


def _in_turn(
    pipeline: "_Pipeline", value: Array, a: Array, b: Array, height: int, strip: int
) -> float | Reason:
    """Multiply panel after panel, while the next strips of A are moved."""
    how, moves, dtype = pipeline.how, pipeline.moves, np.result_type(a, b)
    alike = same(a, b, b) is not None
    strips = list(_places(len(a), len(a) if alike else strip))
    pipeline.right = moves.send(b, dtype)
    waiting = iter([] if alike else strips)
    pipeline.strips.extend(moves.send(a[rows], dtype) for rows in islice(waiting, AHEAD))
    right = pipeline.right.arrived()
    with moves.stream, how.busy.span() if how.busy else nullcontext():
        ready = gpu.pack_right(right, how.scheme)
    if isinstance(ready, Reason):
        return ready
    for rows in strips:
        part = same(a, b, right) if alike else pipeline.next_strip()
        target = value[rows]
        for place in _places(len(part), height):
            refused = pipeline.multiply(part[place], right, ready, target[place])
            if refused is not None:
                return refused
            if place.start == 0:  # the previous strip is no longer in use
                pipeline.strips.extend(moves.send(a[more], dtype) for more in islice(waiting, 1))
    pipeline.finish_previous()
    return pipeline.outliers


class _Pipeline:
    """Products of panels: the device computes one while the result of the previous one is fetched.

    right, strips: the transfers of B and of strips of A. They own memory that enqueued work uses,
    so they live until the work has ended, also if a product is refused. outliers: the largest
    share of outliers in a panel.
    """

    def __init__(self, how: _How, moves: Moves) -> None:
        self.how, self.moves = how, moves
        self.right: Sent | None = None
        self.strips: deque[Sent] = deque()
        self.outliers = 0.0
        self._part: Any = None
        self._computed: Callable[[], None] | None = None
        self._coming: Fetched | None = None

    def next_strip(self) -> Any:
        """The strip that was sent first, on the device; it replaces the previous one."""
        self._part = self.strips.popleft().arrived()
        return self._part

    def multiply(
        self, left: GpuArray, right: GpuArray, ready: PackedOperand, target: Array
    ) -> Reason | None:
        """Begin a product for `target`, and fetch the previous one. ready: `right`, packed."""
        how, stream = self.how, self.moves.stream
        with stream:
            result = how.xp.empty((len(left), right.shape[1]), left.dtype)
            with how.busy.span() if how.busy else nullcontext():
                traced = how.busy is not None
                request = Request(left, right, how.name, result, right=ready, traced=traced)
                product = gpu.multiply(request)
            if isinstance(product, Reason):
                return product
            done = stream.record()
        self.finish_previous()
        self._computed = partial(self._fetch, done, left, result, target, product.outliers)
        return None

    def finish_previous(self) -> None:
        """Wait until the last begun product is computed, and begin to fetch it."""
        if self._computed is not None:
            computed, self._computed = self._computed, None
            computed()

    def _fetch(
        self, done: Any, left: object, value: GpuArray, target: Array, outliers: Callable[[], float]
    ) -> None:
        """Wait for the event `done`, and begin to fetch. left: kept alive until then."""
        done.synchronize()
        self.outliers = max(self.outliers, outliers())
        self.end()
        self._coming = self.moves.fetch(target, value)

    def end(self) -> None:
        """Wait until the result that is being fetched has arrived."""
        if self._coming is not None:
            self._coming.end()
