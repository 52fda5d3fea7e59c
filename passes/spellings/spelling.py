"""Spelling: the interface of every way to write a product. Match: a node that is written so.

Some edits are shared by several spellings: edits of the text between two operands.
"""

import ast
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from mixpert_py.passes.edits import (
    Edit,
    after_brackets,
    before_brackets,
    operator_to_comma,
    without_comments,
)
from mixpert_py.passes.source import Source


@dataclass(frozen=True, slots=True)
class Match:
    """A node that is a product.

    kind: the word in the site's id. reason: why the product is left alone; None if it is rewritten.
    names: the qualified names that the called function may have; None means any, because the
    runtime call decides by the function.
    """

    kind: str
    reason: str | None = None
    names: frozenset[str] | None = frozenset()


class Parts(NamedTuple):
    """The expressions of a product.

    arguments, keywords: those of the runtime call, without its own keywords. output: the argument
    that receives the result, which is not an operand. native: the called function, which the
    runtime gets as `native=`. receiver: the object whose method that is, also an operand.
    """

    arguments: list[ast.expr]
    keywords: list[ast.keyword]
    output: ast.expr | None = None
    native: ast.expr | None = None
    receiver: ast.expr | None = None


class Spelling(Protocol):
    """A way to write a product, and the runtime call that replaces it.

    RUNTIME: the runtime's function.
    """

    @property
    def RUNTIME(self) -> str: ...  # noqa: N802 — a constant of the modules that are spellings

    def parts(self, node: ast.AST) -> Parts:
        """The expressions of the node that become arguments of the runtime call."""

    def edits(
        self, node: ast.AST, source: Source, call: str, keywords: str, depth: int
    ) -> list[Edit]:
        """The same as text edits. call: the runtime function's name. keywords: its own keywords."""


def between(source: Source, left: ast.expr, right: ast.expr, sign: str) -> tuple[int, int]:
    """The span between two operands around a sign; their own brackets lie outside."""
    start, end = source.span(left)[1], source.span(right)[0]
    at = start + without_comments(source.text[start:end]).index(sign)
    return after_brackets(source.text, start, at), before_brackets(source.text, at, end)


def to_comma(source: Source, left: ast.expr, right: ast.expr, sign: str, depth: int) -> Edit:
    """The edit that replaces the operator between two operands by a comma."""
    start, end = between(source, left, right, sign)
    return Edit(start, end, operator_to_comma(source.text[start:end], sign), False, depth)
