"""What a search found: the plan, and for every operator what became of it and why."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from mixpert_py.tuner.measurement import Measurement
from mixpert_py.tuner.operator import Operator
from mixpert_py.tuner.reason import Reason
from mixpert_py.tuner.trial import Trial


@dataclass(frozen=True, slots=True)
class Verdict:
    """One operator: its scheme and time before and after, and why it was lowered no further.

    detail: the problem of a failed run (FAILED), or the id of the successor (RAISED).
    """

    operator: Operator
    before: str
    after: str
    seconds_before: float
    seconds_after: float
    reason: Reason
    detail: str = ""

    @property
    def local_error(self) -> float | None:
        """What the chosen scheme makes of this product's own operands; None: not profiled."""
        return self.operator.local_errors.get(self.after)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The best plan that was really run, longest operator first in `verdicts`.

    start, best: the measurements of the plan that the search began with and of `plan`.
    trials: every plan judged, in order, the first one included.
    best.error > budget only where the start is over the budget already.
    """

    plan: Mapping[str, str]
    verdicts: tuple[Verdict, ...]
    trials: tuple[Trial, ...]
    start: Measurement
    best: Measurement
    budget: float
    interrupted: bool = False

    @property
    def lowered(self) -> bool:
        """Whether any operator runs another scheme than at the start."""
        return any(verdict.before != verdict.after for verdict in self.verdicts)

    def share(self, verdict: Verdict) -> float:
        """The operator's part of the program's time at the start, 0 to 1; 0 if that is unknown."""
        program = self.start.seconds
        return verdict.seconds_before / program if 0 < program < inf else 0.0
