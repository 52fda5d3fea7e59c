"""The ways to write a product. A new one is a file here and a line in SPELLINGS."""

import ast
from typing import Protocol

from mixpert_py.passes.edit import Edit
from mixpert_py.passes.found import Found
from mixpert_py.passes.scope import Scope
from mixpert_py.passes.source import Source
from mixpert_py.passes.spellings import (
    at_assign,
    at_operator,
    blas_call,
    dot_call,
    dot_method,
    einsum_call,
    fused,
    inner_call,
    left_native,
    matmul_call,
    multi_dot_call,
    tensordot_call,
    torch_call,
    xp_call,
)
from mixpert_py.passes.tail import Tail


class Spelling(Protocol):
    """One way to write a product, and the runtime call that it becomes.

    NAME: of the spelling. RUNTIME: the runtime's function. WORDS: a file without any of them, and
    without `@`, has no such product.
    """

    NAME: str
    RUNTIME: str
    WORDS: frozenset[str]

    def find(self, node: ast.AST, scope: Scope) -> Found | None:
        """Whether a node is such a product, and why it is left alone if it is."""

    def operands(self, node: ast.AST) -> tuple[ast.expr, ...]:
        """The matrices that are multiplied."""

    def native(self, node: ast.AST) -> ast.expr | None:
        """The function that the program called, handed to the runtime as `native=`."""

    def arguments(self, node: ast.AST) -> tuple[list[ast.expr], list[ast.keyword]]:
        """The runtime call's arguments, without the runtime's own keywords."""

    def edits(self, node: ast.AST, source: Source, call: str, tail: str, depth: int) -> list[Edit]:
        """The same in text: `call` is the runtime function's name, `tail` its own keywords."""

    def restore(self, call: ast.Call) -> ast.expr | ast.AugAssign:
        """The inverse of `arguments`; of a statement, the statement."""

    def undo(self, call: ast.Call, source: Source, tail: Tail) -> list[Edit] | None:
        """The inverse of `edits`; None if it did not write this call."""


SPELLINGS: tuple[Spelling, ...] = (
    at_operator,
    at_assign,
    xp_call,
    torch_call,  # before matmul_call, which says of others' that they are left native
    matmul_call,
    dot_call,
    dot_method,
    inner_call,
    multi_dot_call,
    tensordot_call,
    einsum_call,
    blas_call,
)
# Those that `rewrite` may have written.
WRITTEN: tuple[Spelling, ...] = (*SPELLINGS, fused)
WORDS = left_native.WORDS.union(*(spelling.WORDS for spelling in SPELLINGS))


def find(node: ast.AST, scope: Scope, fuse: bool = False) -> tuple[Spelling | None, Found] | None:
    """The spelling of a product and what it says; no spelling where none is rewritten.

    fuse: whether sums may become one call with the product in them.
    """
    if fuse and (found := fused.find(node, scope)):
        return fused, found
    for spelling in SPELLINGS:
        if found := spelling.find(node, scope):
            return spelling, found
    left = left_native.find(node, scope)
    return (None, left) if left else None
