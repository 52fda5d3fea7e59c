"""A function that a program has put in NumPy's place is called at every call, the first too."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.products import rearranged
from mixpert_py.runtime.products.einsum import einsum
from mixpert_py.runtime.products.inner import inner
from mixpert_py.runtime.products.multi_dot import multi_dot
from mixpert_py.runtime.products.rearranged import EINSUM, INNER, MULTI_DOT, TENSORDOT, is_replaced
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


def test_numpys_own_functions_are_known() -> None:
    assert (np.einsum, np.tensordot, np.inner) == (EINSUM, TENSORDOT, INNER)
    assert np.linalg.multi_dot is MULTI_DOT
    assert not any(map(is_replaced, (EINSUM, TENSORDOT, INNER, MULTI_DOT)))
    assert is_replaced(np.dot)


def test_a_function_of_another_version_of_numpy_is_found() -> None:
    assert rearranged._own("numpy.no_such_module", np.linalg, "multi_dot") is np.linalg.multi_dot
