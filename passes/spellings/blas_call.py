"""`blas.dgemm(1, a, b)` → `_mixpert.blas_gemm(1, a, b, native=blas.dgemm)`; others the same."""

import ast

from mixpert_py.passes.found import Found
from mixpert_py.passes.function_call import arguments as arguments
from mixpert_py.passes.function_call import edits as edits
from mixpert_py.passes.function_call import native as native
from mixpert_py.passes.function_call import restore as restore
from mixpert_py.passes.function_call import undo as undo
from mixpert_py.passes.scope import Scope

NAME = "blas_call"
WORDS = frozenset({"sgemm", "dgemm", "cgemm", "zgemm"})
RUNTIME = "blas_gemm"
MODULE = "scipy.linalg.blas"
PARAMETERS = ("alpha", "a", "b", "beta", "c", "trans_a", "trans_b", "overwrite_c")


def find(node: ast.AST, scope: Scope) -> Found | None:
    """A call of one of SciPy's four functions for certain, under whatever name."""
    if not isinstance(node, ast.Call):
        return None
    known = scope.meanings(node.func)
    if known is None or len(known) != 1 or not known <= {f"{MODULE}.{word}" for word in WORDS}:
        return None
    return Found(min(known).rpartition(".")[2], _reason(node), known)


def _reason(call: ast.Call) -> str | None:
    keywords = [keyword.arg for keyword in call.keywords]
    if any(isinstance(argument, ast.Starred) for argument in call.args):
        return "starred arguments"
    if None in keywords:
        return "unpacked keyword arguments"
    given = [*PARAMETERS[: len(call.args)], *keywords]
    other = next((word for word in keywords if word not in PARAMETERS), None)
    if other is not None:
        return f"argument {other}= is left native"
    if len(call.args) > len(PARAMETERS) or len(set(given)) < len(given):
        return "too many arguments"
    if not {"alpha", "a", "b"} <= set(given):
        return "too few operands"
    if call.func.lineno != call.func.end_lineno:
        return "the function's name spans several lines"
    return None


def operands(node: ast.AST) -> tuple[ast.expr, ...]:
    """Every argument but `c`, which is added, and perhaps written to."""
    assert isinstance(node, ast.Call)
    at = PARAMETERS.index("c")
    others = [keyword.value for keyword in node.keywords if keyword.arg != "c"]
    return (*node.args[:at], *node.args[at + 1 :], *others)
