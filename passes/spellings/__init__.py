"""The ways to write a product.

A function of a library is a row of the table in `functions.py`. Operators, assignments and
methods, which change more than a name, have a file each; a new file is added to `find`.
"""

import ast

from mixpert_py.passes.scope import Scope
from mixpert_py.passes.spellings import assign, functions, matrix, method, operator
from mixpert_py.passes.spellings.functions import WORDS as WORDS
from mixpert_py.passes.spellings.spelling import Match as Match
from mixpert_py.passes.spellings.spelling import Spelling as Spelling


def find(node: ast.AST, scope: Scope) -> tuple[Spelling, Match] | None:
    """The spelling of a product and its Match; None if the node is not a product."""
    if operator.matches(node):
        return operator, Match("matmul")
    if match := matrix.find(node, scope):
        return operator, match
    if isinstance(node, ast.AugAssign):
        return (assign, Match("matmul", assign.refusal(node))) if assign.matches(node) else None
    if not isinstance(node, ast.Call):
        return None
    # `x.dot(y)` is a method's call unless x is, or hides, an imported module; `x.dot(y, z)` may be
    # either, which shows when it runs.
    if method.matches(node) and not scope.is_module(node.func):
        chosen = functions.find_by_identity(node, scope)
        return chosen or (method, Match("dot", method.refusal(node, scope)))
    return functions.find(node, scope) or functions.find_handed_on(node, scope)
