"""Call sites become runtime calls: as edits of the text, and as nodes of the tree."""

import ast
from collections.abc import Iterable, Mapping
from typing import TypeVar

from mixpert_py.passes.edit import Edit
from mixpert_py.passes.product import Product
from mixpert_py.passes.source import Source
from mixpert_py.passes.spellings import Spelling

Placed = TypeVar("Placed", ast.expr, ast.keyword)

# The keywords that the runtime's functions have and the program's have not.
OURS = frozenset({"site", "scheme", "block"})

# Site id → what its call is told besides its site: scheme and block length.
Settings = Mapping[str, Mapping[str, str | int]]


def text_edits(
    products: Iterable[Product], source: Source, name: str, settings: Settings
) -> list[Edit]:
    """The edits that turn every given site into its runtime call."""
    edits: list[Edit] = []
    open_ends: list[int] = []  # where the products end that the next one may lie in
    for product in products:
        assert product.spelling is not None
        start, end = product.site.span
        while open_ends and open_ends[-1] <= start:
            open_ends.pop()
        tail = f", site={_literal(product.site.id, source.encoding)}"
        for key, value in settings.get(product.site.id, {}).items():
            tail += f', {key}="{value}"' if isinstance(value, str) else f", {key}={value}"
        native = product.spelling.native(product.node)
        if isinstance(native, ast.expr):
            first, last = source.span(native)
            tail += f", native={source.text[first:last]}"
        call = f"{name}.{product.spelling.RUNTIME}"
        if start and (source.text[start - 1].isalnum() or source.text[start - 1] in "_"):
            call = f" {call}"  # `return(a)@b` is valid, `return_mixpert.matmul` another name
        edits += product.spelling.edits(product.node, source, call, tail, len(open_ends))
        open_ends.append(end)
    return edits


class Substitute(ast.NodeTransformer):
    """Runtime calls in place of the products of a tree, at the products' own locations.

    products: for each node, its spelling and its site id.
    """

    def __init__(
        self, name: str, products: Mapping[ast.AST, tuple[Spelling, str]], settings: Settings
    ) -> None:
        self.name = name
        self.products = products
        self.settings = settings

    def visit(self, node: ast.AST) -> ast.AST:
        product = self.products.get(node)
        self.generic_visit(node)
        if product is None:
            return node
        spelling, site = product

        def here(new: Placed) -> Placed:
            return ast.copy_location(new, node)

        operands, keywords = spelling.arguments(node)
        runtime = here(ast.Name(self.name, ast.Load()))
        for key, value in {"site": site, **self.settings.get(site, {})}.items():
            keywords.append(here(ast.keyword(key, here(ast.Constant(value)))))
        if (native := spelling.native(node)) is not None:
            keywords.append(here(ast.keyword("native", native)))
        function = here(ast.Attribute(runtime, spelling.RUNTIME, ast.Load()))
        return here(ast.Call(function, operands, keywords))


class Restore(ast.NodeTransformer):
    """The products in place of the runtime calls: the inverse of Substitute."""

    def __init__(self, name: str, spellings: Mapping[str, Spelling]) -> None:
        self.name = name
        self.spellings = spellings

    def visit(self, node: ast.AST) -> ast.AST:
        self.generic_visit(node)
        spelling = self._spelling(node)
        if spelling is None:
            return node
        assert isinstance(node, ast.Call)
        node.keywords = [keyword for keyword in node.keywords if keyword.arg not in OURS]
        return spelling.restore(node)

    def _spelling(self, node: ast.AST) -> Spelling | None:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            return None
        if not isinstance(node.func.value, ast.Name) or node.func.value.id != self.name:
            return None
        for keyword in node.keywords:
            if keyword.arg == "site" and isinstance(keyword.value, ast.Constant):
                return self.spellings.get(str(keyword.value.value))
        return None


def same(one: ast.AST, other: ast.AST) -> bool:
    """True if two trees are equal but for their locations. Does not recurse."""
    pairs: list[tuple[object, object]] = [(one, other)]
    while pairs:
        left, right = pairs.pop()
        if type(left) is not type(right):
            return False
        if isinstance(left, ast.AST):
            pairs += [(getattr(left, f, None), getattr(right, f, None)) for f in left._fields]
        elif isinstance(left, list) and isinstance(right, list):
            if len(left) != len(right):
                return False
            pairs += zip(left, right, strict=True)
        elif left != right and not (left != left and right != right):
            return False
    return True


def _literal(site: str, encoding: str) -> str:
    """A site id as a string literal that the file's encoding can hold."""
    try:
        site.encode(encoding)
    except UnicodeError:
        return ascii(site)
    return (
        f'"{site}"' if site.isprintable() and '"' not in site and "\\" not in site else repr(site)
    )
