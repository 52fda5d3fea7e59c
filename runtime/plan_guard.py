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
"""

import math
from typing import Final

import numpy as np

from mixpert_py.runtime.arrays import AnyArray
from mixpert_py.runtime.product_error import DeviceSample, sample, sampled_error, whole_error
from mixpert_py.runtime.program_frames import warn
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
