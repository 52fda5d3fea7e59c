"""The products on which a program's decisions hang: labels, indices and truth values.

A product decides if lowering it alone changes more of a decision than is allowed. The runs of a
search show most of that; where they lowered several products at once, a few more are made.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from mixpert_py.tuner.records import Measure, Operator, Outcome, Schemes, Trial
from mixpert_py.tuner.report.unit import share_text
from mixpert_py.tuning.options import DIFFERING, Limits

MOST_RUNS = 4  # that are made for one decision


@dataclass(frozen=True, slots=True)
class Decisive:
    """A decision, and the product on which it hangs.

    share: of its elements that differ under this scheme of the product. operator: None where no
    product changes it alone, as far as was tried.
    """

    name: str
    share: float
    operator: Operator | None = None
    scheme: str = ""

    @property
    def sentence(self) -> str:
        allowed = f"--error {self.name}=SHARE allows a share"
        if self.operator is None:
            return (
                f"{self.name} hangs on several products: with all of them lowered, "
                f"{share_text(self.share)} of it differ. {allowed}."
            )
        line = f"line {self.operator.place}, " if self.operator.line else ""
        return (
            f"{self.name} hangs on {line}{self.operator.expression or self.operator.id}: under "
            f"{self.scheme}, {share_text(self.share)} of it differ. {allowed}."
        )


def decisive_products(outcome: Outcome, limits: Limits, measure: Measure) -> Iterator[Decisive]:
    """Each decision that a run of the search changed too much, with its product.

    measure: runs a plan. Raises KeyboardInterrupt where it does.
    """
    operators = {verdict.operator.id: verdict.operator for verdict in outcome.verdicts}
    start = {verdict.operator.id: verdict.before for verdict in outcome.verdicts}
    trials = [trial for trial in outcome.trials if trial.measurement.problem is None]
    for name in dict.fromkeys(name for trial in trials for name in trial.measurement.errors):
        limit = limits.of(name)
        if limit.metric != DIFFERING:
            continue
        changing = [t for t in trials if not t.measurement.errors[name] <= limit.budget]
        passing = [t for t in trials if t.measurement.errors[name] <= limit.budget]
        if not changing:
            continue
        found = _told_apart(changing, passing)
        if found is not None:
            trial, site = found
            share = trial.measurement.errors[name]
            yield Decisive(name, share, operators[site], trial.plan[site])
            continue
        fewest = min(changing, key=lambda trial: len(_different(trial.plan, start)))
        for site in _suspects(fewest.plan, start, passing, operators.values())[:MOST_RUNS]:
            alone = measure({**start, site: fewest.plan[site]})
            share = alone.errors.get(name, 0.0)
            if share > limit.budget:
                yield Decisive(name, share, operators[site], fewest.plan[site])
                break
        else:
            yield Decisive(name, fewest.measurement.errors[name])


def _told_apart(changing: Sequence[Trial], passing: Sequence[Trial]) -> tuple[Trial, str] | None:
    """A run that changed a decision, and the one product that sets it apart from one that did not.

    The one with the fewest lowered products is best: the start is the first of those that passed.
    """
    for reference in passing:
        for trial in changing:
            different = _different(trial.plan, reference.plan)
            if len(different) == 1:
                return trial, different[0]
    return None


def _suspects(
    plan: Schemes, start: Schemes, passing: Sequence[Trial], operators: Iterable[Operator]
) -> list[str]:
    """The sites that a plan lowers and no passing one has lowered so, the least accurate first."""
    errors = {operator.id: operator.local_errors for operator in operators}
    lowered = [
        site
        for site in _different(plan, start)
        if not any(trial.plan[site] == plan[site] for trial in passing)
    ]
    return sorted(lowered, key=lambda site: -errors[site].get(plan[site], 0.0))


def _different(plan: Schemes, other: Schemes) -> list[str]:
    """The sites whose schemes differ."""
    return [site for site in plan if plan[site] != other[site]]
