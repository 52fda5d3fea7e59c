"""The ways to write a product.

A function of a library is a row of the table in `functions.py`. Operators, assignments and the
method `dot`, which change more than a name, are in `operators.py`.
"""

import ast

from mixpert_py.passes.scopes import Scope
from mixpert_py.passes.spellings import functions
from mixpert_py.passes.spellings.functions import WORDS as WORDS
from mixpert_py.passes.spellings.operators import METHOD, find_operator
from mixpert_py.passes.spellings.spelling import Match as Match
from mixpert_py.passes.spellings.spelling import Spelling as Spelling


def find(node: ast.BinOp | ast.AugAssign | ast.Call, scope: Scope) -> tuple[Spelling, Match] | None:
    """The spelling of a product and its Match; None if the node is not a product."""
    if not isinstance(node, ast.Call):
        return find_operator(node, scope)
    # `x.dot(y)` is a method's call unless x is, or hides, an imported module; `x.dot(y, z)` may be
    # either, which shows when it runs.
    is_dot = isinstance(node.func, ast.Attribute) and node.func.attr == "dot"
    if is_dot and not scope.is_module(node.func):
        chosen = functions.find_by_identity(node, scope)
        return chosen or (METHOD, Match("dot", METHOD.refusal(node, scope)))
    return functions.find(node, scope) or functions.find_handed_on(node, scope)
