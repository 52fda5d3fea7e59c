"""A check that products under a plan are as accurate as when the plan was tuned.

A plan is tuned on some data and used on other. Each of its products has an error that was measured
then, relative to float64. Of a product of NumPy arrays, a few entries are computed in float64
beside the scheme's, and where these are off by more than MARGIN times that error, the program's own
product takes its place. So sums that cancel, rows of wider range and results beyond float32 are
found; a program that amplifies errors more than it did is not. Arrays on a GPU are not checked: the
host would have to wait for the device.
"""

import math
import warnings
from typing import Any, Final

import numpy as np

from mixpert_py.runtime.arrays import AnyArray
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes import get

MARGIN: Final = 10.0  # of the error when the plan was tuned: how far other data may go
FLOOR: Final = 1e-7  # of that error: of integers, say, a product may have been exact
LEAST_FLOOR: Final = 1e-15  # the float64 entries are themselves off by some of that
ROWS = COLUMNS = 8  # of the entries that are compared
# Multiplications since the last check after which the next product is checked. Those of one product
# of 1024³ take some 50 times as long on 16 cores as the check, which takes 50 µs; longer on fewer.
EACH: Final = 1 << 30
LEAST: Final = 1 << 18  # Below, none is: checking one in hundreds says nothing.


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
        self._is_reported = False

    def holds(self, a: AnyArray, b: AnyArray, product: AnyArray, stacklevel: int) -> bool:
        """Whether a product may be used; True for those that are not checked.

        Warns once for a site whose product may not, and checks each later one. stacklevel: of the
        program's own line.
        """
        work = product.size * a.shape[-1]
        self._unchecked += work
        if work < LEAST:
            return True
        self._calls += 1
        # The first call, the second, the fourth, …: data may change after the first.
        is_turn = self._calls & (self._calls - 1) == 0
        if not (is_turn or self._unchecked >= EACH or self._is_reported):
            return True
        self._unchecked = 0
        error = sampled_error(a, b, product, self._calls)
        if error <= self.limit:
            return True
        if not self._is_reported:
            self._is_reported = True
            warnings.warn(
                f"call site {self.site}: a product is off by {error:.1e}, and was by "
                f"{self.limit / MARGIN:.1e} when the plan was tuned; such products run natively",
                stacklevel=stacklevel,
            )
        return False


def sampled_error(a: AnyArray, b: AnyArray, product: AnyArray, turn: int) -> float:
    """‖C − Ĉ‖F / ‖C‖F of a few entries of a product, those of C that are finite; infinite where Ĉ
    is not finite there. turn: other entries for another.
    """
    if product.ndim > 2:
        index = np.unravel_index(turn % math.prod(product.shape[:-2]), product.shape[:-2])
        a = _matrix(a, product.shape[:-2], index)
        b = _matrix(b, product.shape[:-2], index)
        product = product[index]
    left = a if a.ndim > 1 else a[np.newaxis]
    right = b if b.ndim > 1 else b[:, np.newaxis]
    made = product.reshape(left.shape[0], right.shape[1])
    rows = _places(made.shape[0], ROWS, turn)
    start = int(_places(made.shape[1] - COLUMNS, 1, turn)[0]) if made.shape[1] > COLUMNS else 0
    columns = slice(start, start + COLUMNS)  # side by side: they share cache lines
    wide = np.result_type(product.dtype, np.float64)
    with np.errstate(all="ignore"):
        exact = left[rows].astype(wide) @ right[:, columns].astype(wide)
        found = made[rows, columns]
        is_known = np.isfinite(exact)
        exact, found = exact[is_known], found[is_known]
        if not np.isfinite(found).all():
            return math.inf
        size = float(np.linalg.norm(exact))
        off = float(np.linalg.norm(found - exact))
    return off / size if size else math.inf if off else 0.0


def _matrix(x: Any, stack: tuple[int, ...], index: tuple[Any, ...]) -> Any:
    """One matrix of an operand that is broadcast to a stack."""
    return np.broadcast_to(x, stack + x.shape[-2:])[index]


def _places(count: int, wanted: int, turn: int) -> Any:
    """So many of `count` numbers, spread evenly, others in each turn."""
    wanted = min(count, wanted)
    return (np.arange(wanted) * count // wanted + turn * 40503) % count
