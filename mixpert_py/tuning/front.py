"""`mixpert tune --front`: the fastest plan within each of many budgets, by one search.

The native runs, the profile and the trials are shared by all steps. Then fresh processes run the
program as it is and under every step, in turn.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

from mixpert_py.errors import ProgramError, ShapeError
from mixpert_py.execution.executor import ProgramRun
from mixpert_py.tuner import front as tuner
from mixpert_py.tuner.front import TIGHTEST, Step
from mixpert_py.tuner.ratio import Pace
from mixpert_py.tuner.records import Outcome
from mixpert_py.tuning import record
from mixpert_py.tuning.prepare import Prepared
from mixpert_py.tuning.search import Speculation, TuningResult, leaves_undecided, plan_of
from mixpert_py.tuning.verify import (
    LEAST_PAIRS,
    MOST_PAIRS,
    SECONDS,
    lowered_by,
    pair_ratio,
    summary,
)


@dataclass(frozen=True, slots=True)
class FrontResult:
    """The staircase of a program.

    steps: the most accurate first, each faster than all before it; its outcome's budget is the
    tightest decade that it is within. fastest: the last of them; without one, the program as it
    is. left_out: how many plans of the search are no steps, because fresh processes did not
    confirm their errors, or that they are faster than the step before. compared: a sentence on what
    was compared by default, if there is anything to say. interrupted: whether the search was, so
    that its steps were not verified.
    """

    steps: tuple[TuningResult, ...]
    fastest: TuningResult
    left_out: int = 0
    compared: str = ""

    @property
    def interrupted(self) -> bool:
        return self.fastest.outcome.interrupted

    @property
    def unclear(self) -> bool:
        """Whether there is no step, since the machine did not tell what is faster."""
        return self.fastest.unclear


def tune_front(prepared: Prepared) -> FrontResult:
    """Search all budgets up to the options' one, and verify the steps.

    A budget below twice the spread of native runs is not searched: nobody could verify it.
    """
    runs = prepared.resources.runs if prepared.experiment.runs_apart else 1
    with Speculation(prepared.measure, runs) as speculation:
        found = tuner.front(
            speculation,
            prepared.problem,
            expect=speculation.expect if runs > 1 else None,
            tightest=max(TIGHTEST, 2 * prepared.baseline.spread),
        )
    outcome, steps = found.outcome, found.steps
    if speculation.interrupted:
        outcome = replace(outcome, interrupted=True)
    confirmed: list[TuningResult] = []
    unclear = not prepared.clock.predicts and leaves_undecided(outcome)
    if not outcome.interrupted:
        try:
            confirmed, is_unclear = _confirmed(prepared, outcome, steps)
            unclear = unclear or is_unclear
        except KeyboardInterrupt:
            outcome = replace(outcome, interrupted=True)
    left_out = len(steps) - len(confirmed)
    choice = prepared.experiment.comparison.choice
    compared = choice.sentence if choice else ""
    if confirmed:
        return FrontResult(tuple(confirmed), confirmed[-1], left_out, compared)
    natives = prepared.baseline.natives
    start = Step(outcome.budget, prepared.problem.start, outcome.start)
    as_it_is = _result(prepared, tuner.at(outcome, start), natives, natives)
    unclear = unclear and not outcome.interrupted
    return FrontResult((), replace(as_it_is, unclear=unclear), left_out, compared)


def _confirmed(
    prepared: Prepared, outcome: Outcome, steps: Sequence[Step]
) -> tuple[list[TuningResult], bool]:
    """The steps that hold in fresh processes, each faster than the step before for certain.

    And whether there was one that may be faster, or not.
    """
    natives, planned = _run_in_turn(prepared, steps)
    confirmed, unclear = [], False
    for step, runs, pace in _paces(prepared, steps, natives, planned):
        if pace is Pace.FASTER:
            confirmed.append(_result(prepared, tuner.at(outcome, step), natives, runs))
        unclear = unclear or pace is Pace.UNCLEAR
    return confirmed, unclear


def _paces(
    prepared: Prepared,
    steps: Sequence[Step],
    natives: Sequence[ProgramRun],
    planned: Sequence[Sequence[ProgramRun]],
) -> Iterator[tuple[Step, Sequence[ProgramRun], Pace]]:
    """The steps that hold, their runs, and whether each is faster than the program and than the
    last one that is. The search has said so where times are predicted.
    """
    before, before_plan = natives, prepared.problem.start
    for step, runs in zip(steps, planned, strict=True):
        if not _holds(step, runs, len(natives)):
            continue
        changed = [site for site in step.plan if step.plan[site] != before_plan[site]]
        paces = {
            pair_ratio(natives, runs, lowered_by(step.plan)).pace,
            pair_ratio(before, runs, changed).pace,
        }
        pace = Pace.NOT_FASTER
        if prepared.clock.predicts or paces == {Pace.FASTER}:
            pace, before, before_plan = Pace.FASTER, runs, step.plan
        elif Pace.NOT_FASTER not in paces:
            pace = Pace.UNCLEAR
        yield step, runs, pace


def _run_in_turn(
    prepared: Prepared, steps: Sequence[Step]
) -> tuple[list[ProgramRun], list[list[ProgramRun]]]:
    """Native runs, and those of each step; a step that fails or is over its budget has fewer.

    Where times are measured, there are rounds until they tell which steps are faster.
    """
    experiment, reference = prepared.experiment, prepared.baseline.reference
    natives: list[ProgramRun] = []
    planned: list[list[ProgramRun]] = [[] for _ in steps]
    end = perf_counter() + SECONDS
    while True:
        made = len(natives)
        turn = [at for at, step in enumerate(steps) if _holds(step, planned[at], made)]
        if made % 2:
            turn.reverse()
        else:
            natives.append(experiment.native("verification, native", reference))
        for at in turn:
            try:
                run = experiment.planned(steps[at].plan, reference, "verification, planned")
            except (ProgramError, ShapeError):
                continue
            planned[at].append(run)
        if made % 2:
            natives.append(experiment.native("verification, native", reference))
        made += 1
        if prepared.clock.predicts or not turn or made >= MOST_PAIRS:
            return natives, planned
        paces = [pace for _, _, pace in _paces(prepared, steps, natives, planned)]
        is_over = perf_counter() > end and made >= LEAST_PAIRS
        if is_over or (Pace.UNCLEAR not in paces and made == LEAST_PAIRS):
            return natives, planned


def _holds(step: Step, runs: Sequence[ProgramRun], rounds: int) -> bool:
    """Whether no run of a step failed, or was over its budget."""
    return len(runs) == rounds and all(run.error <= step.budget for run in runs)


def _result(
    prepared: Prepared,
    outcome: Outcome,
    natives: Sequence[ProgramRun],
    runs: Sequence[ProgramRun],
) -> TuningResult:
    """One step as a tuning with its budget."""
    options, clock = prepared.options, prepared.clock
    found = summary(natives, runs, lowered_by(outcome.plan))
    limits = options.limits.scaled(outcome.budget / options.limits.budget)
    criteria = record.criteria(limits, options.reference, found.errors)
    return TuningResult(
        outcome,
        plan_of(prepared, outcome, outcome.plan, criteria),
        options.limits,
        found,
        predicted=clock.predicts,
        device=clock.device,
    )
