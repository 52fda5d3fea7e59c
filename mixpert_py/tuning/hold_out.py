"""Other inputs of a program, under which a plan must hold without having been tuned on them."""

import shlex
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import nan
from pathlib import Path

import numpy as np

from mixpert_py import files
from mixpert_py.errors import ProgramError, ShapeError
from mixpert_py.execution.executor import is_timeout
from mixpert_py.execution.outputs import Values
from mixpert_py.tuner.records import PlanKey, largest, largest_of_each, plan_key
from mixpert_py.tuning.baseline import reference_of
from mixpert_py.tuning.experiment import Experiment

MOST_HANGS = 2  # under plans, after which every other plan fails there unrun
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class HoldOutErrors:
    """The errors of a plan that holds on every other input.

    inputs: the arguments of each, as they are typed, and its error, or the largest share of a
    budget (see `Limits`). values: value → its largest error. tightened: how often a plan was over a
    budget on one of them, and the search went on with a smaller budget: the number of such plans.
    """

    inputs: tuple[tuple[str, float], ...]
    values: Mapping[str, float]
    tightened: int

    @property
    def error(self) -> float:
        return largest(error for _, error in self.inputs)


class HoldOuts:
    """The program on each other input. Raises ProgramError if the first one fails natively."""

    def __init__(self, experiments: Sequence[Experiment], reference: str) -> None:
        # Their references are on disk, as long as this object lives: they may be large, and many.
        self._folder = ExitStack()
        folder = Path(self._folder.enter_context(files.temporary_folder()))
        count = len(experiments)
        self._inputs = [
            _Input(
                experiment,
                reference,
                folder / f"{number}.npz",
                "hold-out" if count == 1 else f"hold-out {number} of {count}",
            )
            for number, experiment in enumerate(experiments, 1)
        ]
        self._order = list(self._inputs)
        self._failed: dict[PlanKey, float] = {}  # plan → its excess
        self._inputs[0].reference()

    def excess(self, plan: Mapping[str, str]) -> float:
        """The error of a plan on the first input where it is over the budget, in budgets.

        1 where there is none; NaN if the program fails there, or if it hung under two other plans:
        each such run takes all of its time limit. The next plan is judged there first, and none
        twice: a search with a smaller budget may end in the same one.
        """
        key = plan_key(plan)
        if key in self._failed:
            return self._failed[key]
        if sum(one.hangs for one in self._inputs) >= MOST_HANGS:
            self._failed[key] = nan
            return nan
        for one in self._order:
            share = one.share(plan)
            if not share <= 1:
                self._order.remove(one)
                self._order.insert(0, one)
                self._failed[key] = share
                return share
        return 1.0

    def errors(self) -> HoldOutErrors:
        """The errors of the last plan, which holds everywhere."""
        return HoldOutErrors(
            tuple((one.arguments, one.error) for one in self._inputs),
            largest_of_each(one.errors for one in self._inputs),
            len(self._failed),
        )


class _Input:
    """One input: its arguments, its reference values, and its errors under the last plan.

    file: for the values. purpose: of its runs. hangs: plans under which it ran into its time limit.
    error: the one that takes the largest share of its budget; NaN where the program failed.
    """

    def __init__(self, experiment: Experiment, reference: str, file: Path, purpose: str) -> None:
        self._experiment = experiment
        self._kind = reference
        self._file = file
        self._purpose = purpose
        self._names: list[str] = []  # of the values in the file
        self.arguments = shlex.join(experiment.program.argv[1:])
        self.errors: Mapping[str, float] = {}
        self.error = nan
        self.hangs = 0

    def reference(self) -> Values:
        """The values that errors are measured against. Raises ProgramError if the program fails."""
        if self._names:
            with np.load(self._file, allow_pickle=False) as saved:
                return {name: saved[f"arr_{at}"] for at, name in enumerate(self._names)}
        try:
            native = self._experiment.native(f"{self._purpose}, native run")
        except ProgramError as failure:
            # Of many seeds, this tells which one the program does not take.
            raise ProgramError(f"--hold-out {self.arguments}: {failure}") from failure
        values = reference_of(self._experiment, native, self._kind)
        np.savez(self._file, *values.values())
        self._names = list(values)
        return values

    def share(self, plan: Mapping[str, str]) -> float:
        """The error under a plan, in budgets; NaN if the program fails there."""
        self.errors, self.error = {}, nan
        reference = self.reference()
        try:
            run = self._experiment.planned(plan, reference, self._purpose)
        except (ProgramError, ShapeError) as failure:
            self.hangs += is_timeout(str(failure))
            return nan
        limits = self._experiment.comparison.limits
        self.errors = run.errors
        self.error = run.errors[limits.worst(run.errors)[1]]
        return limits.of(run.worst).share(run.errors[run.worst])


def highest_rate(inputs: int, tightened: int = 0) -> float:
    """The largest part of inputs that may be over the budget where none of those drawn was.

    Of a plan that is over on a part p of all inputs, n inputs drawn at random show nothing with
    probability (1 − p)ⁿ: the bound is the p for which that is 5 %, the exact one of Clopper and
    Pearson (1934). tightened: how many plans before this one failed on the same inputs. They chose
    the plan, so each halves the 5 %.
    """
    doubt = (1 - CONFIDENCE) / 2**tightened
    return 1.0 - float(doubt ** (1 / inputs)) if inputs else 1.0
