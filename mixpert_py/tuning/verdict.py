"""Whether a plan file still holds for a program as it is today: what `mixpert verify` finds."""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from mixpert_py.errors import ProgramError, ShapeError, named
from mixpert_py.launch.launcher import Program
from mixpert_py.passes.pipeline import analyze, dependencies
from mixpert_py.plan import Criterion, Plan, Site
from mixpert_py.runtime.in_force import emulates
from mixpert_py.tuner.noise import SMALLEST_GAIN
from mixpert_py.tuning.baseline import FLOAT64, establish
from mixpert_py.tuning.comparison import Comparison
from mixpert_py.tuning.experiment import Experiment
from mixpert_py.tuning.limits import Limits
from mixpert_py.tuning.tuned_plan import criteria
from mixpert_py.tuning.verification import PAIRS, Verification, in_turn, lowered_by, summary


@dataclass(frozen=True, slots=True)
class Question:
    """How a plan is to be judged; limits as `budget.limits_of` gives them.

    compare: as for `mixpert tune`; none: what the plan's own command names, else what `mixpert
    tune` compares by itself. reference: as for `baseline.reference_of`.
    """

    limits: Limits
    compare: tuple[str, ...] = ()
    backend: str | None = None
    time_limit: float | None = None
    reference: str = FLOAT64


@dataclass(frozen=True, slots=True)
class Verdict:
    """What fresh processes showed of a plan.

    problem: why there is no verification: the program fails under the plan, or has nothing that
    the plan speaks of. stale: sites of the plan that the program has no more; silent: those that
    it has, and did not call; fallbacks: site → reason → calls that did not take the planned
    scheme. emulated: the times are those of an emulation, and say nothing.
    """

    question: Question
    verification: Verification | None = None
    problem: str = ""
    stale: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    fallbacks: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    lowers: bool = False
    emulated: bool = False

    @property
    def holds(self) -> bool:
        found = self.verification
        return found is not None and found.error <= self.question.limits.budget and not self.stale

    @property
    def values(self) -> list[Criterion]:
        """Every value with its limit and error, as a plan lists them; none without a run."""
        errors = self.verification.errors if self.verification else {}
        return criteria(self.question.limits, self.question.reference, errors)

    @property
    def faster(self) -> bool | None:
        """Whether the products that the plan lowers gain by it; None where that was not timed."""
        found = self.verification
        if found is None or self.emulated or not self.lowers:
            return None
        return found.lowered <= (1 - SMALLEST_GAIN) * found.native_lowered


def verdict(
    program: Program,
    plan: Plan,
    question: Question,
    on_run: Callable[[str], None] = lambda purpose: None,
) -> Verdict:
    """Run a program natively and under a plan, in turn, and judge the plan.

    Entries of other modules are not looked at: the program's imports run as they are. on_run: told
    what each run is for before it starts. Raises ProgramError if the program fails natively,
    or does not show a value that has a limit of its own, BudgetError if it is too noisy for it.
    """
    with named(program.argv[0], program.module):
        found = analyze(program.source, program.module)
        flow = dependencies(program.source, program.module)
    entries = {
        site.id: entry
        for site in found
        if site.reason is None and (entry := plan.find(site.id)) is not None
    }
    stale = _stale(plan, entries, program.module)
    if not entries:
        return Verdict(question, problem="it has none of the plan's call sites", stale=stale)
    compare = question.compare or _compared(plan.provenance.command)
    experiment = Experiment(
        program,
        Comparison.of(program, question.limits, compare, flow),
        backend=question.backend,
        blocks={site: entry.block for site, entry in entries.items()},
        time_limit=question.time_limit,
        on_run=on_run,
    )
    baseline = establish(experiment, tuple, question.reference)
    if baseline is None:
        return Verdict(question, problem="it calls no matrix product", stale=stale)
    schemes = {site: entry.scheme for site, entry in entries.items()}
    emulated = emulates(question.backend)
    try:
        natives, planned = in_turn(
            experiment, baseline.reference, schemes, 1 if emulated else PAIRS
        )
    except (ProgramError, ShapeError) as failure:
        return Verdict(question, problem=f"under the plan, {failure}", stale=stale)
    traces = planned[-1].result.sites
    lowered = lowered_by(schemes)
    return Verdict(
        question,
        summary(natives, planned, lowered),
        stale=stale,
        silent=tuple(site for site in entries if site not in traces),
        fallbacks={
            site: traces[site].reasons
            for site in entries
            if site in traces and traces[site].reasons
        },
        lowers=bool(lowered),
        emulated=emulated,
    )


def _stale(plan: Plan, entries: Mapping[str, Site], module: str) -> tuple[str, ...]:
    """Entries of this module that no call site finds."""
    known = {entry.id for entry in entries.values()}
    return tuple(
        site.id for site in plan.site if site.id not in known and site.id.startswith(f"{module}:")
    )


def _compared(command: str) -> tuple[str, ...]:
    """What the command that made a plan was told to compare."""
    try:
        words = shlex.split(command)
    except ValueError:  # a person may have written it
        return ()
    apart = [value for word, value in pairwise(words) if word == "--compare"]
    joined = [word.removeprefix("--compare=") for word in words if word.startswith("--compare=")]
    return (*apart, *joined)
