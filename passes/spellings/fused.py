"""`alpha * (a @ b) + beta * c` → `_mixpert.fused(alpha, (a, b), beta, c, form="alpha*ab+beta*c")`,
`c += a @ b` → `c = _mixpert.fused(c, a, b, form="c+=ab")`, `o[i] += a @ b` →
`_mixpert.target(o)[i].fused(a, b, form="c+=ab")`: only where the user asks for it.

The site is that of the product inside. A call has its arguments evaluated before it multiplies: so
what stands behind the product must be names and numbers, which nothing that happens meanwhile can
change, as must everything behind `beta * c` for that to be part of the call.
"""

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from mixpert_py.passes.edits import (
    Edit,
    assignment_to_spacing,
    opening,
)
from mixpert_py.passes.source import Source
from mixpert_py.passes.spellings import assign
from mixpert_py.passes.spellings.spelling import Parts, to_comma

RUNTIME = "fused"

SIGNS: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-"}
PRODUCT = r"(?:alpha\*)?ab"
FORM = re.compile(
    rf"(?P<first>{PRODUCT}|(?:beta\*)?c)(?P<sign>\+=|-=|[+-])(?P<second>{PRODUCT}|(?:beta\*)?c)"
)


class Fused(NamedTuple):
    """A sum that one call can compute. product: the `@` in it. first, second: its terms."""

    form: str
    product: ast.BinOp
    first: ast.expr
    second: ast.expr


def read(node: ast.AST) -> Fused | None:
    """Read a node as a fused sum; None if it is to be left as it is."""
    if isinstance(node, ast.AugAssign):
        sign, product = SIGNS.get(type(node.op)), _product(node.value)
        whole = assign.is_plain(node) and _end(node) == _end(node.value)
        if sign is None or product is None or not whole:
            return None
        return Fused(f"c{sign}={product[0]}", product[1], node.target, node.value)
    if not isinstance(node, ast.BinOp) or type(node.op) not in SIGNS:
        return None
    sign = SIGNS[type(node.op)]
    product = _product(node.left)
    if product is not None and _start(node) == _start(node.left):
        other = _other(node.right, bare=_end(node) == _end(node.right))
        if all(_is_inert(part) for part in _operands(node.right, other)):
            return Fused(f"{product[0]}{sign}{other}", product[1], node.left, node.right)
    product = _product(node.right)
    if product is None or _end(node) != _end(node.right):
        return None
    # What stands before the product has its value before it, whether or not it is part of the call.
    inert = all(_is_inert(part) for part in _operands(node.right, product[0]))
    other = _other(node.left, bare=inert and _start(node) == _start(node.left))
    return Fused(f"{other}{sign}{product[0]}", product[1], node.left, node.right)


def _product(term: ast.expr) -> tuple[str, ast.BinOp] | None:
    """The form of a term that is a product, and the `@` in it; None if it is none."""
    match term:
        case ast.BinOp(op=ast.MatMult()):
            return "ab", term
        case ast.BinOp(op=ast.Mult(), right=ast.BinOp(op=ast.MatMult()) as product):
            return "alpha*ab", product
    return None


def _other(term: ast.expr, bare: bool) -> str:
    """The form of the term that is no product.

    bare: whether no brackets stand around it, which in a call would be those of a tuple.
    """
    is_scaled = isinstance(term, ast.BinOp) and isinstance(term.op, ast.Mult)
    return "beta*c" if bare and is_scaled else "c"


def _operands(term: ast.expr, form: str) -> tuple[ast.expr, ...]:
    """The factors of a term, in order."""
    if form in ("c", "ab") and not (form == "ab" and isinstance(term, ast.BinOp)):
        return (term,)
    assert isinstance(term, ast.BinOp)
    if form == "alpha*ab":
        assert isinstance(term.right, ast.BinOp)
        return (term.left, term.right.left, term.right.right)
    return (term.left, term.right)


def _is_inert(node: ast.expr) -> bool:
    """Whether the value of an expression is the same whenever it is evaluated."""
    match node:
        case ast.Name():
            return True
        case ast.Constant(value=value):
            return isinstance(value, int | float)
    return False


def _start(node: ast.expr | ast.stmt) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _end(node: ast.expr | ast.stmt) -> tuple[int | None, int | None]:
    return node.end_lineno, node.end_col_offset


def parts(node: ast.AST) -> Parts:
    """The operands as they stand, a product in brackets as a pair; and the form of the sum."""
    fused = read(node)
    assert fused is not None
    found = FORM.fullmatch(fused.form)
    assert found is not None
    terms: list[ast.expr] = []
    for term, form in ((fused.first, found["first"]), (fused.second, found["second"])):
        operands = _operands(term, form)
        if form == "alpha*ab":
            product = fused.product
            pair = ast.Tuple([product.left, product.right], ast.Load())
            operands = (operands[0], ast.copy_location(pair, product))
        terms += operands
    value = ast.copy_location(ast.Constant(fused.form), fused.product)
    return Parts(terms, [ast.copy_location(ast.keyword("form", value), fused.product)])


def edits(node: ast.AST, source: Source, call: str, keywords: str, depth: int) -> list[Edit]:
    """The operands stay where they are; every operator becomes a comma."""
    fused = read(node)
    assert fused is not None
    assert isinstance(node, ast.BinOp | ast.AugAssign)
    start, end = source.span(node)
    changes = [
        to_comma(source, part.left, part.right, sign, depth) for part, sign in _operations(fused)
    ]
    keywords = f', form="{fused.form}"{keywords}'
    if isinstance(node, ast.AugAssign):
        between = source.text[source.span(node.target)[1] : assign.value_start(node, source)]
        spacing = assignment_to_spacing(between, f"{SIGNS[type(node.op)]}=")
        keywords = keywords.replace("site=", f"site{'='.join(spacing)}", 1)
        changes += assign.target_edits(node, source, call, depth)
    else:
        sign = SIGNS[type(node.op)]
        changes.append(to_comma(source, node.left, node.right, sign, depth))
        changes.append(Edit(start, start, opening(source.text, start, call), True, depth))
    return [*changes, Edit(end, end, f"{keywords})", False, depth)]


def _operations(fused: Fused) -> Iterator[tuple[ast.BinOp, str]]:
    """The operators within the terms."""
    yield fused.product, "@"
    for term, form in zip((fused.first, fused.second), re.split("[+-]=?", fused.form), strict=True):
        if "*" in form:
            assert isinstance(term, ast.BinOp)
            yield term, "*"
