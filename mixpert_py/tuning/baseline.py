"""What a program does before anything is lowered: its values, its spread, and its operators."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isnan

import numpy as np

from mixpert_py.errors import BudgetError, ProgramError, ShapeError
from mixpert_py.execution import outputs
from mixpert_py.execution.executor import Run, Values
from mixpert_py.execution.worker import SiteResult
from mixpert_py.tuning.experiment import Experiment

NATIVE_RUNS = 3
FLOAT64, NATIVE = "float64", "native"  # what errors are measured against


@dataclass(frozen=True, slots=True)
class Baseline:
    """The native runs, judged; what errors are measured against; and the profile by site.

    reference: the program's values with every product in float64, or those of its first native run.
    """

    natives: tuple[Run, ...]
    reference: Values
    profile: dict[str, SiteResult]


def establish(
    experiment: Experiment, levels: Callable[[], Sequence[str]], reference: str = FLOAT64
) -> Baseline | None:
    """Run the program natively, then once more to profile each level, if any.

    levels: those of the ladder, asked for once the native runs were made.

    reference: as for `reference_of`. None if it calls no product. Raises ProgramError if it fails
    or has nothing to compare, BudgetError if its own spread is more than half of a budget.
    """
    name = experiment.program.argv[0]
    first = experiment.native()
    if not first.result.sites:
        return None
    _require_numbers(name, first)
    others = [experiment.native() for _ in range(NATIVE_RUNS - 1)]
    for run in others:
        _require_steady(experiment, first, run)
    values = reference_of(experiment, first, reference)
    natives = tuple(experiment.judged(run, values) for run in (first, *others))
    profile = experiment.profile(names) if (names := levels()) else first
    return Baseline(natives, values, profile.result.sites)


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


def _require_steady(experiment: Experiment, first: Run, other: Run) -> None:
    """Raise BudgetError, naming the value, where two native runs differ by too much.

    ProgramError where that cannot be said: a criterion of the user's gives no number.
    """
    name, limits = experiment.program.argv[0], experiment.comparison.judge.limits
    # Of what is printed, the reader can be shown where: times, most often.
    where = outputs.largest_difference(first.printed, other.printed)
    at = f" ({where})" if where else ""
    try:
        spread = experiment.judged(other, first.values)
    except ShapeError as error:
        raise BudgetError(f"{name}: native runs differ: {error}{at}") from None
    if not spread.error <= limits.budget / 2:
        value = spread.worst
        metric = limits.of(value).metric
        if ":" in metric and isnan(spread.errors[value]):
            raise ProgramError(
                f"criterion {metric} returned NaN for {value!r} of two native runs; an error is ≥ 0"
            )
        at = at if value == outputs.STDOUT else ""
        raise BudgetError(
            f"{name}: {value!r} differs by {spread.errors[value]:.2g} between native runs{at}, "
            f"more than half the budget of {limits.of(value).budget:g}; seed its random numbers, "
            "or compare another value with --compare"
        )


def reference_of(experiment: Experiment, native: Run, reference: str) -> Values:
    """What errors are measured against: the native run's own values, where that is asked for.

    Else those with every product in float64: a run more where some are narrower.
    """
    if reference == NATIVE:
        return native.values
    dtypes = {dtype for site in native.result.sites.values() for dtype in site.dtypes}
    if dtypes.isdisjoint({"float32", "float16", "complex64"}):
        return native.values
    return experiment.everywhere("float64").values
