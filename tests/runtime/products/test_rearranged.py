"""What the products of rearranged operands have in common."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mixpert_py.errors import PlanError
from mixpert_py.plan import Plan, Site
from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.products.einsum import einsum
from mixpert_py.runtime.products.inner import inner
from mixpert_py.runtime.products.multi_dot import multi_dot
from mixpert_py.runtime.products.tensordot import tensordot

A = np.random.default_rng(0).standard_normal((6, 6))

PRODUCTS: dict[str, Callable[..., Any]] = {
    "inner": lambda **given: inner(A, A, **given),
    "multi_dot": lambda **given: multi_dot([A, A, A], **given),
    "tensordot": lambda **given: tensordot(A, A, 1, **given),
    "einsum": lambda **given: einsum("ij,jk", A, A, **given),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_stale_plan_is_told_at_the_products_own_line(name: str) -> None:
    with (
        use(Context(plan=Plan(site=[Site(id="m:f/x~aa#0", scheme="native")]))),
        pytest.warns(UserWarning, match="stale") as caught,
    ):
        PRODUCTS[name](site="m:f/y~bb#0")
    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_plan_brings_its_scheme_and_arguments_override_it(name: str) -> None:
    plan = Plan(site=[Site(id="m:f/x~aa#0", scheme="int8x6")])
    with use(Context(plan=plan, backend="reference")):
        planned = PRODUCTS[name](site="m:f/x~aa#0")
        native = PRODUCTS[name](site="m:f/x~aa#0", scheme="native")
    np.testing.assert_array_equal(native, PRODUCTS[name]())
    assert 0 < np.abs(planned - native).max() < 1e-4
    given = PRODUCTS[name](scheme="int8x6", backend="reference")
    np.testing.assert_array_equal(given, planned)
    other = PRODUCTS[name](scheme="int8x6", backend="reference", block=2)
    assert not np.array_equal(other, planned)


@pytest.mark.parametrize("name", PRODUCTS)
def test_unknown_names_are_errors(name: str) -> None:
    with pytest.raises(PlanError, match="unknown scheme 'int9x6'"):
        PRODUCTS[name](scheme="int9x6")
    with pytest.raises(PlanError, match="unknown backend 'gpu'"):
        PRODUCTS[name](backend="gpu")
