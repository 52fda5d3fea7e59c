"""The ways to write a product.

A function of a library is a row of the table in `functions.py`. Operators, assignments, methods and
fused sums, which change more than a name, have a file each; a new one of those is added to `find`
and to WRITTEN.
"""

import ast

from mixpert_py.passes.scope import Scope
from mixpert_py.passes.spellings import assign, functions, fused, method, operator
from mixpert_py.passes.spellings.functions import WORDS as WORDS
from mixpert_py.passes.spellings.spelling import Match as Match
from mixpert_py.passes.spellings.spelling import Spelling as Spelling

# The spellings whose calls `rewrite` may have written.
WRITTEN: tuple[Spelling, ...] = (operator, assign, method, fused, *functions.FUNCTIONS)


def find(node: ast.AST, scope: Scope, fuse: bool = False) -> tuple[Spelling, Match] | None:
    """The spelling of a product, and what is known about it; None if the node is no product.

    fuse: whether sums may become one call with the product in them.
    """
    if fuse and (match := fused.find(node)):
        return fused, match
    if match := operator.find(node):
        return operator, match
    if match := assign.find(node):
        return assign, match
    if product := functions.find(node, scope):
        return product
    match = method.find(node, scope)
    return (method, match) if match else None
