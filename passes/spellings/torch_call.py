"""`torch.matmul(a, b)` → `_mixpert.torch_matmul(a, b, native=torch.matmul)`; `mm`, `bmm` too."""

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

NAME = "torch_call"
WORDS = frozenset({"matmul", "mm", "bmm"})
RUNTIME = "torch_matmul"


def find(node: ast.AST, scope: Scope) -> Found | None:
    """A call of one of PyTorch's three functions for certain, under whatever name."""
    if not isinstance(node, ast.Call):
        return None
    known = scope.meanings(node.func)
    if not known or not known <= {f"torch.{word}" for word in WORDS}:
        return None
    reason = certain_call.argument_reason(node, 2)
    return Found(min(known).rpartition(".")[2], reason, known)
