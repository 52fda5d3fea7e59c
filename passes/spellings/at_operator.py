"""`a @ b` → `_mixpert.matmul(a, b)`."""

import ast

from mixpert_py.passes.edit import Edit, after_brackets, before_brackets, comma, without_comments
from mixpert_py.passes.found import Found
from mixpert_py.passes.scope import Scope
from mixpert_py.passes.source import Source

NAME = "at_operator"
WORDS = frozenset[str]()
RUNTIME = "matmul"


def find(node: ast.AST, scope: Scope) -> Found | None:
    """Every `@` is a product: what it multiplies is decided when it runs."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        return Found("matmul")
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.MatMult):
        return Found("matmul", "@= is left native")
    return None


def operands(node: ast.AST) -> tuple[ast.expr, ...]:
    """The two sides."""
    assert isinstance(node, ast.BinOp)
    return (node.left, node.right)


def edits(node: ast.AST, source: Source, call: str, tail: str, depth: int) -> list[Edit]:
    """The operands stay where they are; `@` becomes a comma."""
    assert isinstance(node, ast.BinOp)
    start, end = source.span(node)
    left, right = source.span(node.left)[1], source.span(node.right)[0]
    operator = left + without_comments(source.text[left:right]).index("@")
    left = after_brackets(source.text, left, operator)
    right = before_brackets(source.text, operator, right)
    return [
        Edit(start, start, f"{call}(", True, depth),
        Edit(left, right, comma(source.text[left:right], ("@",)), False, depth),
        Edit(end, end, f"{tail})", False, depth),
    ]


def native(node: ast.AST) -> ast.expr | None:
    """An operator has no function object to fall back to."""
    return None


def arguments(node: ast.AST) -> tuple[list[ast.expr], list[ast.keyword]]:
    """The runtime call's arguments."""
    assert isinstance(node, ast.BinOp)
    return [node.left, node.right], []


def restore(call: ast.Call) -> ast.expr:
    """The product that a runtime call, without its own keywords, was made from."""
    left, right = call.args
    return ast.BinOp(left, ast.MatMult(), right)
