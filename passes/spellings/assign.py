"""`x @= b` → `x = _mixpert.imatmul(x, b)`, `o.x[i] @= b` → `_mixpert.target(o.x)[i].imatmul(b)`.

Every part of the target stands where it stood. Both forms evaluate what the statement does, once
and in its order. The functions on targets also serve fused statements such as `c += a @ b`.
"""

import ast

from mixpert_py.passes.edits import (
    Edit,
    after_brackets,
    assignment_to_spacing,
    before_brackets,
    spacing_to_assignment,
    without_comments,
)
from mixpert_py.passes.keywords import RuntimeKeywords
from mixpert_py.passes.source import Source
from mixpert_py.passes.spellings.spelling import Parts

RUNTIME = "imatmul"
TARGET = "target"
METHODS = frozenset({"imatmul", "fused"})  # of the object that `target` returns


def matches(node: ast.AST) -> bool:
    """Whether a node is an `@=`, which is a product, in place or not by its target's type."""
    return isinstance(node, ast.AugAssign) and isinstance(node.op, ast.MatMult)


def refusal(node: ast.AugAssign) -> str | None:
    """Why such a statement is left alone; None if it is rewritten."""
    if not is_plain(node):
        return "brackets around the target"
    if isinstance(node.value, ast.Tuple | ast.Yield | ast.YieldFrom):
        return "an operand that a call would take apart"
    return None


def parts(node: ast.AST) -> Parts:
    """The target, which is an operand too, and the right side; `statement` makes the rest."""
    assert isinstance(node, ast.AugAssign)
    return Parts([node.target, node.value], [])


def edits(node: ast.AST, source: Source, call: str, keywords: str, depth: int) -> list[Edit]:
    """The operands stay where they are.

    The spaces around `@=` go to the sides of the first `=` of the keywords.
    """
    assert isinstance(node, ast.AugAssign)
    end, left = source.span(node)[1], source.span(node.target)[1]
    spacing = assignment_to_spacing(source.text[left : value_start(node, source)])
    keywords = keywords.replace("=", "=".join(spacing), 1)
    return [*target_edits(node, source, call, depth), Edit(end, end, f"{keywords})", False, depth)]


def undo(call: ast.Call, source: Source, keywords: RuntimeKeywords) -> list[Edit] | None:
    """The inverse of `edits`."""
    if keywords.native or any(keyword.arg is None for keyword in call.keywords):
        return None
    assert isinstance(call.func, ast.Attribute)
    if len(call.args) != 1 + isinstance(call.func.value, ast.Name):
        return None
    first = undo_target(call, source, spacing_to_assignment(keywords.spacing))
    last = Edit(keywords.start, source.span(call)[1], "", False, 0)
    return None if first is None else [*first, last]


def is_plain(node: ast.AugAssign) -> bool:
    """Whether no brackets stand around the target."""
    return (node.lineno, node.col_offset) == (node.target.lineno, node.target.col_offset)


def value_start(node: ast.AugAssign, source: Source) -> int:
    """Where the right side begins, with its brackets."""
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
    """The statement that replaces a product, from the call that has its arguments."""
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


def target_call(call: ast.Call, name: str) -> ast.Call | None:
    """The call `_mixpert.target(o)` in `_mixpert.target(o).x.imatmul(b)`."""
    match call.func:
        case ast.Attribute(
            value=ast.Attribute(value=ast.Call() as inner)
            | ast.Subscript(value=ast.Call() as inner),
            attr=method,
        ) if method in METHODS and _is_target(inner, name):
            return inner
    return None


def _is_target(call: ast.Call, name: str) -> bool:
    match call:
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id=runtime), attr=word), args=[_], keywords=[]
        ):
            return runtime == name and word == TARGET
    return False


def undo_target(call: ast.Call, source: Source, between: str) -> list[Edit] | None:
    """The inverse of `target_edits`. between: the text between the target and the right side."""
    assert isinstance(call.func, ast.Attribute)
    start, place = source.span(call)[0], call.func.value
    if isinstance(place, ast.Name):
        if len(call.args) < 2 or not isinstance(call.args[0], ast.Name):
            return None
        comma = source.span(call.args[0])[1]
        right = before_brackets(source.text, comma, source.span(call.args[1])[0])
        return [Edit(start - len(" = "), right, between, False, 0)]
    if not call.args or not isinstance(place, ast.Attribute | ast.Subscript):
        return None
    right = before_brackets(
        source.text, source.span(call.func)[1] + 1, source.span(call.args[0])[0]
    )
    assert isinstance(place.value, ast.Call)
    behind, closing = source.span(place.value.func)[1] + 1, source.span(place.value)[1]
    return [
        Edit(start, behind, "", True, 0),
        Edit(closing - 1, closing, "", False, 0),
        Edit(source.span(place)[1], right, between, False, 0),
    ]
