"""`imatmul` and `target` do what `@=` does, for every type, and write where it writes."""

import copy
import operator
from functools import partial
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.modules import precision
from mixpert_py.runtime.products.in_place import imatmul, target
from mixpert_py.runtime.tracing.trace import Trace
from tests.runtime.operands import OPERANDS, outcome, same
from tests.runtime.without_gpu import FORCES, SITE
from tests.runtime.without_gpu import no_gpu as no_gpu

SQUARE = {f"square {kind}": np.arange(9).reshape(3, 3).astype(kind) for kind in "fdFDei?O"} | {
    "stack": np.ones((4, 3, 3)),
    "row": np.arange(3.0),
    "transposed": np.arange(9.0).reshape(3, 3).T,
    "every other": np.ones((3, 6))[:, ::2],
    "three rows": np.ones((3, 2)),
    "list": [[1, 2, 3], [4, 5, 6], [7, 8, 9]],
    "matrix": np.matrix(np.eye(3)),
    "masked": np.ma.masked_equal(np.eye(3), 1),
}


def require_as_native(name: str, a: Any, b: Any, *, exact: bool) -> None:
    """`imatmul` gives, raises, warns and writes what `@=` does."""
    theirs, ours = copy.deepcopy(a), copy.deepcopy(a)
    wanted, its_warnings = outcome(operator.imatmul, theirs, copy.deepcopy(b))
    result, our_warnings = outcome(partial(imatmul, site=SITE), ours, copy.deepcopy(b))
    if exact:
        assert same(result, wanted), (name, result, wanted)
        assert not isinstance(a, np.ndarray) or same(ours, theirs), (name, ours, theirs)
        assert our_warnings == its_warnings, name
    elif not same(result, wanted):
        assert type(result) is type(wanted), (name, result, wanted)
        assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_allclose(result, wanted, rtol=3e-5, atol=3e-5)
        assert result is ours
    assert (result is ours) == (wanted is theirs), name


@pytest.mark.parametrize("context", FORCES)
def test_a_call_that_passes_is_the_native_statement(context: str) -> None:
    with use(FORCES[context]()):
        for operands in (OPERANDS, SQUARE):
            for left, a in operands.items():
                for right, b in operands.items():
                    for _ in range(2):  # the first call of a site takes another way
                        require_as_native(f"{left}, {right}", a, b, exact=True)


@pytest.mark.parametrize("scheme", ["int8x6", "faithful", "float64", "float32"])
def test_an_emulated_call_differs_in_value_only(scheme: str) -> None:
    with precision(scheme, backend="reference"), np.errstate(all="ignore"):
        for left, a in SQUARE.items():
            for right, b in SQUARE.items():
                require_as_native(f"{left}, {right}", a, b, exact=False)


def test_an_emulated_product_is_seen_by_every_alias() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 8, 8)).astype("float32")
    alias, wanted = a.T, a @ b
    trace = Trace()
    with use(Context(scheme="int8x3", backend="reference", trace=trace)):
        result = imatmul(a, b, site=SITE)
        squared = imatmul(b, b, site=SITE)
    assert result is a
    assert squared is b
    np.testing.assert_array_equal(alias, result.T)
    assert 0 < np.abs(result - wanted).max() < 1e-2
    assert trace.sites[SITE].reasons == {}
    assert trace.sites[SITE].schemes == {"int8x3": 2}


class Watched:
    """Says in which order it is read and written."""

    def __init__(self, said: list[str]) -> None:
        vars(self).update(said=said, inner=np.eye(2))

    def __getattr__(self, name: str) -> Any:
        self.said.append(f"get {name}")
        return vars(self)["inner"]

    def __setattr__(self, name: str, value: Any) -> None:
        self.said.append(f"set {name}")
        vars(self)["inner"] = value

    def __getitem__(self, key: Any) -> Any:
        return getattr(self, str(key))

    def __setitem__(self, key: Any, value: Any) -> None:
        setattr(self, str(key), value)


def test_a_place_is_read_and_written_once_in_the_order_of_the_statement() -> None:
    def step(name: str, value: Any) -> Any:
        said.append(name)
        return value

    said: list[str] = []
    theirs, ours = Watched(said), Watched(said)
    step("owner", theirs)[step("key", 3)] @= step("operand", np.ones((2, 2)))
    step("owner", theirs).name @= step("operand", np.ones((2, 2)))
    wanted, said[:] = list(said), []
    target(step("owner", ours))[step("key", 3)].imatmul(step("operand", np.ones((2, 2))))
    target(step("owner", ours)).name.imatmul(step("operand", np.ones((2, 2))))
    assert said == wanted
    np.testing.assert_array_equal(vars(ours)["inner"], vars(theirs)["inner"])
