"""A product written as a call of an array module's function: `np.dot(a, b)`, `mm(a, b, out=c)`."""

import ast

from mixpert_py.passes.edit import Edit, after_brackets
from mixpert_py.passes.found import Found
from mixpert_py.passes.scope import ARRAY_MODULES, Scope
from mixpert_py.passes.source import Source
from mixpert_py.passes.tail import Tail


def written_name(node: ast.expr) -> str | None:
    """The last part of a dotted name."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


def find(node: ast.AST, scope: Scope, word: str) -> Found | None:
    """A call of numpy's or cupy's `word`, or one that is written so and cannot be resolved."""
    if not isinstance(node, ast.Call):
        return None
    known = scope.meanings(node.func)
    if known is None:
        if written_name(node.func) == word:
            return Found(word, unresolved(node.func, scope))
        return None
    if all(name in {f"{module}.{word}" for module in ARRAY_MODULES} for name in known):
        return Found(word, argument_reason(node, 2), known)
    other = min((name for name in known if name.rpartition(".")[2] == word), default=None)
    if other is None or other.startswith("mixpert_py."):
        return None
    return Found(word, f"{other} is left native")


def unresolved(function: ast.expr, scope: Scope) -> str:
    """Why a function written like a product is not known to be one."""
    if isinstance(function, ast.Attribute):
        base = function.value
        while isinstance(base, ast.Attribute):
            base = base.value
        owner = ast.unparse(function.value) if isinstance(base, ast.Name) else "an expression"
        return f"{owner} is not known to be numpy or cupy"
    assert isinstance(function, ast.Name)
    if scope.owner(function.id) is None and scope.has_star():
        return f"{function.id} may come from a star import"
    return f"{function.id} is not known to be numpy's or cupy's"


def argument_reason(call: ast.Call, operand_count: int) -> str | None:
    """Why a product with these arguments is left alone; None if it is rewritten.

    Accepted: `operand_count` positional operands, then `out` by position or by keyword.
    """
    keywords = [keyword.arg for keyword in call.keywords]
    if any(isinstance(argument, ast.Starred) for argument in call.args):
        return "starred arguments"
    if None in keywords:
        return "unpacked keyword arguments"
    if len(call.args) < operand_count:
        return "operands given by keyword" if keywords else "too few operands"
    if len(call.args) + len(keywords) > operand_count + 1:
        return "more arguments than operands and out"
    if keywords and keywords != ["out"]:
        return f"argument {keywords[0]}= is left native"
    if any(isinstance(argument, ast.GeneratorExp) for argument in call.args):
        return "a generator as an operand"
    if call.func.lineno != call.func.end_lineno:
        return "the function's name spans several lines"
    return None


def after_arguments(call: ast.Call, source: Source) -> int:
    """The offset behind the last argument and its own brackets, before any trailing comma."""
    last = max(source.span(argument)[1] for argument in (*call.args, *_values(call)))
    return after_brackets(source.text, last, source.span(call)[1] - 1)


def edits(node: ast.AST, source: Source, call: str, tail: str, depth: int) -> list[Edit]:
    """Only the function's name changes, and the runtime's own keywords are added."""
    assert isinstance(node, ast.Call)
    start, end = source.span(node.func)
    last = after_arguments(node, source)
    return [Edit(start, end, call, True, depth), Edit(last, last, tail, False, depth)]


def operands(node: ast.AST) -> tuple[ast.expr, ...]:
    """The two matrices; `out` is not one."""
    assert isinstance(node, ast.Call)
    return tuple(node.args[:2])


def native(node: ast.AST) -> ast.expr | None:
    """The original function, which the runtime calls for everything that it does not multiply."""
    assert isinstance(node, ast.Call)
    return node.func


def arguments(node: ast.AST) -> tuple[list[ast.expr], list[ast.keyword]]:
    """The runtime call's arguments: the original ones."""
    assert isinstance(node, ast.Call)
    return list(node.args), list(node.keywords)


def restore(call: ast.Call) -> ast.expr:
    """The original call of a runtime call that still has its `native=`."""
    others = [keyword for keyword in call.keywords if keyword.arg != "native"]
    function = next(keyword.value for keyword in call.keywords if keyword.arg == "native")
    return ast.Call(function, call.args, others)


def undo(call: ast.Call, source: Source, tail: Tail) -> list[Edit] | None:
    """The inverse of `edits`."""
    if not tail.native:
        return None
    start, end = source.span(call.func)
    return [Edit(start, end, tail.native, True, 0), Edit(tail.start, tail.end, "", False, 0)]


def _values(call: ast.Call) -> list[ast.expr]:
    return [keyword.value for keyword in call.keywords]
