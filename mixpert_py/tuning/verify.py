"""Whether a plan holds: fresh processes run the program natively and under the plan, in turn.

`verify` follows a search, and `check_plan` is the command `mixpert verify`, for a plan file and a
program as it is today.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import inf, isnan
from statistics import median
from time import perf_counter

from mixpert_py.errors import BudgetError, ProgramError, ShapeError
from mixpert_py.execution.executor import ProgramRun
from mixpert_py.execution.outputs import Values
from mixpert_py.launch.program import Program
from mixpert_py.plan import Criterion, Plan, module_of
from mixpert_py.runtime.backends import emulates
from mixpert_py.runtime.reasons import Reason
from mixpert_py.tuner.ratio import OF_RUNS, SMALLEST_GAIN, Pace, Ratio
from mixpert_py.tuner.records import largest_of_each
from mixpert_py.tuner.tuning_record import Gain, finite
from mixpert_py.tuning.baseline import establish, first_run
from mixpert_py.tuning.experiment import Experiment, RunSettings
from mixpert_py.tuning.options import Limits, TuningOptions
from mixpert_py.tuning.project_sites import library_modules, read_sites, with_called
from mixpert_py.tuning.trials import Say

LEAST_PAIRS, MOST_PAIRS = 3, len(OF_RUNS) + 1  # of runs that are timed: the two looks at them
FEWEST_PAIRS = 2  # after a long search, where times of products alone are known as well
SECONDS = 60.0  # after which no other pair is begun, once there are two


@dataclass(frozen=True, slots=True)
class Verification:
    """The errors and times of native and planned runs; times are medians, in seconds.

    error: the largest error of the planned runs against the reference, or the largest share of a
    budget (see `Limits`); worst: the value that has it; errors: the largest error of each value.
    native_seconds: wall-clock time of the program; spread: between the slowest and the fastest run
    of the same kind, the larger of both. native_lowered: time in the products that the plan lowers;
    ratio: of these, by pairs of runs, pooled with that of the products made by themselves where a
    tuning knows it; whole: of the whole runs.
    """

    error: float
    worst: str
    native_seconds: float
    spread: float
    native_lowered: float
    ratio: Ratio
    whole: Ratio = field(default_factory=Ratio)
    errors: Mapping[str, float] = field(default_factory=dict)

    @property
    def lowered(self) -> float:
        """The time under the plan in the products that it lowers."""
        return self.native_lowered * self.ratio.mean

    @property
    def pace(self) -> Pace:
        """Whether the plan is faster, by the products that it lowers."""
        return self.whole.pace if self._is_lost else self.ratio.pace

    def _carried(self, seconds: float) -> Ratio:
        """The ratio of a program of this native time, never beyond the limit of Amdahl (1967)."""
        return self.ratio.of_part(min(self.native_lowered / seconds, 1.0) if seconds else 0.0)

    @property
    def _is_lost(self) -> bool:
        """Whether whole runs show for certain that the gain is smaller, by more iterations, say."""
        return self.whole.least > self._carried(self.native_seconds).most

    def gain(self, pace: Pace | None, native_seconds: float | None = None) -> Gain:
        """The gain that every report shows. pace: None where nothing was lowered or timed.

        native_seconds: of the program, where other figures of the report go by another time than
        that of these runs. The lowered products save as much of it as of these runs.
        """
        before = finite(self.native_seconds if native_seconds is None else native_seconds)
        ratio = self.whole if self._is_lost else self._carried(before or self.native_seconds)
        if before is None or pace is not Pace.FASTER:
            return Gain(before=before, after=before, verdict="" if pace is None else pace.value)
        return Gain(
            before=before,
            after=before * ratio.mean,
            times=1 / ratio.mean,
            least=1 / ratio.most,
            most=1 / ratio.least if ratio.least > 0 else None,
            verdict="faster",
        )


def verify(
    experiment: Experiment,
    reference: Values,
    plan: Mapping[str, str],
    *,
    timed: bool,
    runs: int = 2 * MOST_PAIRS,
    alone: Ratio | None = None,
) -> Verification:
    """Run a plan as often as the program without it, in turn.

    timed: whether the times of runs mean something; then there are pairs until they tell which is
    faster, in so many runs at most, but the fewest pairs in any case. alone: the ratio of the
    lowered products that were made by themselves, with which that of the runs is pooled. Raises
    BudgetError if it is over a budget, ProgramError if it fails.
    """
    least = LEAST_PAIRS if alone is None else FEWEST_PAIRS
    most = max(least, min(runs // 2, MOST_PAIRS)) if timed else 1
    found, _ = _run_in_turn(experiment, reference, plan, most=most, alone=alone)
    limits = experiment.comparison.limits
    if not found.error <= limits.budget:
        raise BudgetError(
            f"{experiment.program.argv[0]}: the plan that was found has an error of "
            f"{found.errors[found.worst]:.2g} in {found.worst!r} when it is run again, over the "
            f"budget of {limits.of(found.worst).budget:g}; nothing was written"
        )
    return found


def _run_in_turn(
    experiment: Experiment,
    reference: Values,
    plan: Mapping[str, str],
    *,
    most: int,
    alone: Ratio | None = None,
) -> tuple[Verification, ProgramRun]:
    """The verification by pairs of runs, at most so many, and the last planned run."""
    natives: list[ProgramRun] = []
    planned: list[ProgramRun] = []
    lowered = [site for site, scheme in plan.items() if scheme != "native"]
    end = perf_counter() + SECONDS
    while True:
        is_planned_first = len(natives) % 2 == 1
        if is_planned_first:
            planned.append(experiment.planned(plan, reference, "verification, planned"))
        natives.append(experiment.native("verification, native", reference))
        if not is_planned_first:
            planned.append(experiment.planned(plan, reference, "verification, planned"))
        if len(natives) >= most or (len(natives) >= LEAST_PAIRS and perf_counter() > end):
            break
        looks = len(natives) == LEAST_PAIRS
        if looks and pair_ratio(natives, planned, lowered, alone).pace is not Pace.UNCLEAR:
            break
    return summary(natives, planned, lowered, alone), planned[-1]


def summary(
    natives: Sequence[ProgramRun],
    planned: Sequence[ProgramRun],
    lowered: Sequence[str] = (),
    alone: Ratio | None = None,
) -> Verification:
    """The verification of runs that were made; the planned ones are judged. alone: see `verify`."""

    def spread(runs: Sequence[ProgramRun]) -> float:
        seconds = [run.seconds for run in runs]
        return max(seconds) - min(seconds)

    # A NaN is the worst of all, and cannot be compared with the others.
    worst = max(planned, key=lambda run: (isnan(run.error), run.error))
    return Verification(
        worst.error,
        worst.worst,
        native_seconds=median(run.seconds for run in natives),
        spread=max(spread(natives), spread(planned)),
        native_lowered=median(_seconds_in(run, lowered) for run in natives),
        ratio=pair_ratio(natives, planned, lowered, alone),
        whole=pair_ratio(natives, planned),
        errors=largest_of_each(run.errors for run in planned),
    )


def pair_ratio(
    natives: Sequence[ProgramRun],
    planned: Sequence[ProgramRun],
    lowered: Sequence[str] | None = None,
    alone: Ratio | None = None,
) -> Ratio:
    """The time in the lowered products under a plan over their native time, by pairs of runs.

    lowered: None for whole runs. alone: see `verify`; it counts where the pairs show a gain.
    """
    pairs = zip(natives, planned, strict=True)
    times = [(_seconds_in(a, lowered), _seconds_in(b, lowered)) for a, b in pairs]
    found = Ratio.of(times, OF_RUNS)
    # The median: one pair that the machine disturbed does not outweigh two others.
    if alone is None or median(b / a if a else 1.0 for a, b in times) > 1 - SMALLEST_GAIN:
        return found
    return found.pooled(alone)


def _seconds_in(run: ProgramRun, sites: Sequence[str] | None) -> float:
    return run.seconds if sites is None else sum(run.site_seconds.get(site, 0.0) for site in sites)


def criteria(
    limits: Limits, reference: str, errors: Mapping[str, float], hold_out: Mapping[str, float] = {}
) -> list[Criterion]:
    """An entry for every value that is judged; infinite errors where none could be compared."""
    entries = []
    for name, error in errors.items():
        limit, there = limits.of(name), hold_out.get(name)
        error = inf if isnan(error) else error
        there = inf if there is not None and isnan(there) else there
        entries.append(Criterion(name, limit.metric, limit.budget, error, reference, there))
    return entries


@dataclass(frozen=True, slots=True)
class PlanVerdict:
    """The result of running a program under a plan file in fresh processes.

    problem: why there is no verification; a plan that lowers nothing needs none. stale: sites of
    the plan that the program lacks; silent: those that it has and did not call; fallbacks: site →
    reason → calls that did not take the planned scheme. emulated: whether times have no meaning.
    notes: a sentence on what was compared.
    """

    options: TuningOptions
    verification: Verification | None = None
    problem: str = ""
    stale: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    fallbacks: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    lowers: bool = False
    emulated: bool = False
    notes: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether every error is within its budget and no site is stale."""
        found = self.verification
        if found is None:
            return not (self.problem or self.lowers or self.stale)
        return found.error <= self.options.limits.budget and not self.stale

    @property
    def outside(self) -> int:
        """Calls whose product was less accurate than when the plan was made, and ran natively."""
        return sum(reasons.get(Reason.OUTSIDE_PLAN, 0) for reasons in self.fallbacks.values())

    @property
    def values(self) -> list[Criterion]:
        """Every value with its limit and error, as a plan lists them; none without a run."""
        errors = self.verification.errors if self.verification else {}
        return criteria(self.options.limits, self.options.reference, errors)

    @property
    def pace(self) -> Pace | None:
        """Whether the products that the plan lowers gain by it; None where that was not timed."""
        found = self.verification
        return None if found is None or self.emulated or not self.lowers else found.pace


def check_plan(
    program: Program, plan: Plan, options: TuningOptions, on_run: Say = lambda purpose: None
) -> PlanVerdict:
    """Run a program natively and under a plan, in turn, and judge the plan.

    options: with nothing to compare, that is what the plan's own command named. Raises ProgramError
    if the program fails natively, or lacks a value that has a limit of its own, BudgetError if it
    is too noisy for its limit.
    """
    project = read_sites(program, options.packages)
    planned_sites = [site.id for site in plan.site]
    libraries = library_modules(map(module_of, planned_sites), options.packages)
    project = with_called(project, libraries, {}, planned_sites)
    entries = {site: entry for site in project.sites if (entry := plan.find(site)) is not None}
    known = {entry.id for entry in entries.values()}
    stale = tuple(
        site for site in planned_sites if site not in known and module_of(site) in project.modules
    )
    if not entries:
        return PlanVerdict(options, problem="it has none of the plan's call sites", stale=stale)
    schemes = {site: entry.scheme for site, entry in entries.items()}
    if set(schemes.values()) == {"native"}:
        return PlanVerdict(options, stale=stale)
    compare = options.compare or _compared(plan.provenance.command)
    experiment = Experiment(
        program,
        replace(options, compare=compare),
        project.flow,
        RunSettings(on_run),
        guarded={site: entry.error for site, entry in entries.items() if plan.guard == "on"},
    )
    first = first_run(experiment)
    if first is None:
        return PlanVerdict(options, problem="it calls no matrix product", stale=stale)
    baseline = establish(experiment, first, reference=options.reference)
    options = replace(options, limits=experiment.comparison.limits)
    emulated = emulates(options.backend)
    try:
        most = 1 if emulated else MOST_PAIRS
        found, planned = _run_in_turn(experiment, baseline.reference, schemes, most=most)
    except (ProgramError, ShapeError) as failure:
        return PlanVerdict(options, problem=f"under the plan, {failure}", stale=stale)
    traces = planned.result.sites
    return PlanVerdict(
        options,
        found,
        stale=stale,
        silent=tuple(site for site in entries if site not in {*traces, *baseline.elsewhere}),
        fallbacks={
            site: traces[site].reasons
            for site in entries
            if site in traces and traces[site].reasons
        },
        lowers=True,
        emulated=emulated,
        notes=(note_on(experiment, found),),
    )


def note_on(experiment: Experiment, verification: Verification) -> str:
    choice = experiment.comparison.choice
    return choice.sentence if choice else f"Compared: {', '.join(verification.errors)}."


def _compared(command: str) -> tuple[str, ...]:
    """Return the values that the command which made a plan compared."""
    try:
        words = shlex.split(command)
    except ValueError:  # a person may have written it
        return ()
    joined = (word.removeprefix("--compare=") for word in words if word.startswith("--compare="))
    return (*(value for word, value in pairwise(words) if word == "--compare"), *joined)
