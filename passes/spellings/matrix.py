"""`a * b` and `a ** n` of `np.matrix` objects, which are matrix products: listed, and left native.

Only the operands' type tells such a product from one element by element, so an operand must be made
by one of MATRICES in the expression itself, or by an assignment to its name.
"""

import ast

from mixpert_py.passes.scope import MATRICES, Scope, written_name
from mixpert_py.passes.spellings.spelling import Match

VIEWS = frozenset({"T", "H", "I"})


def find(node: ast.AST, scope: Scope) -> Match | None:
    """The Match of such a product; None for any other node."""
    if not isinstance(node, ast.BinOp | ast.AugAssign):
        return None
    left, right = operands(node)
    if isinstance(node.op, ast.Pow) and is_matrix(left, scope):
        return Match("matrix_power", "** of a matrix object is left native")
    is_product = isinstance(node.op, ast.Mult) and not any(
        isinstance(x, ast.Constant) for x in (left, right)
    )
    if is_product and (is_matrix(left, scope) or is_matrix(right, scope)):
        return Match("matmul", "* of a matrix object is left native")
    return None


def operands(node: ast.BinOp | ast.AugAssign) -> tuple[ast.expr, ast.expr]:
    """The operands of an operation; for `a *= b` they are a and b."""
    if isinstance(node, ast.BinOp):
        return node.left, node.right
    return node.target, node.value


def is_matrix(operand: ast.expr, scope: Scope) -> bool:
    """Whether an operand is made by one of MATRICES, or computed from such an object."""
    match operand:
        case ast.Name(id=name):
            return not MATRICES.isdisjoint(scope.assigned_words(name))
        case ast.Attribute(value=value, attr=view):
            return view in VIEWS and is_matrix(value, scope)
        case ast.BinOp(left=left, right=right):
            return is_matrix(left, scope) or is_matrix(right, scope)
        case ast.Call(func=function):
            return written_name(function) in MATRICES
    return False
