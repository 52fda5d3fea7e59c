"""`np.tensordot(a, b, axes)` → `_mixpert.tensordot(a, b, axes, native=np.tensordot)`."""

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

NAME = "tensordot_call"
WORDS = frozenset({"tensordot"})
RUNTIME = "tensordot"


def find(node: ast.AST, scope: Scope) -> Found | None:
    """A call of numpy's or cupy's `tensordot`, under whatever name it was imported."""
    return certain_call.find(node, scope, "tensordot", _reason)


def _reason(call: ast.Call) -> str | None:
    return certain_call.argument_reason(call, 2, "axes")
