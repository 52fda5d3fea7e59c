"""`assert_within_budget`: a function under a plan, its module's products rewritten meanwhile."""

import importlib
import itertools
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

import mixpert_py
from mixpert_py import assert_within_budget
from mixpert_py.errors import BudgetError, MixPertError, PlanError, ProgramError
from mixpert_py.passes.pipeline import analyze
from mixpert_py.plan import Criterion, Plan, Site, save

NET = """\
import numpy as np
import mixpert_py

def square(x):
    return x @ x

class Net:
    def forward(self, x):
        return {"y": square(x), "parts": (1, [x.dot(x)]), "name": "net"}

@mixpert_py.accelerate(scheme="int8x1")
def accelerated(x):
    return x @ x

def unsteady(x):
    return square(x) * next(x_count)

def writes_to_out(x, out):
    return np.matmul(x, x, out=out)

def root(x):  # of what is negative as soon as the product is inexact
    exact = (x[:, :, None] * x).sum(1)
    with np.errstate(invalid="ignore"):
        return np.sqrt(1e-9 - abs(square(x) - exact))

def observes(x):
    mixpert_py.observe("inner", square(x))

def labels(x):  # every other column nearly ties with the one before it
    x = x.copy()
    x[:, 1::2] = x[:, ::2] * (1 + 1e-9)
    return square(x).argmax(1)

def picky(x):
    exact = (x[:, :, None] * x).sum(1)
    assert abs(square(x) - exact).max() < 1e-9
    return exact
"""

NAMES = (f"budget_net_{number}" for number in itertools.count())


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A user's module, imported as it is."""
    name = next(NAMES)  # an earlier test's module may still be imported
    (tmp_path / f"{name}.py").write_text(NET)
    monkeypatch.syspath_prepend(tmp_path)
    return importlib.import_module(name)


def plan_of(
    module: ModuleType, scheme: str, budget: float = 1e-3, metric: str = "frobenius"
) -> Plan:
    assert module.__file__ is not None
    found = analyze(Path(module.__file__).read_bytes(), module.__name__)
    return Plan(
        criterion=[Criterion("y", metric, budget)],
        site=[Site(id=site.id, scheme=scheme) for site in found],
    )


@pytest.fixture
def x() -> Any:
    return np.random.default_rng(0).standard_normal((40, 40))


def test_over_budget_is_one_line_with_all_that_matters(
    net: ModuleType, x: Any, tmp_path: Path
) -> None:
    save(plan_of(net, "int8x1"), tmp_path / "net.mixpert.toml")
    with pytest.raises(AssertionError) as caught:
        assert_within_budget(tmp_path / "net.mixpert.toml", net.square, x)
    said = str(caught.value)
    assert len(said.splitlines()) == 1
    for word in ("result: frobenius error", "net.mixpert.toml", "budget of 0.001", "tune again"):
        assert word in said


def test_labels_may_not_change_unless_a_share_is_named(net: ModuleType, x: Any) -> None:
    plan = plan_of(net, "int8x3")
    with pytest.raises(AssertionError, match=r"result: differing error .*, over the budget of 0;"):
        assert_within_budget(plan, net.labels, x)
    assert 0 < assert_within_budget(plan, net.labels, x, budget={"result": 1.0}) <= 1


@pytest.mark.filterwarnings("ignore:call site")  # the second plan has but one of them
def test_nested_values_and_methods(net: ModuleType, x: Any) -> None:
    forward = net.Net().forward  # bound before anything is rewritten
    assert 0 < assert_within_budget(plan_of(net, "int8x3"), forward, x) < 1e-3
    plan = plan_of(net, "native")
    lowered = [site for site in plan.site if "/dot" in site.id]
    bad = Plan(site=[Site(id=lowered[0].id, scheme="int8x1")])
    with pytest.raises(AssertionError, match=r"result\['parts'\]\[1\]\[0\]: "):
        assert_within_budget(bad, forward, x, budget=1e-4)


def test_functions_are_as_they_were(net: ModuleType, x: Any) -> None:
    before = net.square.__code__
    with pytest.raises(AssertionError):
        assert_within_budget(plan_of(net, "int8x1"), net.square, x, budget=0)
    assert net.square.__code__ is before
    with pytest.raises(ZeroDivisionError):
        assert_within_budget(plan_of(net, "int8x1"), lambda: 1 / 0)
    assert net.square.__code__ is before


def test_nan_is_over_any_budget(net: ModuleType, x: Any) -> None:
    assert np.isfinite(net.root(x)).all()
    with pytest.raises(AssertionError, match="error not finite"):
        assert_within_budget(plan_of(net, "int8x1"), net.root, x, budget=np.inf)


def test_narrow_products_are_judged_against_float64(net: ModuleType, x: Any) -> None:
    narrow = x.astype(np.float32)
    assert 0 < assert_within_budget(plan_of(net, "native"), net.square, narrow) < 1e-6


def test_observed_values_count_and_earlier_ones_do_not(net: ModuleType, x: Any) -> None:
    mixpert_py.observe("earlier", x)
    with pytest.raises(AssertionError, match=r"^inner: "):
        assert_within_budget(plan_of(net, "int8x1"), net.observes, x)
    assert assert_within_budget(plan_of(net, "int8x3"), net.observes, x) > 0


def test_a_criterion_and_budget_of_its_own(net: ModuleType, x: Any) -> None:
    plan = plan_of(net, "int8x1", budget=1e9, metric="max")
    assert assert_within_budget(plan, net.square, x) > 1e-2
    with pytest.raises(AssertionError, match="result: max error"):
        assert_within_budget(plan, net.square, x, budget=1e-3)
    with pytest.raises(PlanError, match="no budget by mred; give one"):
        assert_within_budget(plan, net.square, x, criterion="mred")
    with pytest.raises(MixPertError, match="at least 0"):
        assert_within_budget(plan, net.square, x, budget=float("nan"))
    with pytest.raises(MixPertError, match="known: frobenius"):
        assert_within_budget(plan, net.square, x, criterion="x", budget=1)


def test_an_unsteady_function_is_told(net: ModuleType, x: Any) -> None:
    vars(net)["x_count"] = itertools.count(1)
    with pytest.raises(BudgetError, match="two native calls differ by 1"):
        assert_within_budget(plan_of(net, "int8x6"), net.unsteady, x)


def test_an_exception_under_the_plan_says_so(net: ModuleType, x: Any) -> None:
    with pytest.raises(AssertionError) as caught:
        assert_within_budget(plan_of(net, "int8x1"), net.picky, x)
    assert caught.value.__notes__ == ["It came under the plan; the same call passes natively."]


def test_a_check_that_could_not_fail_is_refused(net: ModuleType, x: Any) -> None:
    elsewhere = Plan(site=[Site(id="elsewhere:f/matmul~ab#0", scheme="int8x1")])
    with pytest.raises(ProgramError, match="none of its call sites ran"):
        assert_within_budget(elsewhere, net.square, x, budget=1)
    with pytest.raises(ProgramError, match=r"no product took its planned scheme \(dtype without"):
        assert_within_budget(plan_of(net, "int8x1"), net.square, np.eye(9, dtype="g"))
    with pytest.raises(ProgramError, match="nothing to compare"):
        assert_within_budget(plan_of(net, "int8x1"), lambda: print(net.square(x).shape))
    with pytest.raises(ProgramError, match="no finite number"):
        assert_within_budget(plan_of(net, "int8x1"), net.square, x * np.nan)


def test_the_plans_reference_is_the_reference(net: ModuleType, x: Any) -> None:
    made = plan_of(net, "native")
    native = Plan(criterion=[Criterion("y", "max", 1.0, reference="native")], site=made.site)
    assert assert_within_budget(native, net.square, x.astype(np.float32)) == 0


def test_less_accurate_than_planned(net: ModuleType, x: Any) -> None:
    """Such a product runs natively, and is within any budget; unless that is asked."""
    y = np.random.default_rng(3).standard_normal((96, 96))
    plan = plan_of(net, "int8x3")
    plan = replace(plan, site=[replace(site, error=2e-7) for site in plan.site])
    assert assert_within_budget(plan, net.square, y, budget=1e-12) == 0
    with pytest.raises(AssertionError, match="1 products were less accurate than when the plan"):
        assert_within_budget(plan, net.square, y, budget=1e-12, strict=True)
    with pytest.raises(AssertionError, match="over the budget"):
        assert_within_budget(replace(plan, guard="off"), net.square, y, budget=1e-12)
