"""`mixpert tune` from a prepared program to its plan: search, verification, and the plan's entries.

While the search waits for a run, `Speculation` makes runs that it may ask for next. `HangGuard`
refuses plans that are likely to hang: such a run takes the whole time limit, which may be minutes.
Iterations that wait for a small residual hang at each level that is not accurate enough, and a
search would try them all.
"""

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace

import msgspec

from mixpert_py.errors import BudgetError
from mixpert_py.execution import process
from mixpert_py.execution.executor import is_timeout
from mixpert_py.interrupts import deferred_signals
from mixpert_py.plan import Criterion, Plan
from mixpert_py.runtime.schemes import get
from mixpert_py.sources.packages import described
from mixpert_py.tuner.ratio import Pace
from mixpert_py.tuner.records import (
    Measure,
    Measurement,
    Outcome,
    PlanKey,
    Reason,
    Schemes,
    plan_key,
)
from mixpert_py.tuner.report.record import Gain, searched_gain
from mixpert_py.tuner.report.summary import SHORT_PROGRAM, START_UP
from mixpert_py.tuner.report.unit import (
    budget_text,
    share_text,
    small_entries,
)
from mixpert_py.tuner.tune import tune
from mixpert_py.tuning import record
from mixpert_py.tuning.decisions import decisive_products
from mixpert_py.tuning.hold_out import HoldOutErrors
from mixpert_py.tuning.options import Limits, TuningOptions
from mixpert_py.tuning.paired import PairedTimes
from mixpert_py.tuning.prepare import MOST_RUNS, Prepared
from mixpert_py.tuning.verify import Verification, notes_on, summary, verify

COUNTS = 0.05  # of the time: products that save less do not leave a tuning undecided
Lowering = tuple[str, str]
"""Site, scheme."""


@dataclass(frozen=True, slots=True)
class TuningResult:
    """The result of a tuning.

    limits: of the errors. predicted: whether the search went by predicted times; device: the GPU
    that they are for. reverted: the search found a plan, but fresh processes showed no gain, so
    `plan` is the start of the search. unclear: whether this machine did not tell if the plan is
    faster, or if any would be. hold_out: the plan's errors on the hold-outs; None where there were
    none. notes: sentences on what was compared, and on decisions and counts.
    """

    outcome: Outcome
    plan: Plan
    limits: Limits
    verification: Verification
    predicted: bool
    reverted: bool = False
    unclear: bool = False
    hold_out: HoldOutErrors | None = None
    device: str = ""
    notes: tuple[str, ...] = ()

    @property
    def gain(self) -> Gain:
        """The gain that every report shows."""
        if self.predicted or self.outcome.interrupted:
            return searched_gain(self.outcome, self.predicted)
        pace = self.verification.pace if self.outcome.lowered else None
        pace = Pace.NOT_FASTER if self.reverted else pace
        return self.verification.gain(pace, self.outcome.start.seconds)

    @property
    def worth_writing(self) -> bool:
        """Whether the plan is better than none: not that of a search that had just begun."""
        return self.outcome.lowered or not self.outcome.interrupted


def tune_each(prepared: Prepared) -> list[TuningResult | BudgetError]:
    """The tuning for each budget of the options, the loosest first, until one is interrupted.

    They share their trials. A budget that no plan holds in fresh processes has the error.
    """
    found: list[TuningResult | BudgetError] = []
    for budget in (None, *prepared.options.stricter):
        try:
            result = tune_program(prepared if budget is None else prepared.within(budget))
        except BudgetError as error:
            found.append(error)
            continue
        found.append(result)
        if result.outcome.interrupted:
            break
    return found


def tune_program(prepared: Prepared) -> TuningResult:
    """Search, and verify what is found. Raises BudgetError if a fresh process does not confirm it,
    ProgramError if the program fails there.
    """
    options, clock = prepared.options, prepared.clock
    budget = options.limits.budget * (1 - options.margin)
    if not prepared.clock.native.error <= budget:
        budget = options.limits.budget  # the program itself takes more, and nothing can be kept
    outcome = replace(search(prepared, budget, options.search), budget=options.limits.budget)
    outcome, verification = _verified(prepared, outcome)
    complete = outcome.lowered and not outcome.interrupted
    # A gain that is small by the products' own times, and that runs do not show, is none.
    doubtful = (Pace.NOT_FASTER, *([Pace.UNCLEAR] if _saved(outcome) < COUNTS else []))
    reverted = complete and not clock.predicts and verification.pace in doubtful
    unclear = not (reverted or clock.predicts or outcome.interrupted) and _is_unclear(
        outcome, verification
    )
    # An interrupted search has asked the hold-out about another plan, or about none.
    judged = prepared.hold_outs is not None and complete and not reverted
    hold_out = prepared.hold_outs.errors() if prepared.hold_outs and judged else None
    if reverted:
        outcome = _taken_back(outcome, prepared.problem.start)
    # What a plan changes is of no interest once the plan was taken back.
    shown = replace(verification, counts={}, printed="") if reverted else verification
    notes = (
        *_notes(prepared, outcome, shown),
        *_start_up(verification, is_timed=complete and not clock.predicts),
        *_kept(options, budget, outcome.plan),
    )
    at_search = outcome.interrupted or reverted
    errors = outcome.best.errors if at_search else verification.errors
    criteria = record.criteria(
        options.limits, options.reference, errors, hold_out.values if hold_out else None
    )
    plan = plan_of(prepared, outcome, outcome.plan, criteria, gain=Pace.UNCLEAR if unclear else "")
    return TuningResult(
        outcome,
        plan,
        options.limits,
        verification,
        predicted=clock.predicts,
        reverted=reverted,
        unclear=unclear,
        hold_out=hold_out,
        device=clock.device,
        notes=notes,
    )


def _kept(options: TuningOptions, budget: float, plan: Schemes) -> list[str]:
    """A sentence on the part of the budget that the search left for other data."""
    has_errors = any(get(scheme).error for scheme in plan.values())
    if not (has_errors and options.margin and options.limits.budget):
        return []
    if budget == options.limits.budget:
        return ["The program natively needs the whole budget: none is kept for other data."]
    searched = f", {budget_text(budget)}" if options.limits.only else ""
    part = share_text(1 - options.margin)
    return [f"Tuned to {part} of the budget{searched}; the rest is kept for other data."]


def _start_up(verification: Verification, *, is_timed: bool) -> list[str]:
    """A sentence on the time that `mixpert run` adds, where a short program is faster."""
    is_faster = is_timed and verification.pace is Pace.FASTER
    return [START_UP] if is_faster and verification.native_seconds < SHORT_PROGRAM else []


def _taken_back(outcome: Outcome, start: Schemes) -> Outcome:
    """The outcome of a search whose plan showed no gain when it was verified: the start."""
    verdicts = tuple(
        replace(
            verdict,
            after=verdict.before,
            seconds_after=verdict.seconds_before,
            reason=Reason.NOT_FASTER,
            detail="",
        )
        if verdict.before != verdict.after
        else verdict
        for verdict in outcome.verdicts
    )
    return replace(outcome, plan=dict(start), verdicts=verdicts, best=outcome.start)


def _notes(prepared: Prepared, outcome: Outcome, verification: Verification) -> tuple[str, ...]:
    """The sentences on what was compared, on entries that no error shows, decisions and counts."""
    found = list(notes_on(prepared.experiment, verification))
    for verdict in outcome.verdicts:
        # All of these have one scale a row; `crt` itself keeps a bound for every element.
        has_one_scale = verdict.after.startswith(("int8", "crt")) and verdict.after != "crt"
        if has_one_scale and (hint := small_entries(verdict.operator.spread)):
            place = f"line {verdict.operator.place}, {verdict.operator.expression}"
            found.append(f"{place} ({verdict.after}): {hint}. To judge them: --criterion mred")
    if not outcome.interrupted:
        products = decisive_products(outcome, prepared.options.limits, prepared.measure)
        with suppress(KeyboardInterrupt):  # the plan is there, and this only explains it
            found += [product.sentence for product in products]
    return tuple(found)


def plan_of(
    prepared: Prepared,
    outcome: Outcome,
    schemes: Schemes,
    criteria: list[Criterion],
    gain: str = "",
) -> Plan:
    """The plan file of a search. schemes: those that are written. gain: see Provenance."""
    options, experiment = prepared.options, prepared.experiment
    origin = record.provenance(
        experiment.program, options.backend, options.command, prepared.resources.threads, gain
    )
    choice = experiment.comparison.choice
    return Plan(
        provenance=msgspec.structs.replace(
            origin, left_out=list(choice.left_out if choice else ())[:1000]
        ),
        package=described(options.packages),
        criterion=criteria,
        site=[
            *record.sites(outcome, schemes, experiment.blocks, predicted=prepared.clock.predicts),
            *prepared.other_entries,
        ],
    )


def search(prepared: Prepared, budget: float, kind: str, measure: Measure | None = None) -> Outcome:
    """One of `tuner.tune.SEARCHES`. measure: None for `prepared.measure`."""
    runs = prepared.resources.runs if prepared.experiment.runs_apart else 1
    with Speculation(measure or prepared.measure, runs) as speculation:
        made = speculation if runs > 1 else measure or prepared.measure
        guard = HangGuard(made, prepared.problem.start)

        def expect(plans: Sequence[Schemes]) -> None:
            speculation.expect(list(filter(guard.allows, plans)))

        outcome = tune(
            guard,
            replace(prepared.problem, budget=budget),
            search=kind,
            excess=prepared.hold_outs.excess if prepared.hold_outs else None,
            expect=expect if runs > 1 else None,
        )
    return replace(outcome, interrupted=True) if speculation.interrupted else outcome


def _verified(prepared: Prepared, outcome: Outcome) -> tuple[Outcome, Verification]:
    """The outcome, interrupted if its verification was, and the verification."""
    experiment, baseline = prepared.experiment, prepared.baseline
    cost = prepared.clock.cost
    if outcome.lowered and not outcome.interrupted:
        try:
            found = verify(
                experiment,
                baseline.reference,
                outcome.plan,
                timed=not prepared.clock.predicts,
                runs=MOST_RUNS - experiment.runs,
                alone=cost.of_plan(outcome.plan) if isinstance(cost, PairedTimes) else None,
            )
            return outcome, found
        except KeyboardInterrupt:
            outcome = replace(outcome, interrupted=True)
    return outcome, summary(baseline.natives, baseline.natives)


def _saved(outcome: Outcome) -> float:
    """The part of the program's time that the plan saves by the search's figures."""
    return 1 - outcome.best.seconds / outcome.start.seconds if outcome.start.seconds else 0.0


def _is_unclear(outcome: Outcome, verification: Verification) -> bool:
    """Whether measured times do not tell if the plan, or any other, is faster than the program."""
    if outcome.lowered:
        return verification.pace is Pace.UNCLEAR
    # A product that takes some of the time was left since no time told what is faster: float32
    # would save half of that time at most.
    return any(
        verdict.reason is Reason.UNCLEAR and outcome.share(verdict) / 2 >= COUNTS
        for verdict in outcome.verdicts
    )


class Speculation:
    """Measures the requested plan, and expected ones ahead, in threads; used in a `with`.

    measure: makes one run, in several threads at a time. runs: how many are made at a time. An
    exception of a thread is raised where its plan is requested. At the end of the `with` the
    threads are stopped. interrupted: whether Ctrl-C came just then.
    """

    def __init__(self, measure: Measure, runs: int) -> None:
        self._measure = measure
        self._begun: dict[PlanKey, Future[Measurement]] = {}
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(runs, "", process.stop.set, (self._stop,))
        self.interrupted = False

    def __enter__(self) -> "Speculation":
        return self

    def __exit__(self, *error: object) -> None:
        with deferred_signals() as interrupt:  # a second Ctrl-C must not leave processes behind
            self._stop.set()
            self._pool.shutdown(cancel_futures=True)
            try:
                interrupt.check()
            except KeyboardInterrupt:
                self.interrupted = True

    def __call__(self, plan: Schemes) -> Measurement:
        """The run that was made ahead, or is made now. Ctrl-C raises KeyboardInterrupt."""
        found = self._begun.pop(plan_key(plan), None) or self._pool.submit(self._measure, plan)
        with deferred_signals() as interrupt, interrupt.let_through():
            return found.result()

    def expect(self, plans: Sequence[Schemes]) -> None:
        """Make these next, and no others that have not been begun. The first is requested next."""
        self._begun = {key: made for key, made in self._begun.items() if not made.cancel()}
        for plan in plans:
            if (key := plan_key(plan)) not in self._begun:
                self._begun[key] = self._pool.submit(self._measure, plan)


@dataclass(slots=True)
class HangGuard:
    """A `Measure` that makes runs by another one, and refuses those that are likely to hang.

    start: the plan that a search begins with; only what differs from it can be the cause of a hang.

    A site that was the only suspect in a run that hung is not lowered again, at no level. Where
    several were suspects, no two of them are lowered together until runs that end in time have
    cleared them: a search then finds the cause by lowering them one by one. A run clears the
    schemes that it ended under.
    """

    measure: Measure
    start: Mapping[str, str]
    _cleared: set[Lowering] = field(default_factory=set)
    _guilty: dict[str, str] = field(default_factory=dict)  # site → scheme that it hung under
    _suspects: list[set[str]] = field(default_factory=list)  # sites, for each unexplained hang

    def __call__(self, plan: Mapping[str, str], /) -> Measurement:
        problem = self._refusal(plan)
        if problem:
            return Measurement(0.0, float("nan"), {}, problem)
        measured = self.measure(plan)
        lowered = self._uncleared(plan)
        if measured.problem is None:
            self._cleared |= lowered
        elif is_timeout(measured.problem):
            self._blame(lowered)
        return measured

    def allows(self, plan: Mapping[str, str]) -> bool:
        """Return whether this guard would run a plan."""
        return not self._refusal(plan)

    def _uncleared(self, plan: Mapping[str, str]) -> set[Lowering]:
        """Return the sites that a plan lowers, and to which schemes, that no run has cleared."""
        changed = {
            (site, scheme) for site, scheme in plan.items() if scheme != self.start.get(site)
        }
        return changed - self._cleared

    def _refusal(self, plan: Mapping[str, str]) -> str:
        """Why a plan is not run; empty if it is."""
        sites = {site for site, _ in self._uncleared(plan)}
        for site in sorted(sites & self._guilty.keys()):
            return f"not run: the program ran into its time limit under {self._guilty[site]} here"
        if any(len(sites & suspects) > 1 for suspects in self._suspects):
            return "not run: the program ran into its time limit with several of these lowered"
        return ""

    def _blame(self, lowered: set[Lowering]) -> None:
        """Learn from a hang under a plan that lowers these."""
        if len(lowered) == 1:
            ((site, scheme),) = lowered
            self._guilty[site] = scheme
            self._suspects = [suspects for suspects in self._suspects if site not in suspects]
        elif lowered:
            self._suspects.append({site for site, _ in lowered})
