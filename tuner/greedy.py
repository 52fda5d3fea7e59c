"""The greedy search of MixPert §3.4."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, product, zip_longest

from mixpert_py.tuner.descent import Descent, Plan
from mixpert_py.tuner.ladder import Rung
from mixpert_py.tuner.operator import Operator
from mixpert_py.tuner.reason import Reason
from mixpert_py.tuner.trial import Trial

# What says nothing against the rungs below.
PASSED_OVER = (Reason.NOT_TAKEN, Reason.NOT_FASTER, Reason.NO_GAIN)


def greedy(descent: Descent) -> None:
    """Lower the operators one after the other, longest first."""
    operators = longest_first(descent)
    for number, operator in enumerate(operators, 1):
        descent.stopped[operator.id] = lower(descent, operator, operators[number:])


def longest_first(descent: Descent) -> list[Operator]:
    return sorted(descent.operators.values(), key=lambda operator: -operator.seconds)


def lower(descent: Descent, operator: Operator, others: Sequence[Operator]) -> tuple[Reason, str]:
    """Lower one operator rung by rung, as far as budget and clock allow; returns why it stopped.

    A rung within the budget that is not faster, or takes no call, is passed over: the next one is
    compared with the level kept. others: the operators whose turn comes after this one's.
    """
    if (unmoved := descent.unmoved(operator)) is not None:
        return unmoved, ""
    site, reason = operator.id, Reason.BOTTOM
    rungs = descent.ladder.below(site, descent.kept.plan[site])
    for number, rung in enumerate(rungs, 1):
        if descent.seconds(site) <= descent.noise(site):
            return Reason.TOO_SHORT, ""
        trial = descent.consider(
            *({site: scheme} for scheme in rung),
            then=partial(_next, descent, site, rungs[number:], others),
        )
        # Raising another operator costs time: it cannot rescue a step that saves none.
        if trial.reason is Reason.OVER_BUDGET and trial.gain > 0:
            trial = raise_predecessor(descent, site, rung) or trial
        if trial.reason is Reason.KEPT:
            reason = Reason.BOTTOM
        elif trial.reason in PASSED_OVER:
            reason = trial.reason
        else:
            return trial.reason, trial.measurement.problem or ""
    return reason, ""


def _next(
    descent: Descent, site: str, rungs: Sequence[Rung], others: Sequence[Operator]
) -> Iterator[Plan]:
    """What comes after a step, in turn as if it passed and as if it were refused."""
    kept = descent.kept.plan
    deeper = [{**kept, site: scheme} for rung in rungs for scheme in rung]
    free = [other.id for other in others if descent.unmoved(other) is None]
    firsts = [{**kept, x: s} for x in free for r in descent.ladder.below(x, kept[x])[:1] for s in r]
    return (plan for plan in chain(*zip_longest(deeper, firsts)) if plan is not None)


def raise_predecessor(descent: Descent, site: str, rung: Rung) -> Trial | None:
    """Pay for lowering a site to `rung` by raising one predecessor that takes less time than it.

    The longest such first, one rung each. Returns the trial that was kept, or None. Times are
    those of the plan kept: a predecessor that was longer may be shorter since it was lowered.
    """
    shorter = [p for p in descent.predecessors(site) if descent.seconds(p) < descent.seconds(site)]
    for predecessor in sorted(shorter, key=descent.seconds, reverse=True):
        above = descent.ladder.above(predecessor, descent.kept.plan[predecessor])
        steps = [{site: low, predecessor: high} for low, high in product(rung, above)]
        if steps and (trial := descent.consider(*steps)).reason is Reason.KEPT:
            descent.stopped[predecessor] = Reason.RAISED, site
            return trial
    return None
