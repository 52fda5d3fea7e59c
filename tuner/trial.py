"""One plan, what it measured, and how it was judged."""

from collections.abc import Mapping
from dataclasses import dataclass

from mixpert_py.tuner.measurement import Measurement
from mixpert_py.tuner.reason import Reason


@dataclass(frozen=True, slots=True)
class Trial:
    """A plan against the one that the search stood on when it was tried.

    changed: the sites in which the two differ; gain: time that those sites save together, NaN if
    the run failed; reason: KEPT where it passed, else why it was refused.
    Of incomparable schemes several may pass; only the best of them is then stood on.
    """

    plan: Mapping[str, str]
    measurement: Measurement
    changed: tuple[str, ...] = ()
    gain: float = 0.0
    reason: Reason = Reason.KEPT
