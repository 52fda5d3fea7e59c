"""A plan on data that it was not tuned on: the same program with other arguments."""

from collections.abc import Mapping
from math import nan

from mixpert_py.errors import ProgramError, ShapeError
from mixpert_py.tuning.baseline import reference_of
from mixpert_py.tuning.experiment import Experiment


class HoldOut:
    """The program with the hold-out's arguments, and what its error may be under a plan.

    errors: value → its error under the plan asked for last; none where the program failed. Raises
    ProgramError if the program fails natively.
    """

    def __init__(self, experiment: Experiment, reference: str) -> None:
        self._experiment = experiment
        self._limits = experiment.comparison.judge.limits
        native = experiment.native("hold-out, native run")
        self._reference = reference_of(experiment, native, reference)
        self.errors: Mapping[str, float] = {}

    @property
    def error(self) -> float:
        """The error that takes the largest share of its budget; NaN where the program failed."""
        return self.errors[self._limits.worst(self.errors)[1]] if self.errors else nan

    def excess(self, plan: Mapping[str, str]) -> float:
        """How many times the budget the error under a plan is; NaN if the program fails there."""
        try:
            run = self._experiment.planned(plan, self._reference, "hold-out")
        except (ProgramError, ShapeError):
            self.errors = {}
            return nan
        self.errors = run.errors
        return max(1.0, self._limits.of(run.worst).share(run.errors[run.worst]))
