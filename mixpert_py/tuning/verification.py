"""Whether a plan holds: fresh processes, native and planned ones in turn."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan
from statistics import median

from mixpert_py.errors import BudgetError
from mixpert_py.execution.executor import Run, Values
from mixpert_py.tuner.noise import largest_of_each
from mixpert_py.tuning.experiment import Experiment

PAIRS = 3


@dataclass(frozen=True, slots=True)
class Verification:
    """What fresh processes showed; times are medians, in seconds.

    error: the largest of the planned runs, by the criterion, against the reference, or the largest
    share of a budget (see `Limits`); worst: the value that it was found in; errors: the largest
    error of each value. native_seconds, seconds: wall time
    of the program; spread: between the slowest and the fastest run of the same kind, the larger.
    native_lowered, lowered: time in the products that the plan lowers.
    """

    error: float
    worst: str
    native_seconds: float
    seconds: float
    spread: float
    native_lowered: float
    lowered: float
    errors: Mapping[str, float] = field(default_factory=dict)


def verify(
    experiment: Experiment,
    reference: Values,
    plan: Mapping[str, str],
    pairs: int = PAIRS,
) -> Verification:
    """Run a plan as often as the program without it, in turn.

    Raises BudgetError if it is over a budget, ProgramError if it fails.
    """
    natives, planned = in_turn(experiment, reference, plan, pairs)
    found = summary(natives, planned, lowered_by(plan))
    limits = experiment.comparison.judge.limits
    if not found.error <= limits.budget:
        raise BudgetError(
            f"{experiment.program.argv[0]}: the plan that was found has an error of "
            f"{found.errors[found.worst]:.2g} in {found.worst!r} in a fresh process, over the "
            f"budget of {limits.of(found.worst).budget:g}; nothing was written"
        )
    return found


def in_turn(
    experiment: Experiment, reference: Values, plan: Mapping[str, str], pairs: int
) -> tuple[list[Run], list[Run]]:
    """Native and planned runs, judged. Raises ProgramError or ShapeError if one fails."""
    natives, planned = [], []
    for _ in range(pairs):
        natives.append(experiment.native("verification, native", reference))
        planned.append(experiment.planned(plan, reference, "verification, planned"))
    return natives, planned


def lowered_by(plan: Mapping[str, str]) -> list[str]:
    """The sites that a plan does not leave native."""
    return [site for site, scheme in plan.items() if scheme != "native"]


def summary(
    natives: Sequence[Run], planned: Sequence[Run], lowered: Sequence[str] = ()
) -> Verification:
    """The same of runs that were made already; the planned ones are judged."""

    def time_in(runs: Sequence[Run]) -> float:
        return median(sum(run.site_seconds.get(site, 0.0) for site in lowered) for run in runs)

    # A NaN is the worst of all, and compares with nothing.
    worst = max(planned, key=lambda run: (isnan(run.error), run.error))
    return Verification(
        worst.error,
        worst.worst,
        native_seconds=median(run.seconds for run in natives),
        seconds=median(run.seconds for run in planned),
        spread=max(_spread(natives), _spread(planned)),
        native_lowered=time_in(natives),
        lowered=time_in(planned),
        errors=largest_of_each(run.errors for run in planned),
    )


def _spread(runs: Sequence[Run]) -> float:
    seconds = [run.seconds for run in runs]
    return max(seconds) - min(seconds)
