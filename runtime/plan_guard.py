"""A check that products under a plan are as accurate as when the plan was tuned.

A plan is tuned on some data and used on other. Each of its products has an error that was measured
then, relative to float64. A few entries of a product are computed in float64 beside the scheme's.
These may be far smaller than the others, in a matrix near a diagonal one, say, and off by more of
their own size: so where they are off by more than MARGIN times that error, the error of the whole
product is estimated, by vectors that it is multiplied by. Where that is more, too, the program's
own product takes the place of this one. So sums that cancel, rows of wider range and results beyond
float32 are found; a program that amplifies errors more than it did is not.

Products of NumPy arrays are checked before they are used. Those of arrays on a GPU are not waited
for: once entries of one are found to be off, the next ones of its site are waited for, and where
one of these is off as a whole, it and later calls run natively. Under a trace, which waits for each
product, all are checked before they are used.

A sample of a product on a GPU does not wait for the device; the error of a whole product does.
"""

import math
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from types import ModuleType
from typing import Any, Final, TypeVar

import numpy as np

from mixpert_py.runtime.arrays import AnyArray, Array, GpuArray
from mixpert_py.runtime.gpu import foreign
from mixpert_py.runtime.program_frames import warn
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes import get

MARGIN: Final = 10.0  # of the error when the plan was tuned: how far other data may go
FLOOR: Final = 1e-7  # of that error: of integers, say, a product may have been exact
LEAST_FLOOR: Final = 1e-15  # the float64 entries are themselves off by some of that
# Multiplications since the last check after which the next product is checked. Those of one product
# of 1024³ take some 50 times as long on 16 cores as the check, which takes 50 µs; longer on fewer.
EACH: Final = 1 << 30
# The same on a GPU, where that many take 4 ms or more, and enqueuing a check takes the host 0.1 ms.
EACH_ON_GPU: Final = 1 << 39
# Where entries were off, and the whole product was not, checks are so many times further apart: for
# such data each takes the estimate as well, which may take half as long as a product of 1024³.
APART: Final = 16
NEXT: Final = 4  # products on a GPU that are waited for after entries of one were off
LEAST: Final = 1 << 18  # Below, none is: checking one in hundreds says nothing.

ROWS = COLUMNS = 8  # of the entries that are compared
VECTORS: Final = 8  # by which a product is multiplied: all of them miss an error by a rare chance
PART: Final = 1 << 22  # elements of an operand that are widened at a time
STRIDE: Final = 40503  # by which entries move from turn to turn: coprime to most sizes

T = TypeVar("T")


def floor_of(scheme: str) -> float:
    """FLOOR, or of residues their usual error."""
    entry = get(scheme)
    is_exact = isinstance(entry, Scheme) and bool(entry.moduli)
    return min(max(entry.error, LEAST_FLOOR), FLOOR) if is_exact else FLOOR


class PlanGuard:
    """The check of one call site. error: ‖C − Ĉ‖F / ‖C‖F as the plan has it, more than 0; it counts
    for `floor` at least.
    """

    def __init__(self, site: str, error: float, floor: float = FLOOR) -> None:
        self.site, self.limit = site, MARGIN * max(error, floor)
        self._calls = self._unchecked = 0
        self._apart = 1
        self._is_reported = False
        # Of arrays on a GPU:
        self._worst = 0.0  # the error for which later calls are native
        self._sample: DeviceSample | None = None
        self._entries_error = 0.0  # of entries that were off
        self._to_wait_for = 0  # products

    def holds(self, a: AnyArray, b: AnyArray, product: AnyArray) -> bool:
        """Whether a product may be used; True for those that are not checked. Of arrays on a GPU
        it is waited for.

        Warns once for a site whose product may not, and checks each later one.
        """
        if not self._is_turn(math.prod(product.shape) * a.shape[-1], EACH):
            return True
        if type(product) is np.ndarray:
            error = sampled_error(a, b, product, self._calls)
        else:
            entries = sample(a, b, product, self._calls)
            error = 0.0 if entries is None else entries.error(waits=True) or 0.0
        if error <= self.limit:
            return True
        error = self._whole_error(a, b, product, error) or 0.0
        if error <= self.limit:
            return True
        self._report(error)
        return False

    def watch(self, a: AnyArray, b: AnyArray, product: AnyArray) -> bool:
        """Look at a product of arrays on a GPU, without waiting; `refuses` tells what was found.

        One that is made after entries were off is waited for. Returns whether it may be used, and
        warns as `holds` does.
        """
        work = math.prod(product.shape) * a.shape[-1]
        if self._to_wait_for > 0 and work >= LEAST:  # threads may take it below 0
            error = self._whole_error(a, b, product, self._entries_error)
            if error is None:
                return True
            if error > self.limit:
                self._worst = max(self._worst, error)
                self._report(error)
                return False
            self._to_wait_for -= 1
        elif self._is_turn(work, EACH_ON_GPU):
            self._look()
            self._sample = self._sample or sample(a, b, product, self._calls)
        return True

    def _whole_error(
        self, a: AnyArray, b: AnyArray, product: AnyArray, entries_error: float
    ) -> float | None:
        """The error of a product, or a stack of them, some of whose entries are off by so much: of
        these alone where no more is known. None where a CUDA graph is being captured.
        """
        if entries_error == math.inf:
            return entries_error
        error = whole_error(a, b, product, self._calls)
        if error is not None and math.isnan(error):
            return entries_error
        if error is not None and error <= self.limit:
            self._apart = APART
        return error

    def refuses(self) -> bool:
        """Whether a product that was watched is off, so that calls of the site are native.

        Warns once.
        """
        if self._sample is not None:
            self._look()
        if self._worst <= self.limit:
            return False
        self._report(self._worst)
        return True

    def _look(self) -> None:
        """See whether the entries that are on their way have come."""
        error = None if self._sample is None else self._sample.error(waits=False)
        if error is None:
            return
        self._sample = None
        if error == math.inf:
            self._worst = error
        elif error > self.limit:
            self._entries_error, self._to_wait_for = error, NEXT

    def _is_turn(self, work: int, each: int) -> bool:
        """Whether a product of so many multiplications is checked."""
        self._unchecked += work
        if work < LEAST:
            return False
        self._calls += 1
        # The first call, the second, the fourth, …: data may change after the first.
        is_turn = self._calls & (self._calls - 1) == 0
        if not (is_turn or self._unchecked >= each * self._apart or self._is_reported):
            return False
        self._unchecked = 0
        return True

    def _report(self, error: float) -> None:
        if not self._is_reported:
            self._is_reported = True
            warn(
                f"call site {self.site}: a product is off by {error:.1e}, and was by "
                f"{self.limit / MARGIN:.1e} when the plan was tuned; such products run natively"
            )


def sampled_error(a: AnyArray, b: AnyArray, product: AnyArray, turn: int) -> float:
    """‖C − Ĉ‖F / ‖C‖F of a few entries of a product of NumPy arrays; see `error_of`. turn: other
    entries for another.
    """
    with np.errstate(all="ignore"):
        return error_of(*entries(a, b, product, turn))


def entries(a: AnyArray, b: AnyArray, product: AnyArray, turn: int) -> tuple[Any, Any]:
    """A few entries of a product in float64 or complex128, and those of the array that was made,
    on the device where the arrays are; NumPy's, or CuPy's.
    """
    left, right, made = _matrices(a, b, product)
    if made.ndim > 2:
        stack = made.shape[:-2]
        index = tuple(int(i) for i in np.unravel_index(turn % math.prod(stack), stack))
        left, right, made = _matrix(left, index), _matrix(right, index), made[index]
    rows = _spread(made.shape[0], ROWS, turn)
    start = turn * STRIDE % max(made.shape[1] - COLUMNS + 1, 1)
    columns = slice(start, start + COLUMNS)  # side by side: they share cache lines
    wide = np.result_type(product.dtype, np.float64)
    return left[rows].astype(wide) @ right[:, columns].astype(wide), made[rows, columns]


def error_of(exact: Array, found: Array) -> float:
    """‖exact − found‖ / ‖exact‖ over the entries whose exact value is finite; infinite where one
    that was found is not finite there.
    """
    is_known = np.isfinite(exact)
    exact, found = exact[is_known], found[is_known]
    if not np.isfinite(found).all():
        return math.inf
    largest = max(float(np.abs(x).max(initial=0.0)) for x in (exact, found))
    if not largest:
        return 0.0
    # Scaled, as squares may be beyond float64's range.
    scale = math.ldexp(1.0, -max(math.frexp(largest)[1], -1000))
    size = float(np.linalg.norm(exact * scale))
    off = float(np.linalg.norm(found * scale - exact * scale))
    return off / size if size else math.inf if off else 0.0


def projections(
    xp: ModuleType, a: AnyArray, b: AnyArray, product: AnyArray, turn: int
) -> tuple[Any, Any]:
    """A (B X) and Ĉ X in float64 or complex128, X of VECTORS columns of random numbers.

    E(‖C X‖²) is ‖C‖² times a constant wherever C has its mass, and so it is of C − Ĉ. xp: NumPy, or
    CuPy for arrays on its current device.
    """
    left, right, made = _matrices(a, b, product)
    x = _vectors(xp, right.shape[-1], turn)
    return _times(xp, left, _times(xp, right, x)), _times(xp, made, x)


def _vectors(xp: ModuleType, length: int, turn: int) -> Any:
    """Numbers in [−1, 1), float64, (length, VECTORS), made where they are used: nothing waits.

    They are SplitMix64's of a counter. Of ±1 alone, two equal columns might cancel in every vector.
    """
    word = xp.arange(1, length * VECTORS + 1, dtype=np.uint64)
    word += np.uint64(turn % (1 << 20) << 40)
    word *= np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        word ^= word >> np.uint64(shift)
        word *= np.uint64(factor)
    word ^= word >> np.uint64(31)
    unit = (word >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1.0
    return unit.reshape(length, VECTORS)


def _times(xp: ModuleType, x: AnyArray, vectors: AnyArray) -> Any:
    """x @ vectors in float64 or complex128; of x, some rows at a time are widened."""
    wide = np.result_type(x.dtype, np.float64)
    if x.dtype == wide:
        return x @ vectors
    rows = x.shape[-2]
    step = max(PART * rows // x.size, 1)
    parts = (x[..., i : i + step, :].astype(wide) @ vectors for i in range(0, rows, step))
    return xp.concatenate(tuple(parts), axis=-2)


def _matrices(a: AnyArray, b: AnyArray, product: AnyArray) -> tuple[Any, Any, Any]:
    """Operands and the product as matrices, or stacks of them, where some are vectors."""
    left = a if a.ndim > 1 else a[np.newaxis]
    right = b if b.ndim > 1 else b[:, np.newaxis]
    stack = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    return left, right, product.reshape(*stack, left.shape[-2], right.shape[-1])


def _matrix(x: AnyArray, index: tuple[int, ...]) -> Any:
    """A matrix of an operand that is broadcast to a stack."""
    stack = x.shape[:-2]
    places = index[len(index) - len(stack) :]
    return x[tuple(0 if size == 1 else at for at, size in zip(places, stack, strict=True))]


def _spread(count: int, wanted: int, turn: int) -> slice:
    """This many of `count` rows, evenly spread, different in each turn."""
    step = max(count // wanted, 1)
    last = (min(count, wanted) - 1) * step
    start = turn * STRIDE % max(count - last, 1)
    return slice(start, start + last + 1, step)


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


def sample(a: AnyArray, b: AnyArray, product: AnyArray, turn: int) -> DeviceSample | None:
    """Enqueue the check of a product of arrays on one GPU, on the stream that made it.

    a, b, product: arrays of one library. turn: the seed of the choice of entries. Returns None
    while a CUDA graph is being captured, whose launches have no results yet, or if memory is full.
    """
    return _beside(a, b, product, partial(DeviceSample, turn=turn), full=None)


def whole_error(a: AnyArray, b: AnyArray, product: AnyArray, turn: int) -> float | None:
    """About ‖C − Ĉ‖F / ‖C‖F of a whole product, or a whole stack; of one on a GPU it is waited for.

    a, b, product: arrays of one library, NumPy's or on one GPU. turn: other vectors for another.
    NaN if entries are not finite, or memory is full; None while a CUDA graph is being captured.
    """
    if type(product) is np.ndarray:
        return _projected_error(np, a, b, product, turn)
    import cupy

    work = partial(_projected_error, cupy, turn=turn)
    return _beside(a, b, product, work, full=math.nan)


def _projected_error(
    xp: ModuleType, a: AnyArray, b: AnyArray, product: AnyArray, turn: int
) -> float:
    with np.errstate(all="ignore"):
        exact, found = (x if xp is np else x.get() for x in projections(xp, a, b, product, turn))
        return error_of(exact, found) if np.isfinite(exact).any() else math.nan


def _beside(
    a: AnyArray,
    b: AnyArray,
    product: AnyArray,
    work: Callable[[Any, Any, Any], T],
    *,
    full: T | None,
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
