"""`tune` as a whole: its promises on any program, its edges, and what Ctrl-C leaves."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from math import inf, nan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixpert_py.errors import BudgetError, PlanError, ProgramError
from mixpert_py.tuner.records import Measurement, Operator, StopReason
from mixpert_py.tuner.searches import SEARCHES
from tests.every_check import examples
from tests.tuner import table_program
from tests.tuner.table_program import InterruptedProgram, TableProgram

tune = partial(table_program.tune, search="greedy")

LADDER = (("native",), ("II", "III"), ("I",))
SCHEMES = ("native", "II", "III", "I")
SITES = ("a", "b", "c", "d")
LEVELS = st.fixed_dictionaries({s: st.integers(0, 9).map(float) for s in SCHEMES})
PROGRAMS = st.tuples(
    st.fixed_dictionaries(dict.fromkeys(SITES, LEVELS)),
    st.fixed_dictionaries({site: LEVELS.map(lambda e: {**e, "native": 0.0}) for site in SITES}),
)
EDGES = st.frozensets(st.tuples(st.sampled_from(SITES), st.sampled_from(SITES)))


@pytest.mark.parametrize("kind", SEARCHES)
@settings(max_examples=examples(100), deadline=None)
@given(PROGRAMS, EDGES, st.integers(0, 20), st.sampled_from([0.0, 1.0, 2.5]))
def test_any_program_ends_within_budget_and_no_slower(
    kind: str,
    tables: tuple[dict[str, dict[str, float]], dict[str, dict[str, float]]],
    edges: frozenset[tuple[str, str]],
    budget: int,
    noise: float,
) -> None:
    program = TableProgram(*tables)
    outcome = tune(program, program.operators(), edges, LADDER, budget, noise=noise, search=kind)
    assert outcome.best.error <= budget
    # The predictive search may give back what is not felt.
    saved = noise * (outcome.lowered and kind != "predictive")
    assert outcome.best.seconds <= outcome.start.seconds - saved
    assert outcome.best == TableProgram(*tables)(outcome.plan)
    assert outcome.plan in program.plans
    runs = [tuple(sorted(plan.items())) for plan in program.plans]
    assert len(runs) == len(set(runs)), "a plan was run twice"


def predecessor_program(kind: type[TableProgram]) -> TableProgram:
    """Eleven runs, a raised predecessor and a choice between incomparable schemes among them."""
    return kind(
        {
            "p": {"native": 10, "II": 8, "III": 7, "I": 5},
            "s": {"native": 9, "II": 3, "III": 2, "I": 1},
        },
        {"p": {"II": 1, "III": 2, "I": 6}, "s": {"II": 2, "III": 3, "I": 9}},
    )


def test_a_plan_met_again_is_judged_but_not_run() -> None:
    program = TableProgram(
        {"s": {"native": 9, "II": 4}, "p": {"native": 6, "II": 5}}, {"s": {"II": 3}, "p": {"II": 4}}
    )
    # s is lowered, p is raised for it, and on its own turn comes back to where it was refused.
    ladder = (("native",), ("II",))
    start = {"s": "native", "p": "II"}
    outcome = tune(program, program.operators(), [("p", "s")], ladder, 5, noise=0.0, start=start)
    assert outcome.plan == {"s": "II", "p": "native"}
    assert [trial.plan for trial in outcome.trials].count({"s": "II", "p": "II"}) == 2
    assert program.plans.count({"s": "II", "p": "II"}) == 1


@pytest.mark.parametrize("at", range(1, 10))
def test_an_interrupt_leaves_the_best_plan_so_far(at: int) -> None:
    full = predecessor_program(TableProgram)
    whole = tune(full, full.operators(), [("p", "s")], LADDER, 6, noise=0.0)
    assert at < len(full.plans)

    program = predecessor_program(InterruptedProgram)
    assert isinstance(program, InterruptedProgram)
    program.at = at
    outcome = tune(program, program.operators(), [("p", "s")], LADDER, 6, noise=0.0)
    assert outcome.interrupted
    assert outcome.trials == whole.trials[:at]
    passed = [trial for trial in outcome.trials if trial.reason is StopReason.KEPT]
    fastest = min(passed, key=lambda trial: trial.measurement.seconds)
    assert (outcome.plan, outcome.best) == (fastest.plan, fastest.measurement)
    assert outcome.verdicts[-1].reason is StopReason.INTERRUPTED


def test_a_start_over_the_budget_is_said_and_nothing_tried() -> None:
    program = TableProgram({"a": {"native": 1.0}}, {"a": {"native": 1e-3}})
    outcome = tune(program, program.operators(), [], LADDER, 1e-5, noise=0.0)
    assert len(program.plans) == 1
    assert outcome.verdicts[0].reason is StopReason.START_OVER_BUDGET
    assert not outcome.interrupted


def test_a_start_that_fails_is_an_error() -> None:
    program = TableProgram({"a": {"native": 1.0}}, {}, failing={"a": "native"})
    with pytest.raises(ProgramError, match="exit code 3"):
        tune(program, program.operators(), [], LADDER, 1e-5, noise=0.0)


def test_a_start_off_the_ladder_needs_a_lock() -> None:
    program = TableProgram({"a": {"native": 1.0, "egemm": 0.9}}, {})
    with pytest.raises(PlanError, match=r"^a: scheme 'egemm' is not on the ladder native, II, III"):
        tune(program, program.operators(), [], LADDER, 1, noise=0.0, start={"a": "egemm"})
    outcome = tune(program, program.operators("a"), [], LADDER, 1, noise=0.0, start={"a": "egemm"})
    assert outcome.plan == {"a": "egemm"}


@pytest.mark.parametrize("budget", [-1e-9, float("nan")])
def test_a_budget_is_a_number_from_zero(budget: float) -> None:
    program = predecessor_program(TableProgram)
    with pytest.raises(BudgetError):
        tune(program, program.operators(), [], LADDER, budget, noise=0.0)
    assert program.plans == []


def test_a_site_that_a_plan_makes_disappear_takes_no_time() -> None:
    def measure(plan: Mapping[str, str], /) -> Measurement:
        if plan["a"] == "native":
            return Measurement(3.0, 0.0, {"a": 2.0})
        return Measurement(1.0, 0.0, {})

    outcome = tune(measure, [Operator("a", seconds=2.0)], [], LADDER, 0, noise=0.0)
    assert outcome.plan == {"a": "II"}
    assert outcome.verdicts[0].reason is StopReason.TOO_SHORT


@pytest.mark.parametrize("kind", SEARCHES)
def test_a_product_that_no_level_suits_is_never_tried_and_says_why(kind: str) -> None:
    times = {"native": 9.0, "II": 8.0, "III": 8.0, "I": 2.0}
    program = TableProgram({"a": times, "b": times}, {})
    a, b = program.operators()
    operators = [replace(a, unsuited="integers"), b]
    outcome = tune(program, operators, [], LADDER, 1, noise=0.0, search=kind)
    assert outcome.plan == {"a": "native", "b": "I"}
    assert all(plan["a"] == "native" for plan in program.plans)
    found = {verdict.operator.id: verdict for verdict in outcome.verdicts}
    assert (found["a"].reason, found["a"].detail) == (StopReason.UNSUITED, "integers")


@pytest.mark.parametrize("kind", SEARCHES)
def test_less_is_lowered_until_the_plan_holds_elsewhere(kind: str) -> None:
    tables = {site: {"native": 9.0, "II": 4.0, "III": 4.0, "I": 2.0} for site in "ab"}
    errors = {site: {"II": 1.0, "III": 1.0, "I": 3.0} for site in "ab"}
    program = TableProgram(tables, errors)
    asked: list[Mapping[str, str]] = []

    def excess(plan: Mapping[str, str]) -> float:
        asked.append(plan)
        return 1.2 if "I" in plan.values() else 0.3

    outcome = table_program.tune(
        program, program.operators(), [], LADDER, 7, noise=0.0, search=kind, excess=excess
    )
    assert set(asked[0].values()) == {"I"}
    assert "I" not in outcome.plan.values()
    assert outcome.lowered
    assert outcome.plan == asked[-1]
    assert outcome.budget == 7
    over = [trial for trial in outcome.trials if trial.reason is StopReason.OVER_BUDGET]
    assert all(trial.measurement.error > 7 for trial in over)
    elsewhere = [trial for trial in outcome.trials if trial.reason is StopReason.HOLD_OUT]
    assert all(trial.measurement.error <= 7 for trial in elsewhere)
    assert elsewhere
    runs = [tuple(sorted(plan.items())) for plan in program.plans]
    assert len(runs) == len(set(runs)), "a plan was run twice"


@pytest.mark.parametrize("beyond", [1.1, 3.0, inf, nan])
def test_the_start_stays_where_nothing_holds_elsewhere(beyond: float) -> None:
    program = predecessor_program(TableProgram)
    outcome = table_program.tune(
        program, program.operators(), [], LADDER, 6, noise=0.0, excess=lambda plan: beyond
    )
    assert not outcome.lowered
    assert {verdict.reason for verdict in outcome.verdicts} <= {
        StopReason.HOLD_OUT,
        StopReason.PREDICTED,
    }
