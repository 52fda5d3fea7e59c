"""The cross-check: LibCST must see the same product at the same place before it is rewritten.

LibCST has a parser, a position counter and a scope analysis of its own. It reads the reduced source
only. Its positions come from the text that it would write, which differs for a few files from the
text that it read: a product that it finds at another place, or not at all, stays as it is.

The reduced source is the part of a file that the check needs, every line at its number: LibCST
takes ten times as long for a whole file as for its products and the statements around them.
"""

import ast
import bisect
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import libcst as cst
from libcst.metadata import (
    MetadataWrapper,
    PositionProvider,
    QualifiedNameSource,
    ScopeProvider,
)
from libcst.metadata.scope_provider import Scope

from mixpert_py.passes.scope import ARRAY_MODULES
from mixpert_py.passes.source import NEWLINE, Source, has_tokens, one_line

# LibCST takes 2.5 kB and a tenth of a millisecond for each token.
MAX_CHARACTERS = 1 << 20
MAX_TOKENS = 150_000

# Line (1-based) and column (0-based, characters) of the first character and behind the last one.
Position = tuple[int, int, int, int]
OPERATOR = frozenset({"@"})
OPERATORS = (cst.MatrixMultiply, cst.MatrixMultiplyAssign)
KINDS = frozenset({cst.BinaryOperation, cst.AugAssign, cst.Call})
# Names that LibCST must not find for the call of a method.
ARRAY_DOTS = frozenset(f"{module}.dot" for module in ARRAY_MODULES)
INDENT = re.compile(r"[ \t\f]*")
LINE_END = re.compile(r"[ \t\f]*;?[ \t\f]*(?:#[^\r\n]*)?(?=[\r\n]|\Z)")
# Syntax that may bind a name of a scope around the statement in which it stands.
OUTWARD = re.compile(r":=|\b(?:global|nonlocal)\b")
PLAIN = (ast.Expr, ast.Return, ast.Assert, ast.Raise, ast.Pass, ast.Break, ast.Continue)
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
BLOCKS = ("body", "handlers", "orelse", "finalbody", "cases")


@dataclass(frozen=True, slots=True)
class Claim:
    """A product as the finder sees it.

    span: its offsets in the text. operator: whether it is written with `@` or `@=`, and not as a
    call. names: the qualified names that a called function may have, none of a method; None: any.
    """

    span: tuple[int, int]
    operator: bool
    names: frozenset[str] | None


def refusals(source: Source, tree: ast.Module, claims: Sequence[Claim]) -> list[str | None]:
    """For each claim the reason why LibCST does not confirm it; None where it does.

    RecursionError leaves this function: LibCST needs a few Python frames for each level of nesting.
    """
    text = reduced(source, tree, [claim.span for claim in claims])
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


def read(text: str, places: Collection[Position]) -> dict[Position, frozenset[str]]:
    """What LibCST finds at these places: OPERATOR, or the imported names that a call may mean.

    Takes 10–20 s for a megabyte.
    """
    wrapper = _Wrapper(cst.parse_module(text), unsafe_skip_copy=True)
    seen: dict[Position, frozenset[str]] = {}
    calls: dict[Position, cst.Call] = {}
    for node, span in wrapper.resolve(PositionProvider).items():
        if type(node) not in KINDS:  # isinstance is slow for LibCST's abstract classes
            continue
        position = (span.start.line, span.start.column, span.end.line, span.end.column)
        if position not in places:
            continue
        if isinstance(node, cst.Call):
            calls[position] = node
        elif isinstance(getattr(node, "operator", None), OPERATORS):
            seen[position] = OPERATOR
    if calls:  # scopes take as long as all the rest
        scopes = wrapper.resolve(ScopeProvider)
        for position, call in calls.items():
            seen[position] = _names(call, scopes.get(call.func) or scopes.get(call))
    return seen


def _names(call: cst.Call, scope: object) -> frozenset[str]:
    """The imported names that a called name may mean."""
    names = scope.get_qualified_names_for(call.func) if isinstance(scope, Scope) else ()
    return frozenset(name.name for name in names if name.source is QualifiedNameSource.IMPORT)


@dataclass(frozen=True, slots=True)
class _Omission:
    """Statements that are left out, and the names that they bind."""

    start: int
    end: int
    names: tuple[str, ...]


def reduced(source: Source, tree: ast.Module, products: Sequence[tuple[int, int]]) -> str:
    """The text with one assignment, of all the names bound there, for statements without a product.

    products: their spans. What remains are the statements with a product, all around them, and
    imports. A string holds the newlines of what is left out: lines and columns of what remains are
    those of the file. Every newline becomes `\\n`.
    """
    starts = sorted(start for start, _ in products)
    pieces = []
    done = 0
    for omission in _omissions(source, tree.body, starts):
        lines = len(NEWLINE.findall(source.text, omission.start, omission.end))
        # Of an empty line LibCST makes several nodes, of a string one.
        value = '"""' + "\n" * lines + '"""' if lines else "0"
        pieces.append(source.text[done : omission.start])
        pieces.append(" = ".join([*omission.names, value]))
        done = omission.end
    pieces.append(source.text[done:])
    return "".join(NEWLINE.sub("\n", piece) for piece in pieces)


def _omissions(source: Source, block: Iterable[ast.AST], starts: list[int]) -> Iterator[_Omission]:
    """The omissions of a block of statements, in order."""
    run: list[_Omission] = []
    for part in block:
        if isinstance(part, ast.stmt) and (omission := _omitted(source, part, starts)):
            run.append(omission)
            continue
        yield from _joined(source, run)
        run = []
        for name in BLOCKS:
            yield from _omissions(source, getattr(part, name, ()), starts)
    yield from _joined(source, run)


def _joined(source: Source, run: list[_Omission]) -> Iterator[_Omission]:
    """A run of statements as one omission to the end of its last line."""
    while run:
        if end := LINE_END.match(source.text, run[-1].end):
            names = dict.fromkeys(name for omission in run for name in omission.names)
            yield _Omission(run[0].start, end.end(), tuple(names))
            return
        run.pop()


def _omitted(source: Source, statement: ast.stmt, starts: list[int]) -> _Omission | None:
    """A statement that is left out; None if it must stay."""
    start, end = source.span(statement)
    if decorators := getattr(statement, "decorator_list", None):
        line = source.line_starts[min(node.lineno for node in decorators) - 1]
        indent = INDENT.match(source.text, line)
        assert indent is not None
        start = indent.end()
    if bisect.bisect_left(starts, start) < bisect.bisect_left(starts, end):
        return None
    if source.text.startswith("elif", start) or OUTWARD.search(source.text, start, end):
        return None
    names: list[str] = []
    return _Omission(start, end, tuple(names)) if _bind(statement, names) else None


def _bind(part: ast.AST, names: list[str]) -> bool:
    """Add the names that a statement binds; False if an assignment cannot stand in its place."""
    if isinstance(part, PLAIN):
        return True
    if isinstance(part, DEFINITIONS):
        names.append(part.name)
        return True
    if isinstance(part, ast.Assign):
        targets: list[ast.expr | None] = [*part.targets]
    elif isinstance(part, ast.AugAssign | ast.For | ast.AsyncFor):
        targets = [part.target]
    elif isinstance(part, ast.With | ast.AsyncWith):
        targets = [item.optional_vars for item in part.items]
    elif isinstance(part, ast.If | ast.While | ast.Try | ast.TryStar):
        targets = []
    elif isinstance(part, ast.ExceptHandler):
        targets = []
        names += [part.name] if part.name else []
    else:
        return False
    names += [name for target in targets for name in _read_names(target)]
    return all(_bind(inner, names) for name in BLOCKS for inner in getattr(part, name, ()))


def _read_names(target: ast.expr | None) -> Iterator[str]:
    """The names of a target; attributes and elements bind none."""
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, ast.Starred):
        yield from _read_names(target.value)
    elif isinstance(target, ast.Tuple | ast.List):
        for element in target.elts:
            yield from _read_names(element)
