"""What other searches are measured against: every plan, and plans drawn at random."""

import random
from itertools import product
from math import prod

from mixpert_py.errors import PlanError
from mixpert_py.tuner.descent import Descent
from mixpert_py.tuner.reason import Reason

MOST_PLANS = 20_000
DRAWN = 50


def exhaustive(descent: Descent) -> None:
    """Run every plan. Raises PlanError where they are more than 20,000."""
    options = _options(descent)
    count = prod(len(schemes) for schemes in options.values())
    if count > MOST_PLANS:
        raise PlanError(f"an exhaustive search would run {count:,} plans; at most {MOST_PLANS:,}")
    _consider(
        descent, [dict(zip(options, picked, strict=True)) for picked in product(*options.values())]
    )


def at_random(descent: Descent) -> None:
    """Run 50 plans, each scheme of each operator as likely as the others; always the same ones."""
    options = _options(descent)
    draw = random.Random(0)
    plans = [
        {site: draw.choice(schemes) for site, schemes in options.items()} for _ in range(DRAWN)
    ]
    _consider(descent, plans)


def _options(descent: Descent) -> dict[str, list[str]]:
    return {site: descent.options(operator) for site, operator in descent.operators.items()}


def _consider(descent: Descent, plans: list[dict[str, str]]) -> None:
    start = descent.start.plan
    changed = [{site: plan[site] for site in plan if plan[site] != start[site]} for plan in plans]
    if steps := [step for step in changed if step]:
        descent.consider(*steps)
    for operator in descent.operators.values():
        descent.stopped[operator.id] = descent.unmoved(operator) or Reason.SEARCHED, ""
