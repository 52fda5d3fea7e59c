"""Products that only their module tells: names like `inner` and `einsum` mean too much elsewhere.

Such a call is one of numpy's or cupy's for certain, or it is not found at all.
"""

import ast
from collections.abc import Callable

from mixpert_py.passes.found import Found
from mixpert_py.passes.scope import ARRAY_MODULES, Scope


def find(
    node: ast.AST, scope: Scope, function: str, reason: Callable[[ast.Call], str | None]
) -> Found | None:
    """A call of numpy's or cupy's `function`, such as "linalg.multi_dot", under whatever name.

    reason: why a call with these arguments is left alone.
    """
    if not isinstance(node, ast.Call):
        return None
    known = scope.meanings(node.func)
    if not known or not known <= {f"{module}.{function}" for module in ARRAY_MODULES}:
        return None
    return Found(function.rpartition(".")[2], reason(node), known)


def argument_reason(call: ast.Call, count: int, option: str | None = None) -> str | None:
    """Why a product with these arguments is left alone; None if it is rewritten.

    Accepted: `count` positional arguments, then `option` by position or by keyword.
    """
    keywords = [keyword.arg for keyword in call.keywords]
    if any(isinstance(argument, ast.Starred) for argument in call.args):
        return "starred arguments"
    if None in keywords:
        return "unpacked keyword arguments"
    if len(call.args) < count:
        return "operands given by keyword" if keywords else "too few operands"
    other = next((word for word in keywords if word != option), None)
    if other is not None:
        return f"argument {other}= is left native"
    if len(call.args) + len(keywords) > count + (option is not None):
        return "too many arguments"
    if any(isinstance(argument, ast.GeneratorExp) for argument in call.args):
        return "a generator as an operand"
    if call.func.lineno != call.func.end_lineno:
        return "the function's name spans several lines"
    return None


def operands(node: ast.AST) -> tuple[ast.expr, ...]:
    """Every argument but `out`: axes and subscripts too decide the result."""
    assert isinstance(node, ast.Call)
    others = (keyword.value for keyword in node.keywords if keyword.arg != "out")
    return (*node.args, *others)
