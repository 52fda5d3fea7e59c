"""The cross-check: LibCST must see the same product at the same place before it is rewritten.

LibCST has a parser, a position counter and a scope analysis of its own. It reads the reduced source
only. Its positions come from the text that it would write, which differs for a few files from the
text that it read: a product that it finds at another place, or not at all, stays as it is.
"""

import ast
from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import libcst as cst
from libcst import MaybeSentinel
from libcst.metadata import (
    ExpressionContext,
    ExpressionContextProvider,
    MetadataWrapper,
    PositionProvider,
    QualifiedNameSource,
    ScopeProvider,
)
from libcst.metadata.expression_context_provider import ExpressionContextVisitor
from libcst.metadata.position_provider import PositionProvidingCodegenState
from libcst.metadata.scope_provider import Scope, ScopeVisitor

from mixpert_py.passes.reduced_source import reduced
from mixpert_py.passes.scope import ARRAY_MODULES
from mixpert_py.passes.source import Source, has_tokens, one_line

# LibCST takes 2.5 kB and a tenth of a millisecond for each token.
MAX_CHARACTERS = 1 << 20
MAX_TOKENS = 150_000

# Line (1-based) and column (0-based, characters) of the first character and behind the last one.
Position = tuple[int, int, int, int]
OPERATOR = frozenset({"@"})
OPERATORS = (cst.MatrixMultiply, cst.MatrixMultiplyAssign)
KINDS = frozenset({cst.BinaryOperation, cst.AugAssign, cst.Call})
NOTHING = nullcontext()
# How the names begin of what has no names below it: spaces, comments, brackets and signs.
TRIVIA = (
    *("whitespace", "leading_lines", "lines_after", "trailing", "header", "footer", "empty_lines"),
    *("lpar", "rpar", "lbracket", "rbracket", "lbrace", "rbrace", "comma", "semicolon", "equal"),
    *("dot", "operator", "asynchronous", "first_line", "last_line"),
)
NO_NODES = frozenset({type(None), str, MaybeSentinel})
EXPRESSIONS = frozenset(
    {cst.Name, cst.Attribute, cst.Call, cst.Arg, cst.Expr, cst.SimpleString, cst.Integer}
    | {cst.SimpleStatementLine, cst.IndentedBlock, cst.Return, cst.If, cst.AssignTarget}
)
# Names that LibCST must not find for the call of a method.
ARRAY_DOTS = frozenset(f"{module}.dot" for module in ARRAY_MODULES)


@dataclass(frozen=True, slots=True)
class Claim:
    """A product as the finder sees it.

    span: its offsets in the text. operator: whether it is written with `@` or `@=`, and not as a
    call. names: the qualified names that a called function may have, none of a method; None: any.
    root: the name that a called function's name begins with, if it begins with one.
    """

    span: tuple[int, int]
    operator: bool
    names: frozenset[str] | None
    root: str | None = None


def refusals(source: Source, tree: ast.Module, claims: Sequence[Claim]) -> list[str | None]:
    """For each claim the reason why LibCST does not confirm it; None where it does.

    RecursionError leaves this function: LibCST needs a few Python frames for each level of nesting.
    """
    roots = {claim.root for claim in claims if claim.root is not None}
    text = reduced(source, tree, [claim.span for claim in claims], roots)
    if len(text) > MAX_CHARACTERS:
        limit = f"the code around its products is larger than {MAX_CHARACTERS >> 20} MiB"
        return [limit] * len(claims)
    if has_tokens(text, MAX_TOKENS):
        return [f"the code around its products has more than {MAX_TOKENS:,} words"] * len(claims)
    places = [
        (*source.position(claim.span[0]), *source.position(claim.span[1])) for claim in claims
    ]
    try:
        seen = read(text, set(places))
    except (MemoryError, RecursionError):
        raise
    except Exception as error:  # of valid Python, too: `assert(x if y else z)` has no space
        return [f"LibCST does not read the file: {one_line(error)}"] * len(claims)
    return [_refusal(claim, seen.get(place)) for claim, place in zip(claims, places, strict=True)]


def _refusal(claim: Claim, seen: frozenset[str] | None) -> str | None:
    if seen is None:
        return "LibCST does not find it at this position"
    if claim.operator:
        return None if seen == OPERATOR else "LibCST finds no @ here"
    if claim.names is None:
        return "LibCST finds no call here" if seen == OPERATOR else None
    differs = seen != claim.names if claim.names else bool(seen & ARRAY_DOTS)
    return "LibCST resolves the name differently" if differs else None


class _Wrapper(MetadataWrapper):
    """Metadata without LibCST's batched walks, which took a third of the time and do nothing here.

    The providers of contexts and of scopes do all of their work at the module, by walks of their
    own. Positions need no visitor.
    """

    def visit_batched(self, visitors: Iterable[Any], *_: object, **__: object) -> cst.Module:
        for visitor in visitors:
            with visitor.resolve(self):
                visitor.visit_Module(self.module)
        return self.module


class _Order(cst.CSTVisitor):
    """Learns in which order LibCST visits what a node has; visits nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.attributes: list[str] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        return False

    def on_visit_attribute(self, node: cst.CSTNode, attribute: str) -> None:
        self.attributes.append(attribute)


class _Parts(dict[type[cst.CSTNode], tuple[str, ...]]):
    """Kind of node → its attributes that may have names below them, in LibCST's order."""

    def of(self, node: cst.CSTNode) -> tuple[str, ...]:
        kind = type(node)
        if kind not in self:
            order = _Order()
            node._visit_and_replace_children(order)
            found = dict.fromkeys(order.attributes)
            self[kind] = tuple(name for name in found if not name.startswith(TRIVIA))
        return self[kind]


PARTS = _Parts()


class _OnlyNames(cst.CSTVisitor):
    """Visits no spaces, brackets and signs, and puts no copy in the place of what it has visited:
    with both LibCST takes more than twice as long.
    """

    def on_visit(self, node: cst.CSTNode) -> bool:
        if super().on_visit(node):
            for name in PARTS.of(node):
                part = getattr(node, name)
                if isinstance(part, (tuple, list)):
                    for each in part:
                        each.visit(self)
                elif type(part) not in NO_NODES:
                    part.visit(self)
        return False


class _ContextVisitor(_OnlyNames, ExpressionContextVisitor):
    """Goes on as itself below the two kinds of nodes under which LibCST's own finds most of all."""

    def visit_Attribute(self, node: cst.Attribute) -> bool:  # noqa: N802 — as LibCST names it
        self.provider.set_metadata(node, self.context)
        node.value.visit(_ContextVisitor(self.provider, ExpressionContext.LOAD))
        return False

    def visit_Subscript(self, node: cst.Subscript) -> bool:  # noqa: N802
        self.provider.set_metadata(node, self.context)
        inner = _ContextVisitor(self.provider, ExpressionContext.LOAD)
        for part in (node.value, *node.slice):
            part.visit(inner)
        return False


class _Contexts(ExpressionContextProvider):
    def visit_Module(self, node: cst.Module) -> None:  # noqa: N802
        node.visit(_ContextVisitor(self, ExpressionContext.LOAD))


class _ScopeVisitor(_OnlyNames, ScopeVisitor):
    def on_leave(self, original_node: cst.CSTNode) -> None:
        if type(original_node) in EXPRESSIONS:  # a test for abstract classes is slow
            self.provider.set_metadata(original_node, self.scope)
            cst.CSTVisitor.on_leave(self, original_node)
        else:
            super().on_leave(original_node)


class _Scopes(ScopeProvider):
    def visit_Module(self, node: cst.Module) -> None:  # noqa: N802
        visitor = _ScopeVisitor(self)
        node.visit(visitor)
        visitor.infer_accesses()


class _ProductsOnly(PositionProvidingCodegenState):
    """Records the positions of nodes that may be products; those of all took twice as long."""

    def before_codegen(self, node: cst.CSTNode) -> None:
        pass

    def after_codegen(self, node: cst.CSTNode) -> None:
        pass

    def record_syntactic_position(  # type: ignore[override]  # a contextmanager there
        self, node: cst.CSTNode, **ends: cst.CSTNode | None
    ) -> AbstractContextManager[None]:
        # isinstance is slow for LibCST's abstract classes.
        return super().record_syntactic_position(node, **ends) if type(node) in KINDS else NOTHING


class _Positions(PositionProvider):
    def _gen_impl(self, module: cst.Module) -> None:
        module._codegen(_ProductsOnly(module.default_indent, module.default_newline, self))


def read(text: str, places: Collection[Position]) -> dict[Position, frozenset[str]]:
    """What LibCST finds at these places: OPERATOR, or the imported names that a call may mean.

    Takes 10–20 s for a megabyte.
    """
    wrapper = _Wrapper(cst.parse_module(text), unsafe_skip_copy=True)
    seen: dict[Position, frozenset[str]] = {}
    calls: dict[Position, cst.Call] = {}
    for node, span in wrapper.resolve(_Positions).items():
        position = (span.start.line, span.start.column, span.end.line, span.end.column)
        if position not in places:
            continue
        if isinstance(node, cst.Call):
            calls[position] = node
        elif isinstance(getattr(node, "operator", None), OPERATORS):
            seen[position] = OPERATOR
    if calls:  # scopes take as long as all the rest
        # Scopes ask for the contexts by the name of LibCST's own provider.
        wrapper._metadata[ExpressionContextProvider] = wrapper.resolve(_Contexts)
        scopes = wrapper.resolve(_Scopes)
        for position, call in calls.items():
            seen[position] = _names(call, scopes.get(call.func) or scopes.get(call))
    return seen


def _names(call: cst.Call, scope: object) -> frozenset[str]:
    """The imported names that a called name may mean."""
    names = scope.get_qualified_names_for(call.func) if isinstance(scope, Scope) else ()
    return frozenset(name.name for name in names if name.source is QualifiedNameSource.IMPORT)
