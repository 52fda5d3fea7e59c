"""Call sites: the products of a source, and their ids, which survive edits around them."""

import ast
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from mixpert_py.passes.scopes import Scope
from mixpert_py.passes.source import preorder
from mixpert_py.passes.spellings import Spelling

HASH_DIGITS = 6


@dataclass(frozen=True, slots=True)
class CallSite:
    """A product in the source: its id, its place, and whether it is rewritten.

    id: `module:qualname/kind~hash#n`. line and column are 1-based, column in characters.
    expression: the source text with whitespace folded. reason: why it is left alone; None if it is
    rewritten. span: offsets in the decoded text.
    """

    id: str
    kind: str
    line: int
    column: int
    expression: str
    reason: str | None
    span: tuple[int, int]


@dataclass(frozen=True, eq=False)
class Product:
    """A call site in its syntax tree. scheme: the scheme that a comment asks for."""

    site: CallSite
    node: ast.AST
    spelling: Spelling
    scheme: str | None = None


def expression_hash(node: ast.AST, scopes: dict[ast.AST, Scope]) -> str:
    """Hash of an expression, with local names numbered by appearance and without spacing.

    Global names and attributes count, so `x @ w1` and `x @ w2` differ if w1 and w2 are global.
    """
    order: dict[str, str] = {}
    renamed: list[tuple[ast.Name | ast.arg, str]] = []

    def placeholder(name: str) -> str:
        return order.setdefault(name, f"_{len(order)}")

    try:
        for part in preorder(node):
            if isinstance(part, ast.Name) and part in scopes and scopes[part].is_local(part.id):
                renamed.append((part, part.id))
                part.id = placeholder(part.id)
            elif isinstance(part, ast.arg):
                renamed.append((part, part.arg))
                part.arg = placeholder(part.arg)
        text = ast.unparse(node)
    finally:
        for part, name in renamed:
            setattr(part, "id" if isinstance(part, ast.Name) else "arg", name)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:HASH_DIGITS]


def number(prefixes: Iterable[str], taken: frozenset[str]) -> list[str]:
    """Site ids in source order: each prefix with its next free number.

    taken: ids that an earlier rewriting left in the file.
    """
    following: dict[str, int] = {}
    ids = []
    for prefix in prefixes:
        n = following.get(prefix, 0)
        while f"{prefix}#{n}" in taken:
            n += 1
        following[prefix] = n + 1
        ids.append(f"{prefix}#{n}")
    return ids
