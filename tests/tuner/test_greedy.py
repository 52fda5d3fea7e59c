"""Each rule of the greedy search, on programs that are tables."""

from typing import Any

import pytest

from mixpert_py.tuner.records import Outcome, Reason, Verdict
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
    assert {v.reason for v in outcome.verdicts} == {Reason.BOTTOM}


def test_lowered_rung_by_rung_until_over_budget() -> None:
    program = TableProgram(
        {"a": {"native": 9, "x8": 8, "x6": 6, "x3": 3}},
        {"a": {"x8": 1e-8, "x6": 1e-6, "x3": 1e-4}},
    )
    outcome = search(program, STEPS)
    assert program.steps() == [{}, {"a": "x8"}, {"a": "x6"}, {"a": "x3"}]
    assert outcome.plan == {"a": "x6"}
    assert verdict(outcome, "a").reason is Reason.OVER_BUDGET
    assert verdict(outcome, "a").local_error == 1e-6


def test_a_rung_that_is_not_faster_is_passed_over() -> None:
    program = TableProgram({"a": {"native": 5, "x8": 8, "x6": 6, "x3": 3}}, {})
    outcome = search(program, STEPS)
    assert outcome.plan == {"a": "x3"}
    assert verdict(outcome, "a").reason is Reason.BOTTOM
    assert [t.reason for t in outcome.trials[1:]] == ["not faster", "not faster", "kept"]


def test_rungs_below_a_kept_one_are_compared_with_it() -> None:
    program = TableProgram({"a": {"native": 9, "x8": 4, "x6": 6, "x3": 5}}, {"a": {"x3": 1e-9}})
    outcome = search(program, STEPS)
    assert outcome.plan == {"a": "x8"}
    assert verdict(outcome, "a").reason is Reason.NOT_FASTER


# P is the longest, is lowered first, and then is shorter than S.
SECONDS: Table = {"p": {"native": 10, "float32": 6}, "s": {"native": 9, "float32": 4}}
ERRORS: Table = {"p": {"float32": 6e-6}, "s": {"float32": 6e-6}}


def test_a_shorter_predecessor_is_raised() -> None:
    outcome = search(TableProgram(SECONDS, ERRORS), edges=(("p", "s"),))
    assert outcome.plan == {"p": "native", "s": "float32"}
    assert verdict(outcome, "p").reason is Reason.RAISED
    assert verdict(outcome, "p").detail == "s"
    assert verdict(outcome, "s").reason is Reason.BOTTOM


@pytest.mark.parametrize(
    "edges", [(), (("s", "p"),), (("s", "s"),), (("p", "q"),)], ids=["none", "back", "self", "else"]
)
def test_without_the_edge_nothing_is_raised(edges: tuple[tuple[str, str], ...]) -> None:
    program = TableProgram(SECONDS, ERRORS)
    outcome = search(program, edges=edges)
    assert outcome.plan == {"p": "float32", "s": "native"}
    assert verdict(outcome, "s").reason is Reason.OVER_BUDGET
    assert len(program.plans) == 3


def test_a_predecessor_that_is_not_shorter_is_not_raised() -> None:
    program = TableProgram({**SECONDS, "p": {"native": 20, "float32": 9}}, ERRORS)
    outcome = search(program, edges=(("p", "s"),))
    assert outcome.plan == {"p": "float32", "s": "native"}
    assert len(program.plans) == 3


def test_a_predecessor_is_not_raised_for_less_than_it_costs() -> None:
    program = TableProgram({**SECONDS, "p": {"native": 12, "float32": 6}}, ERRORS)
    outcome = search(program, edges=(("p", "s"),))
    assert outcome.plan == {"p": "float32", "s": "native"}
    assert outcome.trials[-1].changed == ("p", "s")
    assert outcome.trials[-1].reason is Reason.NOT_FASTER


def test_a_step_that_saves_nothing_raises_nobody() -> None:
    program = TableProgram({**SECONDS, "s": {"native": 9, "float32": 9}}, ERRORS)
    search(program, edges=(("p", "s"),))
    assert len(program.plans) == 3


def test_a_locked_predecessor_is_not_raised() -> None:
    program = TableProgram(SECONDS, ERRORS)
    outcome = search(program, edges=(("p", "s"),), locked=("p",), start={"p": "float32"})
    assert outcome.plan == {"p": "float32", "s": "native"}
    assert verdict(outcome, "p").reason is Reason.LOCKED
    assert len(program.plans) == 2


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
    assert verdict(outcome, "s").reason is Reason.BOTTOM


def test_all_schemes_of_a_rung_are_tried_and_the_fastest_kept() -> None:
    program = TableProgram({"a": {"native": 9, "II": 6, "III": 5, "I": 3}}, {"a": {"I": 1}})
    outcome = search(program, PEERS)
    assert program.steps() == [{}, {"a": "II"}, {"a": "III"}, {"a": "I"}]
    assert outcome.plan == {"a": "III"}


@pytest.mark.parametrize(("noise", "third"), [(0.0, 6.0), (0.5, 5.75)], ids=["equal", "noise"])
def test_of_equally_fast_schemes_the_more_accurate_is_kept(noise: float, third: float) -> None:
    program = TableProgram(
        {"a": {"native": 9, "II": 6, "III": third, "I": 8}},
        {"a": {"II": 2e-6, "III": 3e-6, "I": 1}},
    )
    assert search(program, PEERS, noise=noise).plan == {"a": "II"}


def test_of_incomparable_schemes_one_within_budget_is_enough() -> None:
    program = TableProgram(
        {"a": {"native": 9, "II": 2, "III": 6, "I": 1}}, {"a": {"II": 1, "I": 1}}
    )
    assert search(program, PEERS).plan == {"a": "III"}


@pytest.mark.parametrize("slow", ["II", "III"])
def test_of_incomparable_schemes_one_within_budget_leads_on(slow: str) -> None:
    errors = {"II": 1.0, "III": 1.0, slow: 0.0}
    program = TableProgram({"a": {"native": 9, "II": 8, "III": 8, slow: 9, "I": 1}}, {"a": errors})
    assert search(program, PEERS).plan == {"a": "I"}


@pytest.mark.parametrize("slow", ["II", "III"])
def test_of_incomparable_schemes_over_budget_one_that_gains_is_rescued(slow: str) -> None:
    program = TableProgram(
        {
            "p": {"native": 10, "II": 8, "III": 8, "I": 5},
            "s": {"native": 9, "II": 2, "III": 2, slow: 9, "I": 1},
        },
        {"p": {"I": 9e-6}, "s": {"II": 8e-6, "III": 8e-6, "I": 1}},
    )
    outcome = search(program, PEERS, edges=(("p", "s"),))
    assert outcome.plan == {"p": "II", "s": "III" if slow == "II" else "II"}


def test_incomparable_schemes_with_a_raised_predecessor() -> None:
    program = TableProgram(
        {
            "p": {"native": 10, "II": 7, "III": 8, "I": 5},
            "s": {"native": 9, "II": 1, "III": 2, "I": 1},
        },
        {"p": {"I": 9e-6}, "s": {"II": 8e-6, "III": 2e-6, "I": 1}},
    )
    outcome = search(program, PEERS, budget=9e-6, edges=(("p", "s"),))
    # From p at I, both (II, III) for s and (II, III) for p are open; the fastest pair is kept.
    assert outcome.plan == {"p": "II", "s": "II"}


def test_float32_that_is_slower_stays_native() -> None:
    program = TableProgram({"a": {"native": 1.0, "float32": 1.2}}, {"a": {"float32": 1e-7}})
    outcome = search(program)
    assert outcome.plan == {"a": "native"}
    assert verdict(outcome, "a").reason is Reason.NOT_FASTER


@pytest.mark.parametrize(("noise", "scheme"), [(0.4, "float32"), (0.5, "native")])
@pytest.mark.parametrize("per_site", [False, True])
def test_a_gain_counts_only_beyond_the_noise(noise: float, scheme: str, per_site: bool) -> None:
    program = TableProgram(halves(a=1.0), {"a": {"float32": 1e-7}})
    outcome = search(program, noise={"a": noise} if per_site else noise)
    assert outcome.plan == {"a": scheme}


def test_the_noise_of_changed_sites_adds_up() -> None:
    # The pair gains 1 beyond what raising p costs.
    outcome = search(TableProgram(SECONDS, ERRORS), edges=(("p", "s"),), noise={"p": 0.4, "s": 0.5})
    assert outcome.plan["p"] == "native"
    outcome = search(TableProgram(SECONDS, ERRORS), edges=(("p", "s"),), noise={"p": 0.6, "s": 0.5})
    assert outcome.plan["p"] == "float32"


def test_a_scheme_that_took_no_call_is_not_kept() -> None:
    errors = {"a": {"float32": 1e-7}}
    program = TableProgram(halves(a=2.0, b=1.0), errors, unfit={"a": ("float32",)})
    outcome = search(program)
    assert outcome.plan == {"a": "native", "b": "float32"}
    assert verdict(outcome, "a").reason is Reason.NOT_TAKEN
    assert [trial.reason for trial in outcome.trials[1:]] == ["took no call", "kept"]


def test_only_the_changed_sites_must_take_their_scheme() -> None:
    program = TableProgram(halves(a=2.0, b=1.0), {}, unfit={"b": ("native", "float32")})
    assert search(program).plan == {"a": "float32", "b": "native"}


def test_took_no_call_comes_before_budget_and_clock() -> None:
    for table in ({"float32": 1.0}, {"float32": 0.0}):
        program = TableProgram(
            {"a": {"native": 2.0, "float32": 3.0}}, {"a": table}, unfit={"a": ("float32",)}
        )
        assert verdict(search(program), "a").reason is Reason.NOT_TAKEN


def test_a_rung_that_takes_no_call_is_passed_over() -> None:
    seconds = {"a": {"native": 9, "x8": 8, "x6": 6, "x3": 3}}
    outcome = search(TableProgram(seconds, {}, unfit={"a": ("x8", "x6")}), STEPS)
    assert outcome.plan == {"a": "x3"}
    assert verdict(outcome, "a").reason is Reason.BOTTOM


@pytest.mark.parametrize("unfit", ["II", "III"])
def test_of_incomparable_schemes_one_that_takes_no_call_is_out(unfit: str) -> None:
    seconds = {"a": {"native": 9, "II": 5, "III": 5, unfit: 2, "I": 1}}
    errors = {"a": {"I": 1.0}}
    outcome = search(TableProgram(seconds, errors, unfit={"a": (unfit,)}), PEERS)
    assert outcome.plan == {"a": "III" if unfit == "II" else "II"}
    # The other one over budget: so is every rung below.
    errors = {"a": {"II": 1.0, "III": 1.0, "I": 1.0}}
    outcome = search(TableProgram(seconds, errors, unfit={"a": (unfit,)}), PEERS)
    assert verdict(outcome, "a").reason is Reason.OVER_BUDGET
    assert len(outcome.trials) == 3


def test_a_raised_predecessor_must_take_its_scheme() -> None:
    program = TableProgram(SECONDS, ERRORS, unfit={"p": ("native",)})
    outcome = search(program, edges=(("p", "s"),))
    assert outcome.plan == {"p": "float32", "s": "native"}


@pytest.mark.parametrize(
    ("seconds", "reason"),
    [(0.05, Reason.TOO_SHORT), (0.0, Reason.TOO_SHORT), (0.06, Reason.BOTTOM)],
)
def test_an_operator_shorter_than_the_noise_is_not_tried(seconds: float, reason: Reason) -> None:
    program = TableProgram({"a": {"native": seconds, "float32": 0.0}}, {})
    outcome = search(program, noise=0.05)
    assert verdict(outcome, "a").reason is reason
    assert len(program.plans) == 1 + (reason is Reason.BOTTOM)


def test_an_operator_that_never_ran_is_not_tried() -> None:
    program = TableProgram(halves(a=1.0), {})
    operators = [*program.operators(), *TableProgram(halves(b=0.0), {}).operators()]
    outcome = tune(program, operators, (), CPU, 1e-5, noise=0.0)
    assert outcome.plan == {"a": "float32", "b": "native"}
    assert verdict(outcome, "b").reason is Reason.NEVER_RAN


def test_locked_operators_stay() -> None:
    outcome = search(TableProgram(halves(a=2.0, b=1.0), {}), locked=("a",))
    assert outcome.plan == {"a": "native", "b": "float32"}
    assert verdict(outcome, "a").reason is Reason.LOCKED


def test_a_failed_run_is_undone_and_named() -> None:
    program = TableProgram(halves(a=2.0, b=1.0), {}, failing={"a": "float32"})
    outcome = search(program)
    assert outcome.plan == {"a": "native", "b": "float32"}
    assert verdict(outcome, "a").reason is Reason.FAILED
    assert verdict(outcome, "a").detail == "exit code 3"


@pytest.mark.parametrize("error", [float("nan"), float("inf")])
def test_an_error_that_is_not_finite_is_over_budget(error: float) -> None:
    program = TableProgram(halves(a=2.0, b=1.0), {"a": {"float32": error}})
    outcome = search(program)
    assert outcome.plan == {"a": "native", "b": "float32"}
    assert verdict(outcome, "a").reason is Reason.OVER_BUDGET


def test_nan_is_refused_under_an_infinite_budget() -> None:
    program = TableProgram(halves(a=2.0), {"a": {"float32": float("nan")}})
    assert search(program, budget=float("inf")).plan == {"a": "native"}
