"""The greedy search of MixPert §3.4."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, product, zip_longest

from mixpert_py.tuner.records import Operator, Reason, Rung, Schemes, Trial
from mixpert_py.tuner.search import SearchState

# Refusals after which the rungs below are still tried.
PASSED_OVER = (Reason.NOT_TAKEN, Reason.NOT_FASTER, Reason.NO_GAIN)


def greedy(state: SearchState) -> None:
    """Lower the operators one after the other, the longest first."""
    operators = state.longest_first()
    for number, operator in enumerate(operators, 1):
        state.stopped[operator.id] = _lower(state, operator, operators[number:])


def _lower(
    state: SearchState, operator: Operator, others: Sequence[Operator]
) -> tuple[Reason, str]:
    """Lower one operator rung by rung, as far as budget and noise allow; return why it stopped.

    A rung within the budget that is not faster, or that no call takes, is passed over: the next one
    is compared with the incumbent. others: the operators that are lowered after this one.
    """
    if (fixed := state.why_fixed(operator)) is not None:
        return fixed, ""
    site, reason = operator.id, Reason.BOTTOM
    rungs = state.ladder.below(site, state.incumbent.plan[site])
    for number, rung in enumerate(rungs, 1):
        if state.seconds(site) <= state.noise(site):
            return Reason.TOO_SHORT, ""
        trial = state.consider(
            *({site: scheme} for scheme in rung),
            then=partial(_following, state, site, rungs[number:], others),
        )
        # Raising another operator costs time: it cannot rescue a step that saves none.
        if trial.reason is Reason.OVER_BUDGET and trial.gain > 0:
            trial = _raise_predecessor(state, site, rung) or trial
        if trial.reason is Reason.KEPT:
            reason = Reason.BOTTOM
        elif trial.reason in PASSED_OVER:
            reason = trial.reason
        else:
            return trial.reason, trial.measurement.problem or ""
    return reason, ""


def _following(
    state: SearchState, site: str, rungs: Sequence[Rung], others: Sequence[Operator]
) -> Iterator[Schemes]:
    """The plans that may follow a step: alternately one if it passes and one if it is refused."""
    plan = state.incumbent.plan
    deeper = [{**plan, site: scheme} for rung in rungs for scheme in rung]
    free = [other.id for other in others if state.why_fixed(other) is None]
    firsts = [{**plan, x: s} for x in free for r in state.ladder.below(x, plan[x])[:1] for s in r]
    return (plan for plan in chain(*zip_longest(deeper, firsts)) if plan is not None)


def _raise_predecessor(state: SearchState, site: str, rung: Rung) -> Trial | None:
    """Lower a site to `rung` and raise one predecessor that takes less time, to offset the error.

    The longest such predecessor is tried first, each by one rung. Returns the trial that was kept,
    or None. Times are the incumbent's: a predecessor may have become shorter by being lowered.
    """
    shorter = [p for p in state.predecessors(site) if state.seconds(p) < state.seconds(site)]
    for predecessor in sorted(shorter, key=state.seconds, reverse=True):
        above = state.ladder.above(predecessor, state.incumbent.plan[predecessor])
        steps = [{site: low, predecessor: high} for low, high in product(rung, above)]
        if steps and (trial := state.consider(*steps)).reason is Reason.KEPT:
            state.stopped[predecessor] = Reason.RAISED, site
            return trial
    return None
