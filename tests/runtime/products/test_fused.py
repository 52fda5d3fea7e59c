"""`fused` does what the sum does that it was written for, and multiplies by the scheme."""

import copy
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from mixpert_py.errors import PlanError
from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.products.fused import fused
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.tracing.trace import Trace
from tests.every_check import sweep
from tests.runtime.operands import OPERANDS, outcome, same
from tests.runtime.without_gpu import FORCES, SITE
from tests.runtime.without_gpu import no_gpu as no_gpu


def _plus(c: Any, x: Any) -> Any:
    c += x
    return c


def _minus(c: Any, x: Any) -> Any:
    c -= x
    return c


FORMS: dict[str, Callable[..., Any]] = {
    # form, the sum of its operands in the order of the form
    "ab+c": lambda a, b, c: a @ b + c,
    "ab-c": lambda a, b, c: a @ b - c,
    "c+ab": lambda c, a, b: c + a @ b,
    "c-ab": lambda c, a, b: c - a @ b,
    "c+=ab": lambda c, a, b: _plus(c, a @ b),
    "c-=ab": lambda c, a, b: _minus(c, a @ b),
    "alpha*ab+c": lambda alpha, ab, c: alpha * (ab[0] @ ab[1]) + c,
    "c-alpha*ab": lambda c, alpha, ab: c - alpha * (ab[0] @ ab[1]),
    "c+=alpha*ab": lambda c, alpha, ab: _plus(c, alpha * (ab[0] @ ab[1])),
    "c-=alpha*ab": lambda c, alpha, ab: _minus(c, alpha * (ab[0] @ ab[1])),
    "ab+beta*c": lambda a, b, beta, c: a @ b + beta * c,
    "ab-beta*c": lambda a, b, beta, c: a @ b - beta * c,
    "beta*c-ab": lambda beta, c, a, b: beta * c - a @ b,
    "alpha*ab+beta*c": lambda alpha, ab, beta, c: alpha * (ab[0] @ ab[1]) + beta * c,
    "alpha*ab-beta*c": lambda alpha, ab, beta, c: alpha * (ab[0] @ ab[1]) - beta * c,
    "beta*c+alpha*ab": lambda beta, c, alpha, ab: beta * c + alpha * (ab[0] @ ab[1]),
}


def arguments(form: str, a: Any, b: Any, c: Any, alpha: Any, beta: Any) -> list[Any]:
    """A form's operands, as they stand in it."""
    given: list[Any] = []
    for term in form.replace("=", "").replace("-", "+").split("+"):
        given += {
            "ab": [a, b],
            "alpha*ab": [alpha, (a, b)],
            "c": [c],
            "beta*c": [beta, c],
        }[term]
    return given


@pytest.mark.parametrize("context", FORCES)
@pytest.mark.parametrize("form", FORMS)
def test_a_call_that_passes_is_the_sum(form: str, context: str) -> None:
    rng = np.random.default_rng(0)
    square = rng.standard_normal((4, 4))
    with use(FORCES[context]()):
        for name, x in OPERANDS.items():
            for a, b, c in ((x, square, square), (square, x, square), (square, square, x)):
                given = arguments(form, a, b, c, np.float32(3), 2)
                theirs, ours = copy.deepcopy(given), copy.deepcopy(given)
                wanted, its_warnings = outcome(FORMS[form], *theirs)
                result, our_warnings = outcome(partial(fused, form=form, site=SITE), *ours)
                assert same(result, wanted), (name, result, wanted)
                assert our_warnings == its_warnings
                if "=" in form:
                    assert (result is ours[0]) == (wanted is theirs[0])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", [(4, 6), (6,), (1, 1), (3, 4, 6), ()])
def test_the_product_takes_the_scheme(form: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    a, b, c = rng.standard_normal((4, 5)), rng.standard_normal((5, 6)), rng.standard_normal(shape)
    given = arguments(form, a, b, c, 0.5, -2.0)
    trace = Trace(keep=[SITE])
    wanted, _ = outcome(FORMS[form], *copy.deepcopy(given))
    with use(Context(scheme="int8x3", backend="reference", trace=trace)):
        result, _ = outcome(partial(fused, form=form, site=SITE), *given)
    assert trace.sites[SITE].schemes == {"int8x3": 1}
    assert trace.sites[SITE].shapes == {(4, 5, 6): 1}
    assert trace.results[SITE].shape == (4, 6)
    if isinstance(wanted, tuple):
        assert result == wanted
        return
    assert (type(result), result.shape, result.dtype) == (type(wanted), wanted.shape, wanted.dtype)
    assert 0 < np.abs(result - wanted).max() < 1e-2
    assert (result is given[0]) == ("=" in form)


@pytest.mark.parametrize(
    ("form", "shape", "dtypes"),
    sweep(
        list(FORMS),
        [(4, 6), (6,), (4, 1), (1, 1), (3, 4, 6), ()],
        ["ddd", "fff", "dfd", "ffd", "DDD", "dde"],
    ),
)
def test_a_native_product_is_added_as_the_operator_would(
    form: str, shape: tuple[int, ...], dtypes: str
) -> None:
    """Warnings included: some of these products overflow."""
    rng = np.random.default_rng(0)
    a, b, c = (
        (np.sqrt(np.finfo(dtype).max) * rng.standard_normal(size)).astype(dtype)
        for size, dtype in zip([(4, 5), (5, 6), shape], dtypes, strict=True)
    )
    given = arguments(form, a, b, c, 0.5, -2.0)
    theirs, ours = copy.deepcopy(given), copy.deepcopy(given)
    wanted = outcome(FORMS[form], *theirs)
    found = outcome(partial(fused, form=form, scheme="native"), *ours)
    assert same(found[0], wanted[0])
    assert found[1] == wanted[1]
    for ours_now, theirs_now in zip(ours, theirs, strict=True):
        np.testing.assert_equal(ours_now, theirs_now)


@pytest.mark.parametrize("form", ["ab+c", "ab-c", "c+ab", "c-ab"])
def test_a_sum_takes_the_memory_of_a_native_product(form: str) -> None:
    a, b, c = np.ones((1000, 8)), np.ones((8, 1000)), np.ones((1000, 1000))
    given = arguments(form, a, b, c, 1.0, 1.0)
    tracemalloc.start()
    fused(*given, form=form, scheme="native")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert c.nbytes <= peak < 1.5 * c.nbytes


@pytest.mark.parametrize("form", ["ab+c", "c-ab"])
def test_a_trace_keeps_the_product_and_not_the_sum(form: str) -> None:
    a, b, c = np.ones((4, 5)), np.ones((5, 6)), np.ones((4, 6))
    trace = Trace(keep=[SITE])
    with use(Context(trace=trace)):
        fused(*arguments(form, a, b, c, 1.0, 1.0), form=form, scheme="native", site=SITE)
    np.testing.assert_array_equal(trace.results[SITE], a @ b)


def test_a_sum_in_place_is_seen_by_every_alias() -> None:
    c = np.ones((3, 3))
    view, before = c.T, c.copy()
    assert fused(c, c, c, form="c+=ab") is c
    np.testing.assert_array_equal(view, (before + before @ before).T)


def test_steps_are_made_in_the_order_of_the_program() -> None:
    said: list[str] = []

    class Says:
        def __init__(self, name: str) -> None:
            self.name = name

        def __matmul__(self, other: Any) -> Any:
            return self.made(f"({self.name}@{other.name})")

        def __mul__(self, other: Any) -> Any:
            return self.made(f"({self.name}*{other.name})")

        def __add__(self, other: Any) -> Any:
            return self.made(f"({self.name}+{other.name})")

        def __sub__(self, other: Any) -> Any:
            return self.made(f"({self.name}-{other.name})")

        def __iadd__(self, other: Any) -> Any:
            return self.made(f"({self.name}+={other.name})")

        def __isub__(self, other: Any) -> Any:
            return self.made(f"({self.name}-={other.name})")

        def made(self, name: str) -> "Says":
            said.append(name)
            return Says(name)

    for form, plain in FORMS.items():
        given = arguments(form, *map(Says, ("a", "b", "c", "alpha", "beta")))
        plain(*given)
        wanted, said[:] = list(said), []
        fused(*given, form=form)
        assert said == wanted
        said.clear()


def test_a_product_without_a_scheme_says_why() -> None:
    trace = Trace()
    with use(Context(scheme="int8x3", backend="reference", trace=trace)):
        fused(np.eye(3, dtype=int), np.eye(3), 1.0, form="ab+c", site=SITE)
    assert trace.sites[SITE].reasons == {Reason.INTEGER: 1}


@pytest.mark.parametrize("form", ["", "ab", "ab+=c", "beta*c+=ab", "c*ab", "ab+c+c"])
def test_other_forms_are_errors(form: str) -> None:
    with pytest.raises(PlanError, match="unknown form"):
        fused(1, 2, 3, form=form)
