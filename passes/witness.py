"""A second reading of the file by LibCST, which must agree before a product is rewritten.

LibCST finds products by a parser, a position counter and a scope analysis of its own. Its positions
come from the text that it would write, which for a few files is not the text that it read: such a
product is then found elsewhere, or not at all, and stays as it is.
"""

# ruff: noqa: N802 — named after the nodes, as a visitor's methods are

from collections.abc import Collection
from dataclasses import dataclass

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider, QualifiedNameSource, ScopeProvider
from libcst.metadata.scope_provider import Scope

from mixpert_py.passes.source import one_line

MAX_CHARACTERS = 1 << 20

# Line (1-based) and column (0-based, characters) of the first character and behind the last one.
Position = tuple[int, int, int, int]
OPERATOR = frozenset({"@"})


@dataclass(frozen=True)
class Testimony:
    """What LibCST sees at each position: OPERATOR, or the imported names that a call may mean.

    objection: why LibCST has nothing to say about this file.
    """

    products: dict[Position, frozenset[str]]
    objection: str | None = None


def read(text: str, wanted: Collection[Position]) -> Testimony:
    """Describe the operators `@` and the calls at the wanted positions. 5–9 s for a megabyte.

    RecursionError leaves this function: LibCST needs a few Python frames for each level.
    """
    if len(text) > MAX_CHARACTERS:
        return Testimony({}, f"the file is larger than {MAX_CHARACTERS >> 20} MiB")
    try:
        module = cst.parse_module(text)
    except cst.ParserSyntaxError as error:
        return Testimony({}, f"LibCST does not parse the file: {one_line(error)}")
    wrapper = MetadataWrapper(module, unsafe_skip_copy=True)
    reader = _Reader(wrapper, frozenset(wanted))
    wrapper.module.visit(reader)
    return Testimony(reader.products)


class _Reader(cst.CSTVisitor):
    def __init__(self, wrapper: MetadataWrapper, wanted: frozenset[Position]) -> None:
        super().__init__()
        self.positions = wrapper.resolve(PositionProvider)
        self.scopes = wrapper.resolve(ScopeProvider)
        self.wanted = wanted
        self.products: dict[Position, frozenset[str]] = {}

    def position(self, node: cst.CSTNode) -> Position:
        span = self.positions[node]
        return (span.start.line, span.start.column, span.end.line, span.end.column)

    def visit_BinaryOperation(self, node: cst.BinaryOperation) -> None:
        if isinstance(node.operator, cst.MatrixMultiply):
            self.products[self.position(node)] = OPERATOR

    def visit_Call(self, node: cst.Call) -> None:
        position = self.position(node)
        if position not in self.wanted:
            return
        scope = self.scopes.get(node.func) or self.scopes.get(node)
        names = scope.get_qualified_names_for(node.func) if isinstance(scope, Scope) else ()
        self.products[position] = frozenset(
            name.name for name in names if name.source is QualifiedNameSource.IMPORT
        )
