"""`np.inner(a, b)` → `_mixpert.inner(a, b, native=np.inner)`; `cp.inner` the same."""

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

NAME = "inner_call"
WORDS = frozenset({"inner"})
RUNTIME = "inner"


def find(node: ast.AST, scope: Scope) -> Found | None:
    """A call of numpy's or cupy's `inner`, under whatever name it was imported."""
    return certain_call.find(node, scope, "inner", _reason)


def _reason(call: ast.Call) -> str | None:
    return certain_call.argument_reason(call, 2)
