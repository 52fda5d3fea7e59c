"""What a program does before anything is lowered: its values, its spread, and its operators."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mixpert_py.errors import BudgetError, ProgramError, ShapeError
from mixpert_py.experiment import Experiment
from mixpert_py.run import Run, Values
from mixpert_py.worker import SiteResult

NATIVE_RUNS = 3


@dataclass(frozen=True, slots=True)
class Baseline:
    """The native runs, judged; what errors are measured against; and the profile by site.

    reference: the program's values with every product in float64.
    """

    natives: tuple[Run, ...]
    reference: Values
    profile: dict[str, SiteResult]


def establish(experiment: Experiment, budget: float, levels: Sequence[str]) -> Baseline | None:
    """Run the program natively, then once more to profile each level of the ladder, if any.

    None if it calls no product. Raises ProgramError if it fails or has nothing to compare,
    BudgetError if its own spread is more than half the budget.
    """
    name = experiment.program.argv[0]
    first = experiment.native()
    if not first.result.sites:
        return None
    _require_numbers(name, first)
    others = [experiment.native() for _ in range(NATIVE_RUNS - 1)]
    for run in others:
        try:
            spread, value = experiment.error(first.values, run)
        except ShapeError as error:
            raise BudgetError(f"{name}: native runs differ: {error}") from None
        if not spread <= budget / 2:
            raise BudgetError(
                f"{name}: {value!r} differs by {spread:.2g} between native runs, more than half "
                f"the budget of {budget:g}; seed its random numbers, or compare another value "
                "with --compare"
            )
    reference = reference_of(experiment, first)
    natives = tuple(experiment.judged(run, reference) for run in (first, *others))
    profile = experiment.profile(levels) if levels else first
    return Baseline(natives, reference, profile.result.sites)


def _require_numbers(name: str, run: Run) -> None:
    """Raise ProgramError where there is nothing that an error could be measured by."""
    if not run.values:
        raise ProgramError(
            f"{name}: nothing to compare: no variable that holds floats from a product when the "
            "program ends; name one with --compare, or mark it with mixpert_py.observe()"
        )
    for value, array in run.values.items():
        if array.size and not np.isfinite(array).any():
            raise ProgramError(
                f"{name}: {value!r} has no finite number when the program ends; compare another "
                "value with --compare"
            )


def reference_of(experiment: Experiment, native: Run) -> Values:
    """The program's values with every product in float64: the native run's own, or a run more."""
    dtypes = {dtype for site in native.result.sites.values() for dtype in site.dtypes}
    if dtypes.isdisjoint({"float32", "float16"}):
        return native.values
    return experiment.everywhere("float64").values
