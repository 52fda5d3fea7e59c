"""Budgets by value: what they may look like, and the number that they make of several errors."""

from math import inf, isnan, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixpert_py.budget import limits_of
from mixpert_py.errors import MixPertError, ProgramError
from mixpert_py.plan import Criterion, Plan
from mixpert_py.tuning.options import (
    UNCHANGED,
    Limit,
    Limits,
    limits_from,
    parse_budgets,
    parse_named,
)

SEVERAL = Limits(Limit(1e-4), {"loss": Limit(1e-6, "max")})


def test_of_several_limits_the_largest_share_counts() -> None:
    assert (SEVERAL.budget, SEVERAL.metric) == (1.0, None)
    assert SEVERAL.worst({"a": 5e-5, "loss": 4e-7}) == (pytest.approx(0.5), "a")
    assert SEVERAL.worst({"a": 5e-5, "loss": 6e-7}) == (pytest.approx(0.6), "loss")
    assert SEVERAL.scale == pytest.approx(1e6)
    assert Limits(Limit(0.0), {"a": Limit(inf)}).scale == 1.0


@pytest.mark.parametrize("limits", [Limits(Limit(1e-4)), SEVERAL], ids=["one", "several"])
def test_nan_in_any_value_is_the_worst(limits: Limits) -> None:
    number, name = limits.worst({"a": inf, "loss": nan, "c": 0.0})
    assert isnan(number)
    assert name == "loss"


SIZES = st.floats(0, allow_infinity=True, allow_subnormal=False)


@settings(deadline=None)
@given(SIZES, SIZES)
def test_a_share_is_at_most_1_exactly_within_the_budget(error: float, budget: float) -> None:
    assert (Limit(budget).share(error) <= 1) == (error <= budget)
    assert isnan(Limit(budget).share(nan))


def test_only_named_values_are_judged_where_no_other_budget_is() -> None:
    values = {"logits": 1, "loss": 2}
    assert Limits(None, {"loss": Limit(1.0)}).judged(values) == {"loss": 2}
    assert SEVERAL.judged(values) == values
    assert SEVERAL.judged({}) == {}
    with pytest.raises(ProgramError, match=r"no value 'loss' to judge; the program shows a, b$"):
        SEVERAL.judged({"a": 1, "b": 2})
    with pytest.raises(ProgramError, match=r"v18, v19 and 80 more$"):
        SEVERAL.judged({f"v{i}": 1 for i in range(100)})


def test_budgets_and_criteria_by_value() -> None:
    budgets = parse_budgets("--error", ("1e-4", "loss=1e-6", "a=b=2"))
    metrics = parse_named("--criterion", ("logits=max", "mred", "loss=my:own"))
    assert limits_from(budgets, metrics) == Limits(
        Limit(1e-4, "mred"),
        {"loss": Limit(1e-6, "my:own"), "a=b": Limit(2.0, "mred"), "logits": Limit(1e-4, "max")},
    )
    assert limits_from({None: 1.0}, {}) == Limits(Limit(1.0, "frobenius"))
    assert limits_from({"x": 1.0}, {}).common is None


DECIDED = {
    "x": np.ones(2),
    "labels": np.ones(2, int),
    "mask": np.ones(2, bool),
    "rank": np.asarray(3),
}


def test_decisions_may_not_change_unless_a_share_is_named() -> None:
    limits = limits_from({None: 1e-4, "rank": 0.5}, {}).with_decisions(DECIDED)
    assert limits.common == Limit(1e-4)
    assert limits.named == {
        "labels": UNCHANGED,
        "mask": UNCHANGED,
        "rank": Limit(0.5, "differing"),
    }
    only = limits_from({None: 1e-4}, {}).with_decisions(DECIDED)
    # The search still goes by the user's own unit; a changed decision is over any budget.
    assert (only.budget, only.metric) == (1e-4, "frobenius")
    assert only.worst({"x": 3e-5, "labels": 0.0}) == (3e-5, "x")
    assert only.worst({"x": 3e-5, "labels": 1e-6}) == (inf, "labels")


def test_a_criterion_that_is_named_for_a_decision_stays() -> None:
    by_name = limits_from({None: 1e-4}, {"labels": "frobenius"}).with_decisions(DECIDED)
    assert by_name.of("labels") == Limit(1e-4, "frobenius")
    own = limits_from({None: 1e-4, "rank": 1.0}, {None: "my:own"}).with_decisions(DECIDED)
    assert {own.of(name).metric for name in DECIDED} == {"my:own"}
    alone = limits_from({"labels": 0.1}, {}).with_decisions(DECIDED)
    assert alone == Limits(None, {"labels": Limit(0.1, "differing")})


@pytest.mark.parametrize(
    ("texts", "word"),
    [
        (("x",), "--error is a number from 0 to 1e+300, not x"),
        (("a=",), "VALUE, or NAME=VALUE"),
        (("=1",), "VALUE, or NAME=VALUE"),
        (("",), "VALUE, or NAME=VALUE"),
        (("1", "2"), "stands twice"),
        (("a=1", "a=2"), "'a' stands twice"),
        (("-1",), "--error is a number from 0 to 1e+300, not -1"),
        (("inf",), "--error is a number from 0 to 1e+300, not inf"),
        (("1e308",), "--error is a number from 0 to 1e+300, not 1e308"),
        (("a=nan",), "--error is a number from 0 to 1e+300, not nan"),
    ],
)
def test_what_is_no_budget(texts: tuple[str, ...], word: str) -> None:
    with pytest.raises(MixPertError) as caught:
        parse_budgets("--error", texts)
    assert word in str(caught.value)


def test_a_criterion_without_a_budget_is_refused() -> None:
    with pytest.raises(MixPertError, match=r"'loss' has a criterion and no budget \(--error loss="):
        limits_from({"logits": 1.0}, {"loss": "max"})
    with pytest.raises(MixPertError, match="at least 0"):
        Limit(nan)


def test_the_decisions_of_a_plan_stand_beside_its_budget() -> None:
    labels = Criterion("labels", "differing", 0.0)
    plan = Plan(criterion=[Criterion("a", "max", 1.0), labels])
    assert limits_of(plan, {}, {}) == Limits(Limit(1.0, "max"))
    assert limits_of(plan, {None: 2.0}, {"a": "max"}).common == Limit(2.0, "max")
    loose = Plan(criterion=[plan.criterion[0], Criterion("labels", "differing", 0.1)])
    assert limits_of(loose, {}, {None: "max"}).named["labels"] == Limit(0.1, "differing")
