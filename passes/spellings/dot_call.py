"""`np.dot(a, b)` → `_mixpert.dot(a, b, native=np.dot)`; `cp.dot` the same."""

import ast

from mixpert_py.passes import function_call
from mixpert_py.passes.found import Found
from mixpert_py.passes.function_call import arguments as arguments
from mixpert_py.passes.function_call import edits as edits
from mixpert_py.passes.function_call import native as native
from mixpert_py.passes.function_call import operands as operands
from mixpert_py.passes.function_call import restore as restore
from mixpert_py.passes.function_call import undo as undo
from mixpert_py.passes.scope import Scope

NAME = "dot_call"
WORDS = frozenset({"dot"})
RUNTIME = "dot"


def find(node: ast.AST, scope: Scope) -> Found | None:
    """A call of numpy's or cupy's `dot`, under whatever name it was imported.

    `x.dot(y)` is a method's call unless x is, or hides, an imported module.
    """
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and not scope.is_module(node.func)
    ):
        return None
    return function_call.find(node, scope, "dot")
