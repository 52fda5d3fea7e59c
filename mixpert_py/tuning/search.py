"""`mixpert tune` from a prepared program to its plan: search, verification, and the plan."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec

from mixpert_py.errors import BudgetError
from mixpert_py.plan import Criterion, Plan
from mixpert_py.runtime.schemes import get
from mixpert_py.sources.packages import described
from mixpert_py.tuner.ratio import Pace
from mixpert_py.tuner.records import Outcome, Reason, Schemes, Trial
from mixpert_py.tuner.report.record import Gain, searched_gain
from mixpert_py.tuner.report.summary import SHORT_PROGRAM, START_UP
from mixpert_py.tuner.report.unit import budget_text, share_text, small_entries
from mixpert_py.tuner.search import tune
from mixpert_py.tuner.searches import SEARCHES
from mixpert_py.tuning import record
from mixpert_py.tuning.clock import PairedTimes
from mixpert_py.tuning.hold_out import HoldOutErrors
from mixpert_py.tuning.options import DIFFERING, Limits, TuningOptions
from mixpert_py.tuning.prepare import MOST_RUNS, Prepared
from mixpert_py.tuning.verify import Verification, notes_on, summary, verify

COUNTS = 0.05  # of the time: products that save less do not leave a tuning undecided


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
    outcome = tune(
        prepared.measure,
        replace(prepared.problem, budget=budget),
        search=SEARCHES[options.search],
        excess=prepared.hold_outs.excess if prepared.hold_outs else None,
    )
    outcome = replace(outcome, budget=options.limits.budget)
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
        if has_one_scale and (hint := small_entries(verdict.operator.profile.spread)):
            place = f"line {verdict.operator.place}, {verdict.operator.expression}"
            found.append(f"{place} ({verdict.after}): {hint}. To judge them: --criterion mred")
    if not outcome.interrupted:
        found += decisive_products(outcome, prepared.options.limits)
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
    origin = record.provenance(experiment.program, options.backend, options.command, gain)
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


def decisive_products(outcome: Outcome, limits: Limits) -> Iterator[str]:
    """A sentence for each decision that a run of the search changed too much, with its product.

    Decisions are labels, indices and truth values. A product decides if lowering it alone changes
    more than is allowed; the runs show that as far as they differ in one product.
    """
    operators = {verdict.operator.id: verdict.operator for verdict in outcome.verdicts}
    trials = [trial for trial in outcome.trials if trial.measurement.problem is None]
    for name in dict.fromkeys(name for trial in trials for name in trial.measurement.errors):
        limit = limits.of(name)
        if limit.metric != DIFFERING:
            continue
        changing = [t for t in trials if not t.measurement.errors[name] <= limit.budget]
        if not changing:
            continue
        passing = [t for t in trials if t.measurement.errors[name] <= limit.budget]
        found = _told_apart(changing, passing)
        trial = min(changing, key=lambda it: len(_different(it, outcome.trials[0])))
        where, how = "several products", "with all of them lowered"
        if found is not None:
            trial, site = found
            operator = operators[site]
            line = f"line {operator.place}, " if operator.line else ""
            where, how = f"{line}{operator.expression or site}", f"under {trial.plan[site]}"
        share = share_text(trial.measurement.errors[name])
        yield (
            f"{name} hangs on {where}: {how}, {share} of it differ. --error {name}=SHARE allows a "
            "share."
        )


def _told_apart(changing: Sequence[Trial], passing: Sequence[Trial]) -> tuple[Trial, str] | None:
    """A run that changed a decision, and the one product that sets it apart from one that did not.

    The one with the fewest lowered products is best: the start is the first of those that passed.
    """
    for reference in passing:
        for trial in changing:
            different = _different(trial, reference)
            if len(different) == 1:
                return trial, different[0]
    return None


def _different(trial: Trial, other: Trial) -> list[str]:
    """The sites whose schemes differ."""
    return [site for site in trial.plan if trial.plan[site] != other.plan[site]]
