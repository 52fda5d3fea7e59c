"""`mixpert tune` from a prepared program to its plan: search, verification, and the plan."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import isfinite

import msgspec

from mixpert_py.errors import BudgetError
from mixpert_py.plan import Plan, Site
from mixpert_py.runtime.schemes import get
from mixpert_py.sources.modules import described
from mixpert_py.tuner import report, tuning_record
from mixpert_py.tuner import tuning_record as report_record
from mixpert_py.tuner.ratio import Pace
from mixpert_py.tuner.records import Outcome, Schemes, StopReason, Verdict, largest_of_each
from mixpert_py.tuner.search import tune
from mixpert_py.tuner.searches import SEARCHES
from mixpert_py.tuning.clock import PairedTimes
from mixpert_py.tuning.hold_out import HoldOutErrors, highest_rate
from mixpert_py.tuning.options import DIFFERING, Limits
from mixpert_py.tuning.prepare import MOST_RUNS, Prepared, provenance
from mixpert_py.tuning.verify import Verification, criteria, note_on, summary, verify

SHAPES = 8  # of a site, that the plan file lists
COUNTS = 0.05  # of the time: products that save less do not leave a tuning undecided


@dataclass(frozen=True, slots=True)
class TuningResult:
    """The result of a tuning.

    limits: of the errors. predicted: whether the search went by predicted times; device: the GPU
    that they are for. reverted: the search found a plan, but fresh processes showed no gain, so
    `plan` is the start of the search. unclear: whether this machine did not tell if the plan is
    faster, or if any would be. hold_out: the plan's errors on the hold-outs; None where there were
    none. notes: sentences on what was compared, and on decisions.
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
    def gain(self) -> tuning_record.Gain:
        if self.predicted or self.outcome.interrupted:
            return tuning_record.searched_gain(self.outcome, self.predicted)
        pace = self.verification.pace if self.outcome.lowered else None
        pace = Pace.NOT_FASTER if self.reverted else pace
        return self.verification.gain(pace, self.outcome.start.seconds)

    @property
    def worth_writing(self) -> bool:
        """Whether the plan is better than none: not that of a search that had just begun."""
        return self.outcome.lowered or not self.outcome.interrupted


def tune_each(prepared: Prepared) -> list[TuningResult | BudgetError]:
    """The tuning, or the error, for each budget, the loosest first, until an interruption."""
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
    """Search, and verify what is found. Raises BudgetError or ProgramError if that fails."""
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
    before = outcome.start.seconds
    is_small = (1 - outcome.best.seconds / before if before else 0.0) < COUNTS
    doubtful = (Pace.NOT_FASTER, *[Pace.UNCLEAR] * is_small)
    reverted = complete and not clock.predicts and verification.pace in doubtful
    unclear = not (reverted or clock.predicts or outcome.interrupted) and _is_unclear(
        outcome, verification
    )
    # An interrupted search has asked the hold-out about another plan, or about none.
    judged = prepared.hold_outs is not None and complete and not reverted
    hold_out = prepared.hold_outs.errors() if prepared.hold_outs and judged else None
    if reverted:
        outcome = _taken_back(outcome, prepared.problem.start)
    notes = _notes(prepared, outcome, verification, budget)
    errors = outcome.best.errors if outcome.interrupted or reverted else verification.errors
    experiment = prepared.experiment
    origin = provenance(
        experiment.program, options.backend, options.command, Pace.UNCLEAR if unclear else ""
    )
    choice = experiment.comparison.choice
    left_out = list(choice.left_out if choice else ())[:1000]
    plan = Plan(
        provenance=msgspec.structs.replace(origin, left_out=left_out),
        package=described(options.packages),
        criterion=criteria(
            options.limits, options.reference, errors, hold_out.values if hold_out else {}
        ),
        site=[
            *(site_entry(it, clock.predicts) for it in outcome.verdicts),
            *prepared.other_entries,
        ],
    )
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


def _taken_back(outcome: Outcome, start: Schemes) -> Outcome:
    """The outcome of a search whose plan showed no gain when it was verified: the start."""
    verdicts = tuple(
        replace(
            verdict,
            after=verdict.before,
            seconds_after=verdict.seconds_before,
            reason=StopReason.NOT_FASTER,
            detail="",
        )
        if verdict.before != verdict.after
        else verdict
        for verdict in outcome.verdicts
    )
    return replace(outcome, plan=dict(start), verdicts=verdicts, best=outcome.start)


def _notes(
    prepared: Prepared, outcome: Outcome, verification: Verification, budget: float
) -> tuple[str, ...]:
    """The sentences on what was compared, and on what its errors do not show. budget: used."""
    options = prepared.options
    found = [note_on(prepared.experiment, verification)]
    for verdict in outcome.verdicts:
        # All of these have one scale a row; `crt` itself keeps a bound for every element.
        has_one_scale = verdict.after.startswith(("int8", "crt")) and verdict.after != "crt"
        if has_one_scale and (hint := report.small_entries(verdict.operator.profile.spread)):
            place = f"line {verdict.operator.place}, {verdict.operator.expression}"
            found.append(f"{place} ({verdict.after}): {hint}. To judge them: --criterion mred")
    is_whole = not outcome.interrupted
    if is_whole:
        found += _changed_decisions(outcome, options.limits)
    is_faster = is_whole and outcome.lowered and verification.pace is Pace.FASTER
    is_short = verification.native_seconds < report.SHORT_PROGRAM
    if is_faster and is_short and not prepared.clock.predicts:
        found.append(report.START_UP)
    has_errors = any(get(scheme).error for scheme in outcome.plan.values())
    if has_errors and options.margin and options.limits.budget:
        searched = f", {report.budget_text(budget)}" if options.limits.only else ""
        part = report.share_text(1 - options.margin)
        found.append(
            "The program natively needs the whole budget: none is kept for other data."
            if budget == options.limits.budget
            else f"Tuned to {part} of the budget{searched}; the rest is kept for other data."
        )
    return tuple(found)


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


def _is_unclear(outcome: Outcome, verification: Verification) -> bool:
    """Whether measured times do not tell if the plan, or any other, is faster than the program."""
    if outcome.lowered:
        return verification.pace is Pace.UNCLEAR
    # A product that takes some of the time was left since no time told what is faster: float32
    # would save half of that time at most.
    return any(
        verdict.reason is StopReason.UNCLEAR and outcome.share(verdict) / 2 >= COUNTS
        for verdict in outcome.verdicts
    )


def _changed_decisions(outcome: Outcome, limits: Limits) -> Iterator[str]:
    """A sentence for each label, index or truth value that a run changed too much."""
    shares = largest_of_each(trial.measurement.errors for trial in outcome.trials)
    for name, share in shares.items():
        limit = limits.of(name)
        if limit.metric == DIFFERING and not share <= limit.budget:
            yield (
                f"{name}: {report.share_text(share)} of it differed in a plan that was refused. "
                f"--error {name}=SHARE allows a share."
            )


def site_entry(verdict: Verdict, predicted: bool) -> Site:
    """The entry of an operator. predicted: times are costs, and milliseconds are left out."""
    operator = verdict.operator
    unknown = predicted or operator.elsewhere
    error = verdict.local_error or 0.0
    return Site(
        id=operator.id,
        expression=operator.expression,
        scheme=verdict.after,
        locked=operator.locked,
        shapes=[list(shape) for shape in operator.shapes[:SHAPES]],
        calls=operator.calls,
        error=error if isfinite(error) else 0.0,
        native_ms=None if unknown else round(verdict.seconds_before * 1e3, 3),
        ms=None if unknown else round(verdict.seconds_after * 1e3, 3),
    )


def record(result: TuningResult, path: str = "") -> tuning_record.TuningRecord:
    """The record of a tuning. path: of its plan file."""
    outcome, metric = result.outcome, result.limits.metric
    search = report_record.record(outcome, metric, result.predicted, result.device)
    held, found = result.hold_out, result.verification
    verification = tuning_record.VerificationEntry(
        error=tuning_record.finite(found.error),
        worst=found.worst,
        native_seconds=tuning_record.finite(found.native_seconds),
        spread=tuning_record.finite(found.spread),
        native_lowered=tuning_record.finite(found.native_lowered),
        lowered=tuning_record.finite(found.lowered),
        least=tuning_record.finite(found.ratio.least),
        most=tuning_record.finite(found.ratio.most),
    )
    inputs = held.inputs if held else ()
    return msgspec.structs.replace(
        search,
        plan_file=path,
        schemes=result.plan.schemes(),
        values=tuning_record.value_entries(result.plan.criterion),
        verification=None if result.reverted else verification,
        gain=result.gain,
        reverted=result.reverted,
        unclear=result.unclear,
        hold_out=tuning_record.finite(held.error) if held else None,
        hold_outs=[
            tuning_record.InputEntry(arguments=words, error=tuning_record.finite(e))
            for words, e in inputs
        ],
        hold_out_rate=highest_rate(len(inputs), held.tightened) if held else None,
        provenance=result.plan.provenance,
        notes=list(result.notes),
    )
