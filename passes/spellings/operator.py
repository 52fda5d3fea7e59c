"""`a @ b` → `_mixpert.matmul(a, b)`."""

import ast

from mixpert_py.passes.edits import (
    Edit,
    after_brackets,
    before_brackets,
    comma_to_operator,
    opening,
    operator_to_comma,
    without_comments,
    without_opening,
)
from mixpert_py.passes.keywords import RuntimeKeywords
from mixpert_py.passes.source import Source

RUNTIME = "matmul"


def matches(node: ast.AST) -> bool:
    """Every `@` is a product: what it multiplies is decided when it runs."""
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult)


def operands(node: ast.AST) -> tuple[ast.expr, ...]:
    """The two sides of the operator."""
    assert isinstance(node, ast.BinOp)
    return (node.left, node.right)


def edits(node: ast.AST, source: Source, call: str, keywords: str, depth: int) -> list[Edit]:
    """The operands stay where they are; `@` becomes a comma."""
    assert isinstance(node, ast.BinOp)
    start, end = source.span(node)
    left, right = source.span(node.left)[1], source.span(node.right)[0]
    operator = left + without_comments(source.text[left:right]).index("@")
    left = after_brackets(source.text, left, operator)
    right = before_brackets(source.text, operator, right)
    return [
        Edit(start, start, opening(source.text, start, call), True, depth),
        Edit(left, right, operator_to_comma(source.text[left:right]), False, depth),
        Edit(end, end, f"{keywords})", False, depth),
    ]


def native(node: ast.AST) -> ast.expr | None:
    """An operator has no function object to fall back to."""
    return None


def arguments(node: ast.AST) -> tuple[list[ast.expr], list[ast.keyword]]:
    """The runtime call's arguments."""
    assert isinstance(node, ast.BinOp)
    return [node.left, node.right], []


def undo(call: ast.Call, source: Source, keywords: RuntimeKeywords) -> list[Edit] | None:
    """The inverse of `edits`."""
    if len(call.args) != 2 or keywords.native:
        return None
    start, end = source.span(call)
    left, right = source.span(call.args[0])[1], source.span(call.args[1])[0]
    at = left + without_comments(source.text[left:right]).index(",")
    left = after_brackets(source.text, left, at)
    right = before_brackets(source.text, at, right)
    return [
        without_opening(source.text, start, ast.unparse(call.func)),
        Edit(left, right, comma_to_operator(source.text[left:right]), False, 0),
        Edit(keywords.start, end, "", False, 0),
    ]
