"""Each rule of the greedy search, on programs that are tables."""

from typing import Any

import pytest

from mixpert_py.tuner.records import Outcome, StopReason, Verdict
from tests.tuner.table_program import Table, TableProgram, tune

CPU = (("native",), ("float32",))
STEPS = (("native",), ("x8",), ("x6",), ("x3",))
PEERS = (("native",), ("II", "III"), ("I",))


def search(
    program: TableProgram,
    ladder: tuple[tuple[str, ...], ...] = CPU,
    budget: float = 1e-5,
    edges: tuple[tuple[str, str], ...] = (),
    locked: tuple[str, ...] = (),
    **options: Any,
) -> Outcome:
    options.setdefault("noise", 0.0)
    options.setdefault("search", "greedy")
    return tune(program, program.operators(*locked), edges, ladder, budget, **options)


def halves(**seconds: float) -> dict[str, dict[str, float]]:
    return {site: {"native": t, "float32": t / 2} for site, t in seconds.items()}


def verdict(outcome: Outcome, site: str) -> Verdict:
    return next(v for v in outcome.verdicts if v.operator.id == site)


def test_longest_operator_is_lowered_first() -> None:
    program = TableProgram(halves(b=1.0, a=3.0, c=2.0), {})
    outcome = search(program)
    assert program.steps() == [
        {},
        {"a": "float32"},
        {"a": "float32", "c": "float32"},
        {"a": "float32", "b": "float32", "c": "float32"},
    ]
    assert [v.operator.id for v in outcome.verdicts] == ["a", "c", "b"]
    assert {v.reason for v in outcome.verdicts} == {StopReason.BOTTOM}


def test_lowered_rung_by_rung_until_over_budget() -> None:
    program = TableProgram(
        {"a": {"native": 9, "x8": 8, "x6": 6, "x3": 3}},
        {"a": {"x8": 1e-8, "x6": 1e-6, "x3": 1e-4}},
    )
    outcome = search(program, STEPS)
    assert program.steps() == [{}, {"a": "x8"}, {"a": "x6"}, {"a": "x3"}]
    assert outcome.plan == {"a": "x6"}
    assert verdict(outcome, "a").reason is StopReason.OVER_BUDGET
    assert verdict(outcome, "a").local_error == 1e-6


# P is the longest, is lowered first, and then is shorter than S.
SECONDS: Table = {"p": {"native": 10, "float32": 6}, "s": {"native": 9, "float32": 4}}
ERRORS: Table = {"p": {"float32": 6e-6}, "s": {"float32": 6e-6}}


def test_a_shorter_predecessor_is_raised() -> None:
    outcome = search(TableProgram(SECONDS, ERRORS), edges=(("p", "s"),))
    assert outcome.plan == {"p": "native", "s": "float32"}
    assert verdict(outcome, "p").reason is StopReason.RAISED
    assert verdict(outcome, "p").detail == "s"
    assert verdict(outcome, "s").reason is StopReason.BOTTOM


def test_a_predecessor_that_is_not_shorter_is_not_raised() -> None:
    program = TableProgram({**SECONDS, "p": {"native": 20, "float32": 9}}, ERRORS)
    outcome = search(program, edges=(("p", "s"),))
    assert outcome.plan == {"p": "float32", "s": "native"}
    assert len(program.plans) == 3


def test_the_longest_of_several_shorter_predecessors_is_raised_first() -> None:
    seconds = {
        "p": {"native": 12, "float32": 6},
        "q": {"native": 11, "float32": 7},
        "s": {"native": 10, "float32": 1},
    }
    errors = {"p": {"float32": 4e-6}, "q": {"float32": 4e-6}, "s": {"float32": 4e-6}}
    program = TableProgram(seconds, errors)
    outcome = search(program, edges=(("p", "s"), ("q", "s")))
    assert outcome.plan == {"p": "float32", "q": "native", "s": "float32"}
    assert program.steps()[-1] == {"p": "float32", "s": "float32"}

    errors["p"] = {"float32": 5e-6}
    errors["q"] = {"float32": 1e-6}
    errors["s"] = {"float32": 5e-6}
    program = TableProgram(seconds, errors)
    outcome = search(program, edges=(("p", "s"), ("q", "s")), budget=9e-6)
    assert outcome.plan == {"p": "native", "q": "float32", "s": "float32"}
    assert program.steps()[-2:] == [
        {"p": "float32", "s": "float32"},
        {"q": "float32", "s": "float32"},
    ]


def test_a_predecessor_is_raised_by_one_rung_and_lowering_goes_on() -> None:
    program = TableProgram(
        {
            "p": {"native": 20, "x8": 8, "x6": 6, "x3": 3},
            "s": {"native": 19, "x8": 18, "x6": 10, "x3": 1},
        },
        {"p": {"x8": 0, "x6": 2e-6, "x3": 9e-6}, "s": {"x8": 0, "x6": 4e-6, "x3": 9e-6}},
    )
    outcome = search(program, STEPS, edges=(("p", "s"),))
    # s to x6 costs p its x3; s to x3 then costs it x6.
    assert outcome.plan == {"p": "x8", "s": "x3"}
    assert verdict(outcome, "s").reason is StopReason.BOTTOM


@pytest.mark.parametrize(("noise", "scheme"), [(0.4, "float32"), (0.5, "native")])
@pytest.mark.parametrize("per_site", [False, True])
def test_a_gain_counts_only_beyond_the_noise(noise: float, scheme: str, per_site: bool) -> None:
    program = TableProgram(halves(a=1.0), {"a": {"float32": 1e-7}})
    outcome = search(program, noise={"a": noise} if per_site else noise)
    assert outcome.plan == {"a": scheme}


def test_a_scheme_that_took_no_call_is_not_kept() -> None:
    errors = {"a": {"float32": 1e-7}}
    program = TableProgram(halves(a=2.0, b=1.0), errors, unfit={"a": ("float32",)})
    outcome = search(program)
    assert outcome.plan == {"a": "native", "b": "float32"}
    assert verdict(outcome, "a").reason is StopReason.NOT_TAKEN
    assert [trial.reason for trial in outcome.trials[1:]] == ["took no call", "kept"]


def test_an_operator_that_never_ran_is_not_tried() -> None:
    program = TableProgram(halves(a=1.0), {})
    operators = [*program.operators(), *TableProgram(halves(b=0.0), {}).operators()]
    outcome = tune(program, operators, (), CPU, 1e-5, noise=0.0)
    assert outcome.plan == {"a": "float32", "b": "native"}
    assert verdict(outcome, "b").reason is StopReason.NEVER_RAN


def test_all_schemes_of_a_rung_are_tried_and_the_fastest_kept() -> None:
    program = TableProgram({"a": {"native": 9, "II": 6, "III": 5, "I": 3}}, {"a": {"I": 1}})
    outcome = search(program, PEERS)
    assert program.steps() == [{}, {"a": "II"}, {"a": "III"}, {"a": "I"}]
    assert outcome.plan == {"a": "III"}


def test_locked_operators_stay() -> None:
    outcome = search(TableProgram(halves(a=2.0, b=1.0), {}), locked=("a",))
    assert outcome.plan == {"a": "native", "b": "float32"}
    assert verdict(outcome, "a").reason is StopReason.LOCKED


def test_a_failed_run_is_undone_and_named() -> None:
    program = TableProgram(halves(a=2.0, b=1.0), {}, failing={"a": "float32"})
    outcome = search(program)
    assert outcome.plan == {"a": "native", "b": "float32"}
    assert verdict(outcome, "a").reason is StopReason.FAILED
    assert verdict(outcome, "a").detail == "exit code 3"


@pytest.mark.parametrize("error", [float("nan"), float("inf")])
def test_an_error_that_is_not_finite_is_over_budget(error: float) -> None:
    program = TableProgram(halves(a=2.0, b=1.0), {"a": {"float32": error}})
    outcome = search(program)
    assert outcome.plan == {"a": "native", "b": "float32"}
    assert verdict(outcome, "a").reason is StopReason.OVER_BUDGET


def test_nan_is_refused_under_an_infinite_budget() -> None:
    program = TableProgram(halves(a=2.0), {"a": {"float32": float("nan")}})
    assert search(program, budget=float("inf")).plan == {"a": "native"}
