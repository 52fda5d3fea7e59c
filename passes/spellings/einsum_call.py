"""`np.einsum("ij,jk", a, b)` → `_mixpert.einsum("ij,jk", a, b, native=np.einsum)`."""

import ast

from mixpert_py.passes import certain_call
from mixpert_py.passes.certain_call import operands as operands
from mixpert_py.passes.found import Found
from mixpert_py.passes.function_call import arguments as arguments
from mixpert_py.passes.function_call import edits as edits
from mixpert_py.passes.function_call import native as native
from mixpert_py.passes.function_call import restore as restore
from mixpert_py.passes.scope import Scope

NAME = "einsum_call"
WORDS = frozenset({"einsum"})
RUNTIME = "einsum"


def find(node: ast.AST, scope: Scope) -> Found | None:
    """A call of numpy's or cupy's `einsum`, under whatever name it was imported."""
    return certain_call.find(node, scope, "einsum", _reason)


def _reason(call: ast.Call) -> str | None:
    if len(call.args) > 3:  # one more operand, or indices given as lists
        return "einsum of anything but subscripts and two operands"
    return certain_call.argument_reason(call, 3, "optimize")
