"""Turns call sites into runtime calls: as edits of the text, and as nodes of the tree."""

import ast
import bisect
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from mixpert_py.passes.call_site import Product
from mixpert_py.passes.edits import Edit
from mixpert_py.passes.keywords import Setting
from mixpert_py.passes.keywords import write as write_keywords
from mixpert_py.passes.source import FIELDS, Source
from mixpert_py.passes.spellings import Spelling, assign

Placed = TypeVar("Placed", ast.expr, ast.keyword)

LOCATED = (ast.stmt, ast.expr, ast.arg, ast.keyword)

# For the id of a site, the scheme and the block length that its call names.
Settings = Mapping[str, Setting]


def text_edits(
    products: Iterable[Product], source: Source, name: str, settings: Settings
) -> list[Edit]:
    """The edits that turn every given site into its runtime call."""
    edits: list[Edit] = []
    open_ends: list[int] = []  # where the products end that the next one may lie in
    for product in products:
        start, end = product.site.span
        while open_ends and open_ends[-1] <= start:
            open_ends.pop()
        native = product.spelling.parts(product.node).native
        called = None if native is None else source.text[slice(*source.span(native))]
        setting = settings.get(product.site.id, {})
        keywords = write_keywords(product.site.id, setting, called, source.encoding)
        call = f"{name}.{product.spelling.RUNTIME}"
        edits += product.spelling.edits(product.node, source, call, keywords, len(open_ends))
        open_ends.append(end)
    return edits


class Substitute:
    """Puts runtime calls in place of the products of a tree, at the products' locations.

    products: maps each node to its spelling and site id; none is in an f-string. `visit` returns a
    new tree, which shares the nodes without a product.
    """

    def __init__(
        self, name: str, products: Mapping[ast.AST, tuple[Spelling, str]], settings: Settings
    ) -> None:
        self.name = name
        self.products = products
        self.settings = settings
        self.starts = sorted(_starts(node) for node in products)

    def visit(self, node: ast.AST) -> ast.AST:
        if not self.may_hold_product(node):
            return node
        product = self.products.get(node)
        node = _copy(node)
        for name in FIELDS[type(node)]:
            below = getattr(node, name, None)
            if isinstance(below, list):
                # `**more` in a dict has no key.
                setattr(node, name, [part and self.visit(part) for part in below])
            elif below is not None:
                setattr(node, name, self.visit(below))
        if product is None:
            return node
        spelling, site = product

        def here(new: Placed) -> Placed:
            return ast.copy_location(new, node)

        parts = spelling.parts(node)
        keywords = parts.keywords
        runtime = here(ast.Name(self.name, ast.Load()))
        for key, value in {"site": site, **self.settings.get(site, {})}.items():
            keywords.append(here(ast.keyword(key, here(ast.Constant(value)))))
        if parts.native is not None:
            keywords.append(here(ast.keyword("native", parts.native)))
        function = here(ast.Attribute(runtime, spelling.RUNTIME, ast.Load()))
        call = ast.copy_location(ast.Call(function, parts.arguments, keywords), node)
        return assign.statement(node, call) if isinstance(node, ast.AugAssign) else call

    def may_hold_product(self, node: ast.AST) -> bool:
        if not isinstance(node, LOCATED):
            return bool(node._fields)  # as contexts and operators have none
        if getattr(node, "decorator_list", None):  # the location leaves them out
            return True
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        first = bisect.bisect_left(self.starts, _starts(node))
        return first < bisect.bisect_left(self.starts, (node.end_lineno, node.end_col_offset))


def _starts(node: Any) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _copy(node: ast.AST) -> ast.AST:
    """A new node with the same children."""
    return ast.copy_location(type(node)(**dict(ast.iter_fields(node))), node)


def same(one: ast.AST, other: ast.AST) -> bool:
    """Whether two trees are equal except for their locations. Does not recurse."""
    pairs: list[tuple[object, object]] = [(one, other)]
    while pairs:
        left, right = pairs.pop()
        if type(left) is not type(right):
            return False
        if isinstance(left, ast.AST):
            for name in left._fields:
                field = getattr(left, name, None), getattr(right, name, None)
                if field[0] is not field[1]:  # as most names are, and all that trees share
                    pairs.append(field)
        elif isinstance(left, list) and isinstance(right, list):
            if len(left) != len(right):
                return False
            pairs += zip(left, right, strict=True)
        elif left != right and not (left != left and right != right):
            return False
    return True
