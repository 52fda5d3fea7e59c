"""`a @ b` → `_mixpert.matmul(a, b)`."""

import ast

from mixpert_py.passes.edits import Edit, opening
from mixpert_py.passes.source import Source
from mixpert_py.passes.spellings.spelling import Parts, to_comma

RUNTIME = "matmul"


def matches(node: ast.AST) -> bool:
    """Whether a node is an `@`, which is a product for operands of any type."""
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult)


def parts(node: ast.AST) -> Parts:
    """The two sides of the operator."""
    assert isinstance(node, ast.BinOp)
    return Parts([node.left, node.right], [])


def edits(node: ast.AST, source: Source, call: str, keywords: str, depth: int) -> list[Edit]:
    """The operands stay where they are; `@` becomes a comma."""
    assert isinstance(node, ast.BinOp)
    start, end = source.span(node)
    return [
        Edit(start, start, opening(source.text, start, call), True, depth),
        to_comma(source, node.left, node.right, "@", depth),
        Edit(end, end, f"{keywords})", False, depth),
    ]
