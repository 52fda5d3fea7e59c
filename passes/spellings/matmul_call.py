"""`np.matmul(a, b)` → `_mixpert.matmul(a, b, native=np.matmul)`; `cp.matmul` the same."""

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

NAME = "matmul_call"
WORDS = frozenset({"matmul"})
RUNTIME = "matmul"


def find(node: ast.AST, scope: Scope) -> Found | None:
    """A call of numpy's or cupy's `matmul`, under whatever name it was imported."""
    return function_call.find(node, scope, "matmul")
