"""`x.dot(y)` → `_mixpert.dot_method(x, y)`, whatever x is: the runtime keeps its type's meaning."""

import ast

from mixpert_py.passes.edit import Edit, after_brackets, before_brackets, comma, without_comments
from mixpert_py.passes.found import Found
from mixpert_py.passes.function_call import after_arguments, argument_reason, written_name
from mixpert_py.passes.scope import Scope
from mixpert_py.passes.source import Source

NAME = "dot_method"
WORDS = frozenset({"dot"})
RUNTIME = "dot_method"


def find(node: ast.AST, scope: Scope) -> Found | None:
    """Any method `dot` with one operand, and perhaps `out`."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    if node.func.attr != "dot" or scope.is_module(node.func):
        return None
    return Found("dot", _reason(node, node.func.value, scope))


def _reason(call: ast.Call, owner: ast.expr, scope: Scope) -> str | None:
    if isinstance(owner, ast.Call) and written_name(owner.func) == "super":
        return "super().dot is left native"
    if len(call.args) == 2 and any(binding.target for binding in scope.root_bindings(owner)):
        # A method's second argument is `out`, a module's function's is the second operand.
        return f"{ast.unparse(owner)} may be a module other than numpy or cupy"
    reason = argument_reason(call, 1)
    return None if reason == "the function's name spans several lines" else reason


def operands(node: ast.AST) -> tuple[ast.expr, ...]:
    """The object and its method's operand."""
    assert isinstance(node, ast.Call)
    assert isinstance(node.func, ast.Attribute)
    return (node.func.value, node.args[0])


def edits(node: ast.AST, source: Source, call: str, tail: str, depth: int) -> list[Edit]:
    """`.dot(` becomes a comma; the call's own closing bracket stays."""
    assert isinstance(node, ast.Call)
    assert isinstance(node.func, ast.Attribute)
    start = source.span(node)[0]
    left, right = source.span(node.func.value)[1], source.span(node.args[0])[0]
    period = left + without_comments(source.text[left:right]).index(".")
    bracket = source.span(node.func)[1]
    bracket += without_comments(source.text[bracket:right]).index("(") + 1
    left = after_brackets(source.text, left, period)
    right = before_brackets(source.text, bracket, right)
    last = after_arguments(node, source)
    return [
        Edit(start, start, f"{call}(", True, depth),
        Edit(left, right, comma(source.text[left:right], (".", "dot", "(")), False, depth),
        Edit(last, last, tail, False, depth),
    ]


def native(node: ast.AST) -> ast.expr | None:
    """The runtime looks the method up on the object itself."""
    return None


def arguments(node: ast.AST) -> tuple[list[ast.expr], list[ast.keyword]]:
    """The runtime call's arguments: the object, then the method's own."""
    assert isinstance(node, ast.Call)
    assert isinstance(node.func, ast.Attribute)
    return [node.func.value, *node.args], list(node.keywords)


def restore(call: ast.Call) -> ast.expr:
    """The method's call that a runtime call, without its own keywords, was made from."""
    owner, *others = call.args
    return ast.Call(ast.Attribute(owner, "dot", ast.Load()), others, call.keywords)
