"""The gain and the runs of each of the tuner's searches, beside two controls.

The controls are running every plan, and running plans that are drawn at random.
"""

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import click

from mixpert_py.cli import main
from mixpert_py.launch.program import script
from mixpert_py.tuner.records import Ladder, plan_key
from mixpert_py.tuner.search import Search, SearchState, tune
from mixpert_py.tuner.searches import SEARCHES
from mixpert_py.tuning.options import Limit, Limits, TuningOptions
from mixpert_py.tuning.prepare import Prepared, prepare
from tests.benchmarks import machine

# Sample → arguments that make a run short.
PROGRAMS = {
    "cholesky": ("--size", "320", "--block", "96", "--strip", "32"),
    "mlp": ("--size", "240"),
}
BUDGETS = (1e-7, 1e-6, 1e-5, 1e-4, 1e-3)
# So few operators and levels that every plan can be run.
OPERATORS = 4
LEVELS = ("native", "int8x10", "int8x6", "int8x3", "int8x1")
LOOSE = 1.0  # a budget that every plan meets, for the measurements that all searches share
DRAWN = 50  # plans that a random search runs
RESULT = Path(__file__).with_name("search.json")


def exhaustive(state: SearchState) -> None:
    """Run every plan."""
    options = {site: state.options(operator) for site, operator in state.operators.items()}
    plans = product(*options.values())
    _consider_all(state, [dict(zip(options, schemes, strict=True)) for schemes in plans])


def at_random(state: SearchState) -> None:
    """Run plans with each scheme of each operator equally likely; the draw is always the same."""
    options = {site: state.options(operator) for site, operator in state.operators.items()}
    draw = random.Random(0)
    plans = [
        {site: draw.choice(schemes) for site, schemes in options.items()} for _ in range(DRAWN)
    ]
    _consider_all(state, plans)


def _consider_all(state: SearchState, plans: list[dict[str, str]]) -> None:
    start = state.start.plan
    changed = [{site: plan[site] for site in plan if plan[site] != start[site]} for plan in plans]
    if steps := [step for step in changed if step]:
        state.consider(*steps)


KINDS: dict[str, Search] = {**SEARCHES, "exhaustive": exhaustive, "random": at_random}


def measure(
    folder: Path,
    programs: Mapping[str, tuple[str, ...]] = PROGRAMS,
    budgets: tuple[float, ...] = BUDGETS,
    on_row: Callable[[dict[str, Any]], None] = lambda row: None,
) -> dict[str, Any]:
    """Gain and runs of every search, on samples of a folder, for several budgets.

    gain: the part of the products' cost that the plan saves; runs: different plans that were run.
    Only the longest operators take part, with five levels, so that every plan can be run.
    """
    rows: list[dict[str, Any]] = []
    for name, arguments in programs.items():
        program = script(str(folder / f"{name}.py"), arguments)
        prepared = prepare(program, TuningOptions(Limits(Limit(LOOSE)), backend="reference"))
        assert not isinstance(prepared, str)
        prepared = _longest(prepared)
        for kind, budget in product(KINDS, budgets):
            problem = replace(prepared.problem, budget=budget)
            outcome = tune(prepared.measure, problem, search=KINDS[kind])
            rows.append(
                {
                    "program": name,
                    "operators": sum(not x.locked for x in prepared.problem.operators),
                    "levels": sum(map(len, prepared.problem.ladder.rungs)),
                    "search": kind,
                    "budget": budget,
                    "gain": 1 - outcome.best.seconds / outcome.start.seconds,
                    "error": outcome.best.error,
                    "runs": len({plan_key(trial.plan) for trial in outcome.trials}),
                }
            )
            on_row(rows[-1])
    return {"unit": "part of the cost", "rows": rows}


def _longest(prepared: Prepared) -> Prepared:
    """The same problem with all but the longest operators locked, and five levels."""
    operators = sorted(prepared.problem.operators, key=lambda operator: -operator.seconds)
    locked = [replace(x, locked=True) for x in operators[OPERATORS:]]
    problem = replace(
        prepared.problem,
        operators=(*operators[:OPERATORS], *locked),
        ladder=Ladder(tuple(x for x in prepared.problem.ladder.rungs if x[0] in LEVELS)),
    )
    return replace(prepared, problem=problem)


def _print_row(row: Mapping[str, Any]) -> None:
    cells = (f"{key} {x:.3g}" if isinstance(x, float) else f"{key} {x}" for key, x in row.items())
    click.echo(", ".join(cells), err=True)


@click.command()
@click.option("--samples", default="samples", show_default=True, metavar="FOLDER")
@click.option("--save", is_flag=True, help="Keep the result for the page of `samples.papers`.")
def command(samples: str, save: bool) -> None:
    """Gain and runs of the tuner's searches on samples."""
    found = measure(Path(samples), on_row=_print_row)
    text = json.dumps({"machine": machine.machine(), **found}, indent=2, ensure_ascii=False)
    if save:
        RESULT.write_text(f"{text}\n", "utf-8")
    click.echo(text)


if __name__ == "__main__":
    main(command, "python -m samples.papers.search")
