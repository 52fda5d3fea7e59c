"""What the tuner's searches save on programs that are really run, and how many runs they take."""

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import click

from mixpert_py.bench import machine
from mixpert_py.cli import main
from mixpert_py.launch import launcher
from mixpert_py.tuner.records import Ladder, Measurement, Outcome
from mixpert_py.tuning.options import Limit, Limits, TuningOptions
from mixpert_py.tuning.prepare import Prepared, prepare
from mixpert_py.tuning.search import search

# Sample → arguments that make a run short.
PROGRAMS = {
    "cholesky": ("--size", "320", "--block", "96", "--strip", "32"),
    "mlp": ("--size", "240"),
    "transformer": ("--size", "96", "--length", "32", "--width", "64"),
    "kalman": ("--size", "64", "--steps", "6", "--tracks", "48"),
}
KINDS = ("predictive", "greedy", "random", "exhaustive")
SEEDS = 1000  # trials draw theirs below it, hold-outs above
BUDGETS = (-7.5, -2.0)  # decimal exponents that trials draw theirs from
# Where every plan is run as well.
ENUMERATED = ("cholesky", "mlp")
OPERATORS = 4
LEVELS = ("native", "int8x10", "int8x6", "int8x3", "int8x1")
LOOSE = 1.0  # the budget of what is measured once for all


def measure(
    folder: Path,
    programs: Mapping[str, tuple[str, ...]] = PROGRAMS,
    budgets: tuple[float, ...] = (1e-7, 1e-6, 1e-5, 1e-4, 1e-3),
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Gain and runs of every search, on samples of a folder, for several budgets.

    gain: the part of the products' cost that the plan saves; runs: different plans that were run.
    Where every plan is run, only the longest operators take part, and five levels.
    """
    rows: list[dict[str, Any]] = []
    for name, arguments in programs.items():
        program = launcher.script(str(folder / f"{name}.py"), arguments)
        prepared = prepare(program, TuningOptions(Limits(Limit(LOOSE)), backend="reference"))
        assert prepared is not None
        parts: list[tuple[Prepared, tuple[str, ...]]] = [(prepared, KINDS[:-1])]
        if name in ENUMERATED:
            parts.append((_longest(prepared), KINDS))
        for part, kinds in parts:
            memo = _Memo(part)
            for kind, budget in product(kinds, budgets):
                memo.asked.clear()
                outcome = search(part, budget, kind, memo)
                rows.append(
                    {
                        "program": name,
                        "operators": sum(not x.locked for x in part.problem.operators),
                        "levels": sum(map(len, part.problem.ladder.rungs)),
                        "search": kind,
                        "budget": budget,
                        "gain": _gain(outcome),
                        "error": outcome.best.error,
                        "runs": len(memo.asked),
                    }
                )
                say(_line(rows[-1]))
    return {"unit": "part of the cost", "rows": rows}


def random_hold_outs(
    folder: Path,
    trials: int = 50,
    programs: Mapping[str, tuple[str, ...]] = PROGRAMS,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Random programs, seeds and budgets, each tuned with a hold-out of another seed.

    error, hold_out: in parts of the budget; none may be above 1.
    """
    draw = random.Random(0)
    rows: list[dict[str, Any]] = []
    for number in range(trials):
        name = list(programs)[number % len(programs)]
        budget = 10 ** draw.uniform(*BUDGETS)
        seed, other = draw.randrange(SEEDS), SEEDS + draw.randrange(SEEDS)
        path = str(folder / f"{name}.py")
        program = launcher.script(path, (*programs[name], "--seed", str(seed)))
        there = (*programs[name], "--seed", str(other))
        prepared = prepare(
            program, TuningOptions(Limits(Limit(budget)), backend="reference", hold_out=there)
        )
        assert prepared is not None
        assert prepared.hold_out is not None
        memo = _Memo(prepared)
        outcome = search(prepared, budget, "predictive", memo)
        rows.append(
            {
                "program": name,
                "seeds": [seed, other],
                "budget": budget,
                "gain": _gain(outcome),
                "error": outcome.best.error / budget,
                "hold_out": prepared.hold_out.error / budget if outcome.lowered else 0.0,
                "runs": len(memo.asked),
            }
        )
        say(_line(rows[-1]))
    over = sum(not (row["error"] <= 1 and row["hold_out"] <= 1) for row in rows)
    return {"unit": "part of the budget", "over": over, "rows": rows}


class _Memo:
    """Measures every plan once, whoever asks. asked: plans that were asked for since."""

    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared
        self._made: dict[frozenset[tuple[str, str]], Measurement] = {}
        self.asked: set[frozenset[tuple[str, str]]] = set()

    def __call__(self, plan: Mapping[str, str], /) -> Measurement:
        key = frozenset(plan.items())
        self.asked.add(key)
        if key not in self._made:
            self._made[key] = self._prepared.measure(plan)
        return self._made[key]


def _longest(prepared: Prepared) -> Prepared:
    """The same with few enough operators, and levels, for every plan to be run."""
    operators = sorted(prepared.problem.operators, key=lambda operator: -operator.seconds)
    locked = [replace(x, locked=True) for x in operators[OPERATORS:]]
    problem = replace(
        prepared.problem,
        operators=(*operators[:OPERATORS], *locked),
        ladder=Ladder(tuple(x for x in prepared.problem.ladder.rungs if x[0] in LEVELS)),
    )
    return replace(prepared, problem=problem)


def _gain(outcome: Outcome) -> float:
    return 1 - outcome.best.seconds / outcome.start.seconds


def _line(row: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}"
        for key, value in row.items()
    )


@click.command()
@click.option("--samples", default="samples", show_default=True, metavar="FOLDER")
@click.option(
    "--hold-outs", default=0, metavar="N", help="Instead: N random tunings, each with a hold-out."
)
@click.option("--save", is_flag=True, help="Keep the result beside those of `mixpert bench`.")
def command(samples: str, hold_outs: int, save: bool) -> None:
    """What the tuner's searches save on samples, in how many runs."""

    def say(line: str) -> None:
        click.echo(line, err=True)

    if hold_outs:
        name, found = "hold-outs", random_hold_outs(Path(samples), hold_outs, say=say)
    else:
        name, found = "search", measure(Path(samples), say=say)
    found = machine.finish(name, found, save)
    click.echo(json.dumps(found, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    main(command, "python -m tests.measure.search")
