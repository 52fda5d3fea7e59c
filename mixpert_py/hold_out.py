"""A plan on data that it was not tuned on: the same program with other arguments."""

from collections.abc import Mapping
from math import inf, nan

from mixpert_py.baseline import reference_of
from mixpert_py.errors import ProgramError, ShapeError
from mixpert_py.experiment import Experiment


class HoldOut:
    """The program with the hold-out's arguments, and what its error may be under a plan.

    error: that of the plan asked for last, NaN where the program failed. Raises ProgramError if the
    program fails natively.
    """

    def __init__(self, experiment: Experiment, budget: float) -> None:
        self._experiment = experiment
        self._budget = budget
        self._reference = reference_of(experiment, experiment.native("hold-out, native run"))
        self.error = 0.0

    def excess(self, plan: Mapping[str, str]) -> float:
        """How many times the budget the error under a plan is; NaN if the program fails there."""
        try:
            self.error = self._experiment.planned(plan, self._reference, "hold-out").error
        except (ProgramError, ShapeError):
            self.error = nan
        if self.error <= self._budget:
            return 1.0
        return self.error / self._budget if self._budget else inf
