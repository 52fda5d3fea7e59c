"""The predictive search, its error model, and the operators that it probes together."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import product

import pytest

from mixpert_py.tuner import search as searching
from mixpert_py.tuner.records import (
    Ladder,
    Measurement,
    Operator,
    Outcome,
    StopReason,
    TuningProblem,
)
from mixpert_py.tuner.searches import MOST_FAILED_PROBES, SEARCHES, predictive
from tests.every_check import some
from tests.tuner.propagated_program import ERRORS, LADDER, RUNGS, SHARES, PropagatedProgram
from tests.tuner.table_program import TableProgram, tune

KINDS = ["rss", "sum", "max"]


def search(program: PropagatedProgram, kind: str) -> tuple[float, int]:
    program.runs = 0
    outcome = tune(program, program.operators(), [], LADDER, program.budget, noise=0.0, search=kind)
    assert outcome.best.error <= program.budget
    return outcome.start.seconds - outcome.best.seconds, program.runs


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [3, 4])
@pytest.mark.parametrize("seed", some(range(6)))
def test_as_good_as_every_plan_at_a_tenth_of_the_runs(seed: int, count: int, kind: str) -> None:
    program = PropagatedProgram(count, seed, kind)
    best, all_of_them = search(program, "exhaustive")
    saved, runs = search(program, "predictive")
    assert all_of_them == 5**count
    assert runs <= all_of_them / 10
    assert saved >= 0.95 * best


@pytest.mark.parametrize(("kind", "seed", "count"), some(product(KINDS, range(4), (12, 30))))
def test_fewer_runs_than_greedy_and_as_much_saved(seed: int, count: int, kind: str) -> None:
    program = PropagatedProgram(count, seed, kind)
    greedy, its_runs = search(program, "greedy")
    drawn, _ = search(program, "random")
    saved, runs = search(program, "predictive")
    assert runs <= its_runs / 2
    assert saved >= 0.95 * greedy
    assert saved > drawn


CPU = (("native",), ("half",))


def program_of(**errors: float) -> TableProgram:
    return TableProgram(
        {site: {"native": 2.0, "half": 1.0} for site in errors},
        {site: {"half": error} for site, error in errors.items()},
    )


def found(program: TableProgram, budget: float, noise: float = 0.0) -> Outcome:
    return tune(program, program.operators(), [], CPU, budget, noise=noise)


def reasons(outcome: Outcome) -> dict[str, StopReason]:
    return {verdict.operator.id: verdict.reason for verdict in outcome.verdicts}


class Refined:
    """Products of several lengths before a refinement, which leaves 1e-9 of their errors. The one
    that it refines by, if any, is as sensitive as predicted."""

    BUDGET = 1e-10

    def __init__(self, seconds: Mapping[str, float], residual: str = "") -> None:
        self.seconds, self.residual = seconds, residual
        self.plans: list[Mapping[str, str]] = []

    def __call__(self, plan: Mapping[str, str], /) -> Measurement:
        self.plans.append(plan)
        times = {x: s * SHARES[RUNGS.index(plan[x])] for x, s in self.seconds.items()}
        errors = {x: ERRORS[RUNGS.index(plan[x])] for x in plan}
        error = sum(e if x == self.residual else 1e-9 * e for x, e in errors.items())
        return Measurement(sum(times.values()), error + 1e-16, times)

    def operators(self) -> list[Operator]:
        errors = dict(zip(RUNGS[1:], ERRORS[1:], strict=True))
        return [Operator(x, seconds=s, local_errors=errors) for x, s in self.seconds.items()]

    def found(self) -> Outcome:
        return tune(self, self.operators(), [], LADDER, self.BUDGET, noise=0.0)


def test_the_one_product_that_a_refinement_goes_by_is_left() -> None:
    """It is as short as those it is probed with, whose steps it makes fail."""
    short = {"residual": 1.1, "forward": 1.2, "backward": 1.0}
    program = Refined({"factor": 100.0, "panel": 40.0, **short}, "residual")
    outcome = program.found()
    assert outcome.plan == {**dict.fromkeys(outcome.plan, "x1"), "residual": "native"}
    assert outcome.best.error <= Refined.BUDGET
    assert len(program.plans) <= 16


def test_probes_end_where_none_finds_anything() -> None:
    program = program_of(**{f"op{i}": 1.0 for i in range(8)})
    outcome = found(program, 1e-6)
    assert set(outcome.plan.values()) == {"native"}
    assert len(program.plans) == 1 + MOST_FAILED_PROBES


def test_a_prediction_that_is_wrong_keeps_nothing() -> None:
    class Worse(TableProgram):
        def __call__(self, plan: Mapping[str, str], /) -> Measurement:
            measured = super().__call__(plan)
            return Measurement(measured.seconds, 1e6 * measured.error, measured.site_seconds)

    program = Worse(*(lambda p: (p.seconds, p.errors))(program_of(a=1e-7, b=1e-9)))
    outcome = found(program, 2e-3)
    assert outcome.plan == {"a": "native", "b": "half"}
    assert outcome.best.error <= 2e-3


# name → times of b, native and lower; the error of the lower level; the noise; why b is left, and
# how often the lower level runs.
LEFT: dict[str, tuple[tuple[float, float], float, float, StopReason, int]] = {
    "takes no call": ((2.0, 1.0), 1e-9, 0.0, StopReason.NOT_TAKEN, 1),
    "is not faster": ((2.0, 2.0), 1e-9, 0.0, StopReason.NOT_FASTER, 1),
    "is shorter than the noise": ((0.2, 0.1), 1e-9, 0.3, StopReason.TOO_SHORT, 0),
    "is not worth a probe": ((0.04, 0.02), 1.0, 0.0, StopReason.PREDICTED, 0),
    "is excluded": ((2.0, 1.0), 1e-9, 0.0, StopReason.UNCLEAR, 0),
}


@pytest.mark.parametrize("name", LEFT)
def test_an_operator_is_left_and_the_other_one_lowered(name: str) -> None:
    (native, half), error, noise, reason, runs = LEFT[name]
    program = program_of(a=1e-9, b=error)
    program.seconds["b"].update(native=native, half=half)  # type: ignore[attr-defined]
    program.unfit = {"b": ("half",)} if reason is StopReason.NOT_TAKEN else {}
    a, b = program.operators()
    excluded = {"half": reason} if reason is StopReason.UNCLEAR else {}
    outcome = tune(program, [a, replace(b, excluded=excluded)], [], CPU, 1e-6, noise=noise)
    assert outcome.plan == {"a": "half", "b": "native"}
    assert outcome.best.error == 1e-9
    assert reasons(outcome) == {"a": StopReason.BOTTOM, "b": reason}
    assert [plan["b"] for plan in program.plans].count("half") == runs


@pytest.mark.parametrize("seed", some(range(4)))
def test_nearly_all_of_the_gain_of_sixty_products_in_fifteen_runs(seed: int) -> None:
    def tuned(kind: str, until: float) -> tuple[float, int]:
        program = PropagatedProgram(60, seed)
        operators = tuple(program.operators())
        problem = TuningProblem(
            operators, frozenset(), Ladder(LADDER), program.budget, 0.0, until=until
        )
        outcome = searching.tune(program, problem, search=SEARCHES[kind])
        return outcome.start.seconds - outcome.best.seconds, program.runs

    best, many = tuned("greedy", 0.0)
    saved, runs = tuned("predictive", 0.01)
    assert runs <= 15 < many
    assert saved >= 0.95 * best


def test_what_gains_less_than_asked_for_is_not_run_and_said_so() -> None:
    program = program_of(a=1e-7, b=1e-5)
    program.seconds["b"].update(native=0.02, half=0.01)  # type: ignore[attr-defined]

    def left(budget: float, *locked: str) -> tuple[str, StopReason]:
        operators = tuple(program.operators(*locked))
        problem = TuningProblem(operators, frozenset(), Ladder(CPU), budget, 0.0, until=0.05)
        outcome = searching.tune(program, problem, search=predictive)
        return outcome.plan["b"], reasons(outcome)["b"]

    assert left(1.0) == ("half", StopReason.BOTTOM), "one run lowers both"
    assert left(5e-6) == ("native", StopReason.PREDICTED)
    assert left(1.0, "a") == ("native", StopReason.TOO_LITTLE)


@pytest.mark.parametrize(("gains", "plan"), [(False, "half"), (True, "native")])
def test_a_short_product_is_probed_if_nothing_else_has_gained(gains: bool, plan: str) -> None:
    """Its error is predicted far over the budget, and a refinement removes it."""
    seconds = {"a": {"native": 96.0, "half": 90.0 if gains else 96.0}, "b": CLOSE}
    program = TableProgram(seconds, {})
    operators = [
        Operator("a", seconds=96.0, local_errors={"half": 1e-9}),
        Operator("b", seconds=3.0, local_errors={"half": 1.0}),
    ]
    outcome = tune(program, operators, [], CPU, 1e-6, noise=0.0)
    assert outcome.plan == {"a": "half" if gains else "native", "b": plan}


CLOSE = {"native": 3.0, "half": 1.5}
