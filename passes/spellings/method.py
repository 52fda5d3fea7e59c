"""`x.dot(y)` → `_mixpert.dot_method(x, y)` for any x: the runtime keeps its type's meaning."""

import ast

from mixpert_py.passes.edits import (
    Edit,
    after_brackets,
    before_brackets,
    method_to_comma,
    opening,
    without_comments,
)
from mixpert_py.passes.scope import Scope, written_name
from mixpert_py.passes.source import Source
from mixpert_py.passes.spellings.functions import Parameters, after_arguments
from mixpert_py.passes.spellings.spelling import Parts

RUNTIME = "dot_method"
PARAMETERS = Parameters(("b",), ("out",))


def matches(node: ast.AST) -> bool:
    """Whether a node is a call of a method `dot`."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "dot"
    )


def refusal(call: ast.Call, scope: Scope) -> str | None:
    """The reason to leave such a call alone; None if it is rewritten."""
    assert isinstance(call.func, ast.Attribute)
    owner = call.func.value
    if isinstance(owner, ast.Call) and written_name(owner.func) == "super":
        return "super().dot is left native"
    if len(call.args) == 2 and any(binding.target for binding in scope.root_bindings(owner)):
        # A method's second argument is `out`, a module's function's is the second operand.
        return f"{ast.unparse(owner)} may be a module other than numpy or cupy"
    if (call.lineno, call.col_offset) != (call.func.lineno, call.func.col_offset):
        return "brackets around the method"
    return PARAMETERS.refusal(call)


def parts(node: ast.AST) -> Parts:
    """The object and its method's own arguments; the runtime looks the method up on the object."""
    assert isinstance(node, ast.Call)
    assert isinstance(node.func, ast.Attribute)
    output = PARAMETERS.argument(node, "out")
    return Parts([node.func.value, *node.args], list(node.keywords), output)


def edits(node: ast.AST, source: Source, call: str, keywords: str, depth: int) -> list[Edit]:
    """`.dot(` becomes a comma; the call's own closing bracket stays.

    The text between `.`, `dot` and `(` goes to the sides of the first `=` of
    the keywords.
    """
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
    text, spacing = method_to_comma(source.text[left:right])
    keywords = keywords.replace("=", "=".join(spacing), 1)
    return [
        Edit(start, start, opening(source.text, start, call), True, depth),
        Edit(left, right, text, False, depth),
        Edit(last, last, keywords, False, depth),
    ]
