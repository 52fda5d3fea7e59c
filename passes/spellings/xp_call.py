"""`xp.matmul(a, b)` → `_mixpert.xp_product(a, b, native=xp.matmul)`, where `xp` is anything.

The name is what array modules are called that a program chooses when it runs. The runtime looks at
the function: NumPy's and CuPy's own are products, everything else is called as it was.
"""

import ast

from mixpert_py.passes.certain_call import operands as operands
from mixpert_py.passes.found import Found
from mixpert_py.passes.function_call import arguments as arguments
from mixpert_py.passes.function_call import edits as edits
from mixpert_py.passes.function_call import native as native
from mixpert_py.passes.function_call import restore as restore
from mixpert_py.passes.function_call import undo as undo
from mixpert_py.passes.scope import Scope

NAME = "xp_call"
WORDS = frozenset({"matmul", "dot", "inner", "tensordot", "einsum"})
RUNTIME = "xp_product"
MODULE = "xp"
OPTIONS = frozenset({"out", "axes", "optimize", "dtype", "order", "casting"})


def find(node: ast.AST, scope: Scope) -> Found | None:
    """A call of a product's function of `xp`, unless imports tell what that is."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=word)):
            if name != MODULE or word not in WORDS or scope.meanings(node.func) is not None:
                return None
            if word == "dot" and len(node.args) < 2:
                return None  # a method, of an array that is called so
            return Found(word, _reason(node))
    return None


def _reason(call: ast.Call) -> str | None:
    keywords = [keyword.arg for keyword in call.keywords]
    if None in keywords:
        return "unpacked keyword arguments"
    if len(call.args) < 2 and not any(isinstance(x, ast.Starred) for x in call.args):
        return "operands given by keyword" if keywords else "too few operands"
    other = next((word for word in keywords if word not in OPTIONS), None)
    if other is not None:
        return f"argument {other}= is left native"
    if any(isinstance(part, ast.NamedExpr) for part in ast.walk(call)):
        return "an assignment among the arguments"  # of `xp`, perhaps
    if call.func.lineno != call.func.end_lineno:
        return "the function's name spans several lines"
    return None
