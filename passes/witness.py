"""A second reading of the file by LibCST, which must agree before a product is rewritten.

LibCST finds products by a parser, a position counter and a scope analysis of its own. Its positions
come from the text that it would write, which for a few files is not the text that it read: such a
product is then found elsewhere, or not at all, and stays as it is.
"""

from collections.abc import Collection
from dataclasses import dataclass

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider, QualifiedNameSource, ScopeProvider
from libcst.metadata.scope_provider import Scope

from mixpert_py.passes.source import has_tokens, one_line

# LibCST takes 2.5 kB and a tenth of a millisecond for each token.
MAX_CHARACTERS = 1 << 20
MAX_TOKENS = 150_000

# Line (1-based) and column (0-based, characters) of the first character and behind the last one.
Position = tuple[int, int, int, int]
OPERATOR = frozenset({"@"})
OPERATORS = (cst.MatrixMultiply, cst.MatrixMultiplyAssign)
KINDS = frozenset({cst.BinaryOperation, cst.AugAssign, cst.Call})


@dataclass(frozen=True)
class Testimony:
    """What LibCST sees at each position: OPERATOR, or the imported names that a call may mean.

    objection: why LibCST has nothing to say about this text.
    """

    products: dict[Position, frozenset[str]]
    objection: str | None = None


def read(text: str, wanted: Collection[Position]) -> Testimony:
    """Describe the operators `@` and the calls at the wanted positions. 10–20 s for a megabyte.

    RecursionError leaves this function: LibCST needs a few Python frames for each level.
    """
    around = "the code around its products"
    if len(text) > MAX_CHARACTERS:
        return Testimony({}, f"{around} is larger than {MAX_CHARACTERS >> 20} MiB")
    if has_tokens(text, MAX_TOKENS):
        return Testimony({}, f"{around} has more than {MAX_TOKENS:,} words")
    try:
        return Testimony(_products(text, wanted))
    except (MemoryError, RecursionError):
        raise
    except Exception as error:  # of valid Python, too: `assert(x if y else z)` has no space
        return Testimony({}, f"LibCST does not read the file: {one_line(error)}")


def _products(text: str, wanted: Collection[Position]) -> dict[Position, frozenset[str]]:
    wrapper = MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
    products: dict[Position, frozenset[str]] = {}
    calls: dict[Position, cst.Call] = {}
    for node, span in wrapper.resolve(PositionProvider).items():
        if type(node) not in KINDS:  # isinstance is slow for LibCST's abstract classes
            continue
        position = (span.start.line, span.start.column, span.end.line, span.end.column)
        if position not in wanted:
            continue
        if isinstance(node, cst.Call):
            calls[position] = node
        elif isinstance(getattr(node, "operator", None), OPERATORS):
            products[position] = OPERATOR
    if calls:  # scopes take as long as all the rest
        scopes = wrapper.resolve(ScopeProvider)
        for position, call in calls.items():
            products[position] = _names(call, scopes.get(call.func) or scopes.get(call))
    return products


def _names(call: cst.Call, scope: object) -> frozenset[str]:
    """The imported names that a called name may mean."""
    names = scope.get_qualified_names_for(call.func) if isinstance(scope, Scope) else ()
    return frozenset(name.name for name in names if name.source is QualifiedNameSource.IMPORT)
