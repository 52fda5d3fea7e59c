"""Operands packed once: multiplied as the arrays would be, and nothing else fits in their place."""

from typing import Any

import numpy as np
import pytest

from mixpert_py.errors import PlanError, ShapeError
from mixpert_py.runtime.api import matmul
from mixpert_py.runtime.packed_array import pack
from tests.runtime.gpu.fake import ndarray, normal


@pytest.mark.parametrize(
    ("dtype", "scheme"), [("f", "faithful"), ("F", "faithful"), ("d", "crt"), ("D", "native")]
)
@pytest.mark.usefixtures("gpu")
def test_nothing_weaker_than_the_type_is_packed_for_unasked(dtype: str, scheme: str) -> None:
    x = np.eye(4, dtype=dtype)
    assert pack(x).scheme == scheme  # NumPy's is kept as it is
    if scheme != "crt":  # which looks at it
        handle = pack(ndarray(x))
        assert (handle.scheme, handle.packed is None) == (scheme, scheme == "native")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"scheme": "int8x3"}, "packed for 'int8x6' cannot take 'int8x3'"),
        ({"block": 64}, "no block"),
    ],
)
@pytest.mark.usefixtures("gpu")
def test_a_wish_that_does_not_fit_is_an_error(given: Any, message: str) -> None:
    a, handle = normal(5, 6), pack(normal(6, 4), "int8x6")
    with pytest.raises(PlanError, match=message):
        matmul(a, handle, **given)
    assert matmul(a, handle, scheme="int8x6").shape == (5, 4)


@pytest.mark.usefixtures("gpu")
def test_the_wrong_side_is_an_error() -> None:
    a = normal(6, 6)
    with pytest.raises(PlanError, match="packed for the right stands on the left; pack it with"):
        matmul(pack(a), a)
    with pytest.raises(PlanError, match="unknown side 'top'; known: left, right"):
        pack(a, side="top")  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="packed for 'int8x6' cannot take 'int8x8'"):
        matmul(pack(a, "int8x6", side="left"), pack(a, "int8x8"))


@pytest.mark.usefixtures("gpu")
def test_what_cannot_be_packed() -> None:
    with pytest.raises(ShapeError, match=r"shape \(6,\): wanted a matrix"):
        pack(normal(6), "int8x6")
    with pytest.raises(TypeError, match="cannot pack int32: wanted float32, float64 or complex"):
        pack(ndarray(np.eye(3, dtype=np.int32)), "int8x6")
    with pytest.raises(PlanError, match="unknown scheme 'int9'"):
        pack(normal(6, 6), "int9")
