"""The pytest marker `mixpert_budget`: a test fails when a plan no longer meets its budget.

    @pytest.mark.mixpert_budget("net.mixpert.toml")
    def test_forward(inputs):
        return net.forward(inputs)

plan: a file, from pytest's root folder, or a Plan; error, criterion: for all values, or a dict of
value → its own; default what the plan says. strict: a product that is less accurate than when the
plan was made, and so runs natively, fails the test, too.
The test is called several times with the same fixtures: natively (twice), with every product in
float64, and under the plan; see `mixpert_py.assert_within_budget`. What it returns is compared,
and what it marks with `mixpert_py.observe(name, value)`. Its own assertions hold in each call.

Everything but pytest is imported when the first such test runs.
"""

import inspect
import os
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import pytest

if TYPE_CHECKING:
    from mixpert_py.plan import Plan

PlanOrPath: TypeAlias = "str | os.PathLike[str] | Plan"
MARKER = "mixpert_budget"
USAGE = f"{MARKER}(plan, error=None, criterion=None, strict=False)"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{USAGE}: fail when the plan does not meet its budget")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Fail a marked test that is no plain function: the marker would have no effect on it."""
    if item.get_closest_marker(MARKER) is None:
        return
    from unittest import TestCase

    function = getattr(item, "obj", None)
    cls = getattr(item, "cls", None)
    if not isinstance(item, pytest.Function) or (cls and issubclass(cls, TestCase)):
        pytest.fail(f"{MARKER} marks plain test functions, not unittest's", pytrace=False)
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        pytest.fail(f"{MARKER} marks plain test functions, not async ones", pytrace=False)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    marker = pyfuncitem.get_closest_marker(MARKER)
    if marker is None:
        return None
    problem = _problem(pyfuncitem, marker)
    if problem:  # reported here, so that no exception of ours stands beside it
        pytest.fail(problem, pytrace=False)
    return True


def _problem(test: pytest.Function, marker: pytest.Mark) -> str:
    """The reason why a marked test fails, apart from what it raises itself; "" if it passes."""
    try:
        plan, budget, criterion, strict = mixpert_budget(*marker.args, **marker.kwargs)
    except TypeError as error:
        return f"{error}; {USAGE}"
    from mixpert_py.budget import check
    from mixpert_py.errors import MixPertError

    if isinstance(plan, (str, os.PathLike)):
        plan = test.config.rootpath / plan
    names = inspect.signature(test.obj).parameters.keys() & test.funcargs.keys()
    call = partial(test.obj, **{name: test.funcargs[name] for name in names})
    try:
        found = check(plan, call, budget, criterion, strict=strict)
    except MixPertError as error:
        return str(error)
    return "" if found.holds else found.sentence


def mixpert_budget(
    plan: PlanOrPath,
    error: float | Mapping[str, float] | None = None,
    criterion: str | Mapping[str, str] | None = None,
    strict: bool = False,
) -> tuple[PlanOrPath, float | Mapping[str, float] | None, str | Mapping[str, str] | None, bool]:
    """The arguments of a marker. Raises Python's own TypeError for others than these."""
    return plan, error, criterion, strict
