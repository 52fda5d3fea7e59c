"""Products of NumPy arrays on the GPU: moved there and back in panels, while others are computed.

B is moved and packed once, A in panels of rows: while the device computes with one, the next is on
its way, and the result of the one before comes back. The host's memory is what it takes longest
for, so nothing is moved twice: A that is B, or its transpose, not at all.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from time import perf_counter
from types import ModuleType
from typing import Any

import numpy as np

from mixpert_py.runtime import worth
from mixpert_py.runtime.gpu import device, result_memory
from mixpert_py.runtime.gpu import multiply as gpu
from mixpert_py.runtime.gpu.event_clock import Busy, noted
from mixpert_py.runtime.gpu.moves import Fetched, Moves, Sent, moves, same
from mixpert_py.runtime.gpu.multiply import PackedOperand
from mixpert_py.runtime.gpu.slices import halves
from mixpert_py.runtime.overlap import shares
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.request import Array, Product, Request
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes import emulation_of

# Of a panel of A, or of C. On an H200, 16 cores a process, int8x6 of 16384³ float32: half as much
# takes 3 % longer, a quarter 28 %, since fewer rows are multiplied at less speed.
PANEL_BYTES = 1 << 27
AHEAD = 2  # strips of A on their way: with one, copiers wait at the end of each
GRANULE = 128  # rows; a panel has a multiple of it
RUN_BYTES = 1 << 14  # contiguous: shorter ones are copied at a fraction of the speed


def multiply(request: Request) -> Product | Reason:
    """A·B of NumPy arrays, on the current device, or the reason why the device cannot make it.

    Waits for the device. out is written, and is the result, where that can be. Where the product is
    traced, the time in which the device did not compute is reported as that of the transfer.
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
    """The product of operands of any shape, which are moved whole.

    `crt` needs that: it decides by all entries of both. Where their exponents differ too much for
    it, the product is made in the device's FP64, as the operands are there already; unless the host
    is quicker still, as beside a GPU without fast FP64. Then what is to be native unseen stays.
    """
    a, b = request.a, request.b
    stays = request.scheme == "crt" and not _native_pays(a, b)
    if stays and gpu.outlook_of(a, b, xp.cuda.runtime.getDevice()).next() is None:
        return Reason.SPREAD
    with moves(xp) as on_their_way:
        left = on_their_way.send(a, a.dtype).arrived()
        right = same(b, a, left)
        if right is None:
            right = on_their_way.send(b, b.dtype).arrived()
        there = request._replace(a=left, b=right, out=None)
        with on_their_way.stream, noted(busy):
            product = gpu.multiply(there)
            if product is Reason.SPREAD and request.scheme == "crt" and not stays:
                product = gpu.multiply(there._replace(scheme="float64"))
        if isinstance(product, Reason):
            return product
        on_their_way.stream.synchronize()
        value = result_memory.empty(xp, product.value.shape, product.value.dtype)
        on_their_way.fetch(value, product.value).end()
    return product.with_value(value if value.shape else value[()])


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
    """The rows of the panels of two operands."""
    (m, k), n, dtype = a.shape, b.shape[1], np.result_type(a, b)
    moves = same(a, b, b) is None  # else it is B that does, and there are no panels of A
    return panel_rows(m, max(k, n) if moves else n, dtype.itemsize)


@dataclass(frozen=True, slots=True)
class _How:
    """How panels are multiplied."""

    xp: ModuleType
    name: str
    scheme: Scheme
    busy: Busy | None


def _by_panels(xp: ModuleType, request: Request, busy: Busy | None) -> Product | Reason:
    """A (m, k) times B (k, n), nothing empty, both real or both complex."""
    a, b, name = request.a, request.b, request.scheme
    scheme = emulation_of(name, request.block)
    how = _How(xp, name, scheme, busy)
    value = request.out
    if value is None or any(shares(value, x) for x in (a, b)):
        value = result_memory.empty(how.xp, (a.shape[0], b.shape[1]), np.result_type(a, b))
    outliers = _into(how, value, a, b)
    if isinstance(outliers, Reason):
        return outliers
    return Product(value, name, lambda: outliers)


def _into(how: _How, value: Array, a: Array, b: Array) -> float | Reason:
    """A·B into `value`; the largest share of outliers of a panel. In halves where B is too large
    for the device.
    """
    try:
        return _whole_b(how, value, a, b)
    except how.xp.cuda.memory.OutOfMemoryError:
        if b.shape[1] <= GRANULE:
            raise
    # Not in the handler, which holds what the attempt has allocated.
    largest = 0.0
    for start, stop in halves(b.shape[1], GRANULE):
        part = slice(start, stop)
        outliers = _into(how, value[:, part], a, b[:, part])
        if isinstance(outliers, Reason):
            return outliers
        largest = max(largest, outliers)
    return largest


def _whole_b(how: _How, value: Array, a: Array, b: Array) -> float | Reason:
    """As `_into`, but in one go. A is moved in single panels where more at a time are too much."""
    height = panel_height(a, b)
    strip = strip_rows(a, height)
    if strip > height:
        with suppress(how.xp.cuda.memory.OutOfMemoryError):
            return _moved(how, value, a, b, height, strip)
    return _moved(how, value, a, b, height, height)


def _moved(how: _How, value: Array, a: Array, b: Array, height: int, strip: int) -> float | Reason:
    """Of A, `strip` rows are moved at once, and `height` are multiplied."""
    with moves(how.xp) as on_their_way:
        line = _Line(how, on_their_way)
        found = _in_turn(line, value, a, b, height, strip)
        line.end()
    if found is Reason.MEMORY:  # which a smaller B may leave
        raise how.xp.cuda.memory.OutOfMemoryError(0, 0)
    return found


def _in_turn(
    line: "_Line", value: Array, a: Array, b: Array, height: int, strip: int
) -> float | Reason:
    """Panel after panel; the next strips of A are on their way while one is multiplied."""
    how, moves, dtype = line.how, line.moves, np.result_type(a, b)
    alike = same(a, b, b) is not None
    strips = list(_places(len(a), len(a) if alike else strip))
    line.its = moves.send(b, dtype)
    waiting = iter([] if alike else strips)
    line.ours.extend(moves.send(a[rows], dtype) for rows in islice(waiting, AHEAD))
    right = line.its.arrived()
    with moves.stream, noted(how.busy):
        ready = gpu.pack_operand(right, how.scheme, "right")
    if isinstance(ready, Reason):
        return ready
    for rows in strips:
        part = same(a, b, right) if alike else line.arrived()
        target = value[rows]
        for place in _places(len(part), height):
            refused = line.multiply(part[place], right, ready, target[place])
            if refused is not None:
                return refused
            if place.start == 0:  # the strip before is not in use any more
                line.ours.extend(moves.send(a[more], dtype) for more in islice(waiting, 1))
    line.settle()
    return line.outliers


class _Line:
    """Products of panels: one is computed while the one before it comes back.

    its, ours: B and strips of A, on their way or there, which are not to be freed before all that
    uses them is over, also where a product is refused. outliers: the largest share of a panel.
    """

    def __init__(self, how: _How, moves: Moves) -> None:
        self.how, self.moves = how, moves
        self.its: Sent | None = None
        self.ours: deque[Sent] = deque()
        self.outliers = 0.0
        self._part: Any = None
        self._computed: Callable[[], None] | None = None
        self._coming: Fetched | None = None

    def arrived(self) -> Any:
        """The strip that was sent first, in the place of the one before."""
        self._part = self.ours.popleft().arrived()
        return self._part

    def multiply(self, left: Any, right: Any, ready: PackedOperand, target: Array) -> Reason | None:
        """Begin a product, for `target`, and have the one before come. ready: `right`, packed."""
        how, stream = self.how, self.moves.stream
        with stream:
            result = how.xp.empty((len(left), right.shape[1]), left.dtype)
            with noted(how.busy):
                product = gpu.multiply(
                    Request(
                        *(left, right, how.name),
                        out=result,
                        right=ready,
                        traced=how.busy is not None,
                    )
                )
            if isinstance(product, Reason):
                return product
            done = stream.record()
        self.settle()
        self._computed = partial(self._fetch, done, left, result, target, product.outliers)
        return None

    def settle(self) -> None:
        """Have what was begun last come, once it is computed."""
        if self._computed is not None:
            computed, self._computed = self._computed, None
            computed()

    def _fetch(
        self,
        done: Any,
        left: Any,
        result: Any,
        target: Array,
        outliers: Callable[[], float],
    ) -> None:
        """left: in use until it is done."""
        done.synchronize()
        self.outliers = max(self.outliers, outliers())
        self.end()
        self._coming = self.moves.fetch(target, result)

    def end(self) -> None:
        """Wait for what is coming."""
        if self._coming is not None:
            self._coming.end()
