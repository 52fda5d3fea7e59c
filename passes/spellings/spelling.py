"""Spelling: what every way to write a product provides, and Match: a node that is written so."""

import ast
from dataclasses import dataclass
from typing import Protocol

from mixpert_py.passes.edits import Edit
from mixpert_py.passes.keywords import RuntimeKeywords
from mixpert_py.passes.source import Source


@dataclass(frozen=True, slots=True)
class Match:
    """A node that is a product.

    kind: the word in the site's id. reason: why the product is left alone; None if it is
    rewritten. names: the qualified names that the called function may have. product: the product
    within a fused sum, after which the site is called.
    """

    kind: str
    reason: str | None = None
    names: frozenset[str] = frozenset()
    product: ast.expr | None = None


class Spelling(Protocol):
    """One way to write a product, and the runtime call that it becomes.

    RUNTIME: the runtime's function.
    """

    @property
    def RUNTIME(self) -> str: ...  # noqa: N802 — a constant of the modules that are spellings

    def matches(self, node: ast.AST) -> bool:
        """Whether a node is written this way, whatever its names mean."""

    def operands(self, node: ast.AST) -> tuple[ast.expr, ...]:
        """The matrices that are multiplied, and all else that decides the result."""

    def native(self, node: ast.AST) -> ast.expr | None:
        """The function that the program called, handed to the runtime as `native=`."""

    def arguments(self, node: ast.AST) -> tuple[list[ast.expr], list[ast.keyword]]:
        """The runtime call's arguments, without the runtime's own keywords."""

    def edits(
        self, node: ast.AST, source: Source, call: str, keywords: str, depth: int
    ) -> list[Edit]:
        """The same in text: `call` is the runtime function's name, `keywords` its own keywords."""

    def undo(self, call: ast.Call, source: Source, keywords: RuntimeKeywords) -> list[Edit] | None:
        """The inverse of `edits`; None if it did not write this call."""
