"""A product is rewritten only where LibCST sees the same product at the same place."""

import ast
import re

import pytest

from mixpert_py.passes.cross_check import Claim, refusals
from mixpert_py.passes.scopes import read_scopes
from mixpert_py.passes.source import decode

NO_NAMES = frozenset[str]()
NUMPY = frozenset({"numpy.dot"})
HEAD = "import numpy as np\nfrom numpy import dot\n"

CLAIMS = [
    # id, statement, the product in it, whether it is an operator, its names, the refusal
    ("operator", "x = a @ b", "a @ b", True, NO_NAMES, None),
    ("statement", "a @= b", "a @= b", True, NO_NAMES, None),
    ("function", "np.dot(a, b)", "np.dot(a, b)", False, NUMPY, None),
    ("own name", "dot(a, b)", "dot(a, b)", False, NUMPY, None),
    ("method", "a.dot(b)", "a.dot(b)", False, NO_NAMES, None),
    ("too long", "x = a @ b ", "a @ b ", True, NO_NAMES, "does not find it at this position"),
    ("too short", "x = aa @ b", "a @ b", True, NO_NAMES, "does not find it at this position"),
    ("another operator", "x = a * b", "a * b", True, NO_NAMES, "does not find it"),
    ("a call as an operator", "x = f(a)", "f(a)", True, NO_NAMES, "finds no @ here"),
    ("another module", "np.dot(a, b)", "np.dot(a, b)", False, {"cupy.dot"}, "resolves the name"),
    ("one of two", "dot(a, b)", "dot(a, b)", False, {"cupy.dot", "numpy.dot"}, "resolves the name"),
    ("hidden", "def f(np): np.dot(a, b)", "np.dot(a, b)", False, NUMPY, "resolves the name"),
    ("an operator as a call", "x = a @ b", "a @ b", False, NUMPY, "resolves the name"),
    ("a function as a method", "np.dot(a, b)", "np.dot(a, b)", False, NO_NAMES, "resolves the"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("statement", "product", "operator", "names", "refusal"),
    [pytest.param(*row[1:], id=row[0]) for row in CLAIMS],
)
def test_a_claim_is_confirmed_or_refused(
    statement: str, product: str, operator: bool, names: set[str], refusal: str | None
) -> None:
    source = decode(f"{HEAD}{statement}\n".encode(), "m")
    start = source.text.index(product, len(HEAD))
    claim = Claim(
        (start, start + len(product)), operator, frozenset(names), re.split(r"\W", product)[0]
    )
    [reason] = refusals(source, read_scopes(ast.parse(source.text)), [claim])
    if refusal is None:
        assert reason is None
    else:
        assert reason is not None
        assert refusal in reason
