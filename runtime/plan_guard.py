"""A check that products under a plan are as accurate as when the plan was tuned.

A plan is tuned on some data and used on other. Each of its products has an error that was measured
then, relative to float64. A few entries of a product are computed in float64 beside the scheme's.
These may be far smaller than the others, in a matrix near a diagonal one, say, and off by more of
their own size: so where they are off by more than MARGIN times that error, the error of the whole
product is estimated, by vectors that it is multiplied by. Where that is more, too, the program's
own product takes the place of this one. So sums that cancel, rows of wider range and results beyond
float32 are found; a program that amplifies errors more than it did is not.

Products are checked before they are used, those of arrays on a GPU more seldom: a check waits for
the device. Once one of these was found to be off as a whole, later calls of its site run natively.
"""

import math
from collections.abc import Callable
from contextlib import nullcontext
from types import ModuleType
from typing import Any, Final

import numpy as np

from mixpert_py.runtime.arrays import AnyArray, Array
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
# The same on a GPU, where that many take 30 ms or more, and a check some 0.3 ms.
EACH_ON_GPU: Final = 1 << 42
# Where entries were off, and the whole product was not, checks are so many times further apart: for
# such data each takes the estimate as well, which may take half as long as a product of 1024³.
APART: Final = 16
LEAST: Final = 1 << 18  # Below, none is: checking one in hundreds says nothing.

ROWS = COLUMNS = 8  # of the entries that are compared
VECTORS: Final = 8  # by which a product is multiplied: all of them miss an error by a rare chance
PART: Final = 1 << 22  # elements of an operand that are widened at a time
STRIDE: Final = 40503  # by which entries move from turn to turn: coprime to most sizes

# Parts of the exact product and of the made one, from A, B, the made one, and a number.
ErrorParts = Callable[[ModuleType, Any, Any, Any, int], tuple[Any, Any]]


def floor_of(scheme: str) -> float:
    """FLOOR, or of residues their usual error."""
    entry = get(scheme)
    is_exact = isinstance(entry, Scheme) and bool(entry.moduli)
    return min(max(entry.error, LEAST_FLOOR), FLOOR) if is_exact else FLOOR


class PlanGuard:
    """The check of one call site. error: ‖C − Ĉ‖F / ‖C‖F as the plan has it, more than 0; it counts
    for `floor` at least.

    refuses: whether a product of arrays on a GPU was off, so that calls of the site are native.
    """

    def __init__(self, site: str, error: float, floor: float = FLOOR) -> None:
        self.site, self.limit = site, MARGIN * max(error, floor)
        self.refuses = False
        self._calls = self._unchecked = 0
        self._apart = 1
        self._is_reported = False

    def holds(self, a: AnyArray, b: AnyArray, product: AnyArray) -> bool:
        """Whether a product may be used; True for those that are not checked. Of arrays on a GPU
        the device is waited for.

        Warns once for a site whose product may not; of NumPy arrays each later one is checked.
        """
        is_on_gpu = type(product) is not np.ndarray
        work = math.prod(product.shape) * a.shape[-1]
        if not self._is_turn(work, EACH_ON_GPU if is_on_gpu else EACH):
            return True
        error = sampled_error(a, b, product, self._calls)
        if self.limit < error < math.inf:
            whole = whole_error(a, b, product, self._calls)
            if whole <= self.limit:
                self._apart = APART
            error = error if math.isnan(whole) else whole  # the entries are all that is known
        if error <= self.limit:
            return True
        self.refuses = is_on_gpu
        self._report(error)
        return False

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
    """‖C − Ĉ‖F / ‖C‖F of a few entries of a product; see `error_of`. turn: other entries for
    another. 0 while a CUDA graph is being captured, or if memory is full.
    """
    parts = _parts(entries, a, b, product, turn)
    return 0.0 if parts is None else error_of(*parts)


def whole_error(a: AnyArray, b: AnyArray, product: AnyArray, turn: int) -> float:
    """About ‖C − Ĉ‖F / ‖C‖F of a whole product, or a whole stack. turn: other vectors for another.

    NaN if entries are not finite, memory is full, or a CUDA graph is being captured.
    """
    parts = _parts(projections, a, b, product, turn)
    is_known = parts is not None and bool(np.isfinite(parts[0]).any())
    return error_of(*parts) if parts is not None and is_known else math.nan


def _parts(
    part: ErrorParts, a: AnyArray, b: AnyArray, product: AnyArray, turn: int
) -> tuple[Array, Array] | None:
    """Parts of a product as NumPy arrays; a, b, product: arrays of one library, on one device.

    None for what is no array on a GPU any more, for a stream that is being captured, whose
    launches have no results yet, and if memory is full.
    """
    with np.errstate(all="ignore"):
        if type(product) is np.ndarray:
            return part(np, a, b, product, turn)
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
                exact, found = part(cupy, borrowed.a, borrowed.b, made, turn)
                return exact.get(), found.get()
            except cupy.cuda.memory.OutOfMemoryError:
                return None


def entries(
    xp: ModuleType, a: AnyArray, b: AnyArray, product: AnyArray, turn: int
) -> tuple[Any, Any]:
    """A few entries of a product in float64 or complex128, and those of the array that was made."""
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
