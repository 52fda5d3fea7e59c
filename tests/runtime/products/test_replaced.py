"""A function that a program has put in NumPy's place is called at every call, the first too."""

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import numpy as np
import pytest

import mixpert_py
from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.products.einsum import einsum
from mixpert_py.runtime.products.inner import inner
from mixpert_py.runtime.products.multi_dot import multi_dot
from mixpert_py.runtime.products.tensordot import tensordot
from mixpert_py.runtime.products.xp import xp_product
from tests.runtime.without_gpu import SITE

A = np.eye(3)
CALLS: dict[str, tuple[Callable[..., Any], str, tuple[Any, ...]]] = {
    "einsum": (einsum, "einsum", ("ij,jk", A, A)),
    "einsum of three": (einsum, "einsum", ("ij,jk,kl", A, A, A)),
    "tensordot": (tensordot, "tensordot", (A, A, 1)),
    "inner": (inner, "inner", (A, A)),
    "multi_dot": (multi_dot, "multi_dot", ([A, A, A],)),
    "any": (xp_product, "einsum", ("ij,jk", A, A)),
}


@pytest.mark.parametrize("scheme", [None, "native", "float32"])
@pytest.mark.parametrize("name", CALLS)
def test_the_programs_own_function_is_called(
    monkeypatch: pytest.MonkeyPatch, name: str, scheme: str | None
) -> None:
    product, word, operands = CALLS[name]
    called: list[tuple[Any, ...]] = []

    def theirs(*given: Any, **options: Any) -> object:
        called.append(given)
        return "theirs"

    monkeypatch.setattr(np.linalg if word == "multi_dot" else np, word, theirs)
    with use(Context(scheme=scheme)):
        for _ in range(2):
            assert product(*operands, site=SITE, native=theirs) == "theirs"
    assert len(called) == 2
    assert [len(given) for given in called] == [len(operands)] * 2


class Duck:
    """An operand whose `__array_function__` returns the arguments that it is given."""

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return function.__name__, args, kwargs


DUCK = Duck()
WRITTEN: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("tensordot", (A, DUCK), {}),
    ("tensordot", (A, DUCK, 1), {}),
    ("tensordot", (DUCK, A), {"axes": 1}),
    ("tensordot", (DUCK, A), {"axes": 2}),
    ("dot", (A, DUCK), {}),
    ("dot", (A, DUCK, None), {}),
    ("dot", (A, DUCK), {"out": None}),
    ("inner", (A, DUCK), {}),
    ("einsum", ("ij,jk", A, DUCK), {}),
    ("einsum", ("ij,jk", A, DUCK), {"optimize": False, "out": None}),
    ("linalg.multi_dot", ([A, DUCK],), {}),
    ("linalg.multi_dot", ([A, DUCK],), {"out": None}),
]


@pytest.mark.parametrize("scheme", [None, "float32", "int8x6"])
@pytest.mark.parametrize("asked", [False, True], ids=["by name", "by function"])
@pytest.mark.parametrize(("name", "operands", "named"), WRITTEN)
def test_a_type_with_products_of_its_own_gets_the_call_as_it_is_written(
    name: str, operands: Any, named: dict[str, Any], asked: bool, scheme: str | None
) -> None:
    native = attrgetter(name)(np)
    product = xp_product if asked else getattr(mixpert_py, name.rpartition(".")[2])
    with use(Context(scheme=scheme)):
        for _ in range(2):
            result = product(*operands, **named, site=SITE, native=native)
            assert result == native(*operands, **named)
