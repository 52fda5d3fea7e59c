"""`x @= b` → `x = _mixpert.imatmul(x, b)`, `o.x[i] @= b` → `_mixpert.target(o.x)[i].imatmul(b)`.

Every part of the target stays in its place. Both forms evaluate the parts of the statement once and
in its order.
"""

import ast

from mixpert_py.passes.edits import (
    Edit,
    after_brackets,
    assignment_to_spacing,
    before_brackets,
    without_comments,
)
from mixpert_py.passes.source import Source
from mixpert_py.passes.spellings.spelling import Parts

RUNTIME = "imatmul"
TARGET = "target"


def matches(node: ast.AST) -> bool:
    """Whether a node is an `@=`, a product that its target's type makes in place or not."""
    return isinstance(node, ast.AugAssign) and isinstance(node.op, ast.MatMult)


def refusal(node: ast.AugAssign) -> str | None:
    """The reason to leave such a statement alone; None if it is rewritten."""
    if not is_plain(node):
        return "brackets around the target"
    if isinstance(node.value, ast.Tuple | ast.Yield | ast.YieldFrom):
        return "an operand that a call would take apart"
    return None


def parts(node: ast.AST) -> Parts:
    """The target, which is also an operand, and the right side; `statement` makes the rest."""
    assert isinstance(node, ast.AugAssign)
    return Parts([node.target, node.value], [])


def edits(node: ast.AST, source: Source, call: str, keywords: str, depth: int) -> list[Edit]:
    """The operands stay in place.

    The spaces around `@=` move to the sides of the first `=` of the keywords.
    """
    assert isinstance(node, ast.AugAssign)
    end, left = source.span(node)[1], source.span(node.target)[1]
    spacing = assignment_to_spacing(source.text[left : value_start(node, source)])
    keywords = keywords.replace("=", "=".join(spacing), 1)
    return [*target_edits(node, source, call, depth), Edit(end, end, f"{keywords})", False, depth)]


def is_plain(node: ast.AugAssign) -> bool:
    """Whether there are no brackets around the target."""
    return (node.lineno, node.col_offset) == (node.target.lineno, node.target.col_offset)


def value_start(node: ast.AugAssign, source: Source) -> int:
    """The beginning of the right side, including its brackets."""
    left, right = source.span(node.target)[1], source.span(node.value)[0]
    return before_brackets(source.text, left, right)


def target_edits(node: ast.AugAssign, source: Source, call: str, depth: int) -> list[Edit]:
    """The edits before the right side. call: the name of the runtime's function."""
    start, left = source.span(node)[0], source.span(node.target)[1]
    right = value_start(node, source)
    runtime, _, method = call.rpartition(".")
    if isinstance(node.target, ast.Name):
        name = source.text[start:left]
        return [Edit(left, right, f" = {call}({name}, ", False, depth)]
    owner = source.span(node.target.value)[1]
    sign = "." if isinstance(node.target, ast.Attribute) else "["
    owner = after_brackets(
        source.text, owner, owner + without_comments(source.text[owner:left]).index(sign)
    )
    return [
        Edit(start, start, f"{runtime}.{TARGET}(", True, depth),
        Edit(owner, owner, ")", False, depth),
        Edit(left, right, f".{method}(", False, depth),
    ]


def statement(node: ast.AugAssign, call: ast.Call) -> ast.stmt:
    """The statement that replaces a product, made from the call with its arguments."""
    target, *values = call.args
    if isinstance(target, ast.Name):
        call.args[0] = ast.copy_location(ast.Name(target.id, ast.Load()), target)
        return ast.copy_location(ast.Assign([target], call), node)
    assert isinstance(target, ast.Attribute | ast.Subscript)
    assert isinstance(call.func, ast.Attribute)
    owner = target.value
    function = ast.copy_location(ast.Attribute(call.func.value, TARGET, ast.Load()), owner)
    target.value = ast.copy_location(ast.Call(function, [owner], []), owner)
    target.ctx = ast.Load()
    call.func = ast.copy_location(ast.Attribute(target, call.func.attr, ast.Load()), node)
    call.args = values
    return ast.copy_location(ast.Expr(call), node)
