"""`np.einsum("ij,jk", a, b)` → `_mixpert.einsum("ij,jk", a, b, native=np.einsum)`.

Subscripts or lists of indices, any number of operands: the runtime reads them.
"""

import ast

from mixpert_py.passes import certain_call
from mixpert_py.passes.certain_call import operands as operands
from mixpert_py.passes.found import Found
from mixpert_py.passes.function_call import arguments as arguments
from mixpert_py.passes.function_call import edits as edits
from mixpert_py.passes.function_call import native as native
from mixpert_py.passes.function_call import restore as restore
from mixpert_py.passes.function_call import undo as undo
from mixpert_py.passes.scope import Scope

NAME = "einsum_call"
WORDS = frozenset({"einsum"})
RUNTIME = "einsum"
OPTIONS = frozenset({"optimize", "out", "dtype", "order", "casting"})


def find(node: ast.AST, scope: Scope) -> Found | None:
    """A call of numpy's or cupy's `einsum`, under whatever name it was imported."""
    return certain_call.find(node, scope, "einsum", _reason)


def _reason(call: ast.Call) -> str | None:
    keywords = [keyword.arg for keyword in call.keywords]
    if None in keywords:
        return "unpacked keyword arguments"
    # Three arguments are subscripts and two operands; starred ones may be any number.
    if len(call.args) < 3 and not any(isinstance(x, ast.Starred) for x in call.args):
        return "too few operands"
    other = next((word for word in keywords if word not in OPTIONS), None)
    if other is not None:
        return f"argument {other}= is left native"
    if call.func.lineno != call.func.end_lineno:
        return "the function's name spans several lines"
    return None
