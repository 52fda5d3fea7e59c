"""`mixpert tune` from the search on: a prepared program in, a plan out.

The search is followed by a verification in fresh processes, native and planned runs in turn.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from mixpert_py.passes.call_site import CallSite
from mixpert_py.plan import Plan, Site
from mixpert_py.tuner.noise import SMALLEST_GAIN
from mixpert_py.tuner.records import Outcome
from mixpert_py.tuning import tuned_plan
from mixpert_py.tuning.baseline import Baseline
from mixpert_py.tuning.experiment import Experiment
from mixpert_py.tuning.limits import Limits
from mixpert_py.tuning.preparation import Prepared
from mixpert_py.tuning.verification import PAIRS, Verification, summary, verify


@dataclass(frozen=True, slots=True)
class Tuned:
    """What tuning ended with.

    limits: what the errors might be. predicted: the search went by predicted times; device: those
    of this GPU. reverted: it found a plan, but in fresh processes that was no faster, so `plan` is
    what the search began with. hold_out: the plan's error under the hold-out's arguments; None
    where there were none.
    """

    outcome: Outcome
    plan: Plan
    limits: Limits
    verification: Verification
    predicted: bool
    reverted: bool = False
    hold_out: float | None = None
    device: str = ""

    @property
    def worth_writing(self) -> bool:
        """Whether the plan is better than none: not that of a search that had just begun."""
        return self.outcome.lowered or not self.outcome.interrupted


def tune_program(prepared: Prepared) -> Tuned:
    """Search, and verify what is found. Raises BudgetError if a fresh process does not confirm it,
    ProgramError if the program fails there.
    """
    program, wish = prepared.program, prepared.wish
    experiment, predicted = prepared.experiment, prepared.predicted
    outcome = prepared.search(wish.limits.budget, wish.search)
    outcome, verification = _verified(experiment, prepared.baseline, outcome, predicted)
    reverted = (
        outcome.lowered
        and not outcome.interrupted
        and not predicted
        and verification.lowered > (1 - SMALLEST_GAIN) * verification.native_lowered
    )
    schemes = prepared.start if reverted else outcome.plan
    # An interrupted search has asked the hold-out of another plan, or of none.
    confirmed = outcome.lowered and not outcome.interrupted and not reverted
    held = prepared.hold_out if confirmed else None
    errors = _achieved(outcome, verification, reverted)
    plan = Plan(
        provenance=tuned_plan.provenance(
            program, wish.backend, wish.command, prepared.resources.threads
        ),
        criterion=tuned_plan.criteria(
            wish.limits, wish.reference, errors, held.errors if held else None
        ),
        site=[
            *tuned_plan.sites(outcome, schemes, experiment.blocks, predicted=predicted),
            *_kept(prepared.existing, prepared.earlier, prepared.sites),
        ],
    )
    held_error = held.error if held else None
    return Tuned(
        outcome,
        plan,
        wish.limits,
        verification,
        predicted,
        reverted,
        held_error,
        prepared.device,
    )


def _achieved(outcome: Outcome, verification: Verification, reverted: bool) -> Mapping[str, float]:
    """What the plan that is written has reached: the start's errors where it is the start."""
    if reverted:
        return outcome.start.errors
    return outcome.best.errors if outcome.interrupted else verification.errors


def _kept(
    existing: Plan | None, earlier: Mapping[str, Site], sites: Mapping[str, CallSite]
) -> list[Site]:
    """Entries of an earlier plan that are not this program's to rewrite: other modules', and
    locked ones whose site is gone."""
    modules = {site.partition(":")[0] for site in sites}
    known = {entry.id for entry in earlier.values()} | sites.keys()
    return [
        entry
        for entry in (existing.site if existing else [])
        if entry.id not in known and (entry.locked or entry.id.partition(":")[0] not in modules)
    ]


def _verified(
    experiment: Experiment, baseline: Baseline, outcome: Outcome, predicted: bool
) -> tuple[Outcome, Verification]:
    """The outcome, interrupted if its verification was, and what fresh processes showed."""
    if outcome.lowered and not outcome.interrupted:
        try:
            pairs = 1 if predicted else PAIRS
            return outcome, verify(experiment, baseline.reference, outcome.plan, pairs)
        except KeyboardInterrupt:
            outcome = replace(outcome, interrupted=True)
    return outcome, summary(baseline.natives, baseline.natives)
