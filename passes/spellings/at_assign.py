"""`x @= b` → `x = _mixpert.imatmul(x, b)`, `o.x[i] @= b` → `_mixpert.target(o.x)[i].imatmul(b)`."""

import ast

from mixpert_py.passes.edit import Edit
from mixpert_py.passes.found import Found
from mixpert_py.passes.gap import assignment_to_beside, beside_to_assignment
from mixpert_py.passes.scope import Scope
from mixpert_py.passes.source import Source
from mixpert_py.passes.spellings import target
from mixpert_py.passes.tail import Tail

NAME = "at_assign"
WORDS = frozenset[str]()
RUNTIME = "imatmul"


def find(node: ast.AST, scope: Scope) -> Found | None:
    """Every `@=` is a product, in place or not: its target's type decides when it runs."""
    if not isinstance(node, ast.AugAssign) or not isinstance(node.op, ast.MatMult):
        return None
    return Found("matmul", _reason(node))


def _reason(node: ast.AugAssign) -> str | None:
    if not target.is_plain(node):
        return "brackets around the target"
    if isinstance(node.value, ast.Tuple | ast.Yield | ast.YieldFrom):
        return "an operand that a call would take apart"
    return None


def operands(node: ast.AST) -> tuple[ast.expr, ...]:
    """The target as it was, and the right side."""
    assert isinstance(node, ast.AugAssign)
    return (node.target, node.value)


def edits(node: ast.AST, source: Source, call: str, tail: str, depth: int) -> list[Edit]:
    """The operands stay where they are; the spaces of `@=` go beside the tail's first `=`."""
    assert isinstance(node, ast.AugAssign)
    end, left = source.span(node)[1], source.span(node.target)[1]
    beside = assignment_to_beside(source.text[left : target.value_start(node, source)])
    tail = tail.replace("=", "=".join(beside), 1)
    return [*target.edits(node, source, call, depth), Edit(end, end, f"{tail})", False, depth)]


def native(node: ast.AST) -> ast.expr | None:
    """An operator has no function object to fall back to."""
    return None


def arguments(node: ast.AST) -> tuple[list[ast.expr], list[ast.keyword]]:
    """The runtime call's arguments; `target.statement` makes the rest."""
    assert isinstance(node, ast.AugAssign)
    return [node.target, node.value], []


def restore(call: ast.Call) -> ast.AugAssign:
    """The statement that a runtime call, without its own keywords, was made from."""
    place, (value,) = target.restored(call)
    return ast.AugAssign(place, ast.MatMult(), value)


def undo(call: ast.Call, source: Source, tail: Tail) -> list[Edit] | None:
    """The inverse of `edits`."""
    if tail.native or any(keyword.arg is None for keyword in call.keywords):
        return None
    assert isinstance(call.func, ast.Attribute)
    if len(call.args) != 1 + isinstance(call.func.value, ast.Name):
        return None
    first = target.undo(call, source, beside_to_assignment(tail.beside))
    last = Edit(tail.start, source.span(call)[1], "", False, 0)
    return None if first is None else [*first, last]
