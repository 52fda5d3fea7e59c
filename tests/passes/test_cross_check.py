"""A product is rewritten only where LibCST reads the same product in its text."""

import pytest

from mixpert_py.passes.cross_check import refusals

PRODUCTS = [
    # id, text, sign, the refusal
    ("operator", "a @ b", "@", None),
    ("several lines", "a # one\n  @ b", "@", None),
    ("statement", "a[i] @= b", "@=", None),
    ("call", "np.dot(a,\nb)", "", None),
    ("another operator", "a * (b @ c)", "@", "LibCST finds no @ here"),
    ("a call as an operator", "f(a)", "@", "LibCST finds no @ here"),
    ("an operator as a call", "a @ b", "", "LibCST finds no call here"),
    ("another statement", "a += b @ c", "@=", "LibCST finds no @= here"),
    ("too long", "a @ b)", "@", "LibCST does not read it"),
    ("too short", "a @", "@", "LibCST does not read it"),
]


@pytest.mark.parametrize(
    ("text", "sign", "refusal"), [pytest.param(*row[1:], id=row[0]) for row in PRODUCTS]
)
def test_a_product_is_confirmed_or_refused(text: str, sign: str, refusal: str | None) -> None:
    assert refusals("m", [("x @ y", "@"), (text, sign)]) == [None, refusal]
