"""The cross-check: LibCST must see the same product in the same place before it is rewritten.

LibCST has its own parser and scope analysis, and reads only the reduced source: the parts of a file
that the check needs, on their original lines, since it takes ten times as long for a whole file.
Its products are paired with those of `ast` in source order, and must have the same text. A product
that LibCST finds in another order, with other operands, or not at all stays unchanged. LibCST's own
positions are not used: they belong to the text that it would write, and computing them takes as
long as parsing.
"""

import ast
import bisect
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import libcst as cst
from libcst import MaybeSentinel
from libcst.metadata import ExpressionContext, QualifiedNameSource, ScopeProvider
from libcst.metadata.scope_provider import Scope as CstScope
from libcst.metadata.scope_provider import ScopeVisitor

from mixpert_py.errors import SourceError
from mixpert_py.passes.scopes import ARRAY_MODULES, Scope, Scopes
from mixpert_py.passes.source import Source, characters, children, has_tokens, one_line, parse

# LibCST takes 2.5 kB and a tenth of a millisecond for each token.
MAX_CHARACTERS = 1 << 20
MAX_TOKENS = 150_000

# Where LibCST's parser stopped; what it expected there is a long list of signs.
LIBCST_LINE = re.compile(r"parser error: error at (\d+):")
# Line (1-based) and column (0-based, characters) of the first character and behind the last one.
Position = tuple[int, int, int, int]
OPERATOR = frozenset({"@"})
OPERATORS = (cst.MatrixMultiply, cst.MatrixMultiplyAssign)
KINDS = frozenset({cst.BinaryOperation, cst.AugAssign, cst.Call})
NODES = frozenset({ast.BinOp, ast.AugAssign, ast.Call})
# Where it is not the attribute `target` that is assigned to; what is deleted has it, too.
ASSIGNED = {cst.AsName: "name", cst.Del: ""}
# A target's own names are assigned to, but not those that it is an attribute or an element of.
LOADING = frozenset({cst.Attribute, cst.Subscript})
# F-strings and t-strings, as `ast` and LibCST call them. Python 3.11 has no places inside of them.
STRINGS = frozenset({"JoinedStr", "TemplateStr", "FormattedString", "TemplatedString"})
NOTHING_AROUND = cst.Module([])
# How the names begin of what has no names below it: spaces, comments, brackets and signs.
TRIVIA = (
    *("whitespace", "leading_lines", "lines_after", "trailing", "header", "footer", "empty_lines"),
    *("lpar", "rpar", "lbracket", "rbracket", "lbrace", "rbrace", "comma", "semicolon", "equal"),
    *("dot", "operator", "asynchronous", "first_line", "last_line"),
)
NO_NODES = frozenset({type(None), str, MaybeSentinel})
# Of the reduced source.
LINE_END = re.compile(r"[ \t\f]*;?[ \t\f]*(?:#[^\r\n]*)?(?=[\r\n]|\Z)")
BLOCKS = ("body", "handlers", "orelse", "finalbody", "cases")
# Names that LibCST must not find for the call of a method.
ARRAY_DOTS = frozenset(f"{module}.dot" for module in ARRAY_MODULES)


@dataclass(frozen=True, slots=True)
class Claim:
    """A product as the finder sees it.

    span: its offsets in the text. operator: whether it is written with `@` or `@=`, not as a call.
    names: the qualified names that a called function may have, empty for a method; None: any. root:
    the first name of the called function's dotted name, if it has one.
    """

    span: tuple[int, int]
    operator: bool
    names: frozenset[str] | None
    root: str | None = None


def refusals(source: Source, scopes: Scopes, claims: Sequence[Claim]) -> list[str | None]:
    """The reason, for each claim, why LibCST does not confirm it; None if it does.

    Raises SourceError if LibCST can confirm no product of the file. A RecursionError leaves this
    function: LibCST needs a few Python frames for each level of nesting.
    """
    roots = {claim.root for claim in claims if claim.root is not None}
    text = reduced(source, scopes, [claim.span for claim in claims], roots)
    if len(text) > MAX_CHARACTERS:
        raise _skipped(
            source, f"the code around its products is larger than {MAX_CHARACTERS >> 20} MiB"
        )
    if has_tokens(text, MAX_TOKENS):
        raise _skipped(source, f"the code around its products has more than {MAX_TOKENS:,} words")
    places = [
        (*source.position(claim.span[0]), *source.position(claim.span[1])) for claim in claims
    ]
    try:
        seen = read(text, set(places))
    except (MemoryError, RecursionError):
        raise
    except Exception as error:  # of valid Python, too: `assert(x if y else z)` has no space
        line = LIBCST_LINE.search(str(error))
        what = f"line {line[1]}" if line else f"it: {one_line(error)}"
        raise _skipped(source, f"LibCST does not read {what}") from None
    if seen is None:
        raise _skipped(source, "LibCST finds fewer or more calls and operators in it")
    return [_refusal(claim, seen.get(place)) for claim, place in zip(claims, places, strict=True)]


def _skipped(source: Source, reason: str) -> SourceError:
    return SourceError(f"{source.module}: {reason}; the file is skipped")


def _refusal(claim: Claim, seen: frozenset[str] | None) -> str | None:
    if seen is None:
        return "LibCST does not find it at this position"
    if claim.operator:
        return None if seen == OPERATOR else "LibCST finds no @ here"
    if claim.names is None:
        return "LibCST finds no call here" if seen == OPERATOR else None
    differs = seen != claim.names if claim.names else bool(seen & ARRAY_DOTS)
    return "LibCST resolves the name differently" if differs else None


class _Order(cst.CSTVisitor):
    """Records the order in which LibCST visits a node's children, and visits none of them."""

    def __init__(self) -> None:
        super().__init__()
        self.attributes: list[str] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        return False

    def on_visit_attribute(self, node: cst.CSTNode, attribute: str) -> None:
        self.attributes.append(attribute)


class _Parts(dict[type[cst.CSTNode], tuple[str, ...]]):
    """Maps each kind of node to its attributes that may contain names, in LibCST's order."""

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
    """Skips whitespace, brackets and signs, and copies no visited node: otherwise LibCST takes more
    than twice as long.
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


class _ScopeVisitor(_OnlyNames, ScopeVisitor):
    """LibCST's reader of scopes, which visits what may contain names."""


class _Scopes(ScopeProvider):
    """The scopes of calls. Targets of assignments, in `targets`, are already known."""

    def __init__(self, targets: Collection[cst.CSTNode]) -> None:
        super().__init__()
        self.targets = targets
        self.of_calls: dict[cst.CSTNode, CstScope | None] = {}

    def get_metadata(self, key: object, node: cst.CSTNode, default: object = None) -> Any:
        """The context of a name, the only metadata that is asked for."""
        return ExpressionContext.STORE if node in self.targets else ExpressionContext.LOAD

    def set_metadata(self, node: cst.CSTNode, value: Any) -> None:
        if type(node) is cst.Call:
            self.of_calls[node] = value

    def read(self, module: cst.Module) -> None:
        visitor = _ScopeVisitor(self)
        module.visit(visitor)
        visitor.infer_accesses()


class _Tree:
    """A source as LibCST reads it: its products, and the assigned names.

    products: all calls, `@` and `@=` outside f-strings, in source order. targets: the assigned
    names, as LibCST's context provider finds them.
    """

    def __init__(self, text: str) -> None:
        self.module = cst.parse_module(text)
        self.products: list[cst.CSTNode] = []
        self.targets: set[cst.CSTNode] = set()
        stack: list[tuple[cst.CSTNode, bool, bool]] = [(self.module, False, False)]
        while stack:
            node, is_target, in_string = stack.pop()
            kind = type(node)
            if kind is cst.Name:
                if is_target:
                    self.targets.add(node)
                continue
            if kind in KINDS and not in_string and _is_product(node):
                self.products.append(node)
            is_target = is_target and kind not in LOADING
            in_string = in_string or kind.__name__ in STRINGS
            for name in reversed(PARTS.of(node)):
                part = getattr(node, name)
                below = is_target or name == ASSIGNED.get(kind, "target")
                if isinstance(part, (tuple, list)):
                    stack += [(each, below, in_string) for each in reversed(part)]
                elif type(part) not in NO_NODES:
                    stack.append((part, below, in_string))

    def scopes(self) -> dict[cst.CSTNode, CstScope | None]:
        """The scope in which each call stands."""
        scopes = _Scopes(self.targets)
        scopes.read(self.module)
        return scopes.of_calls


def _is_product(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Call) or isinstance(getattr(node, "operator", None), OPERATORS)


def _places(text: str, lines: Sequence[str]) -> list[Position]:
    """The places of the nodes that `_Tree` counts as products, from Python's parser, in the same
    order.
    """
    found: list[Position] = []
    stack: list[Any] = [parse(text, "")]
    while stack:
        node = stack.pop()
        kind = type(node)
        if kind in NODES and (kind is ast.Call or isinstance(node.op, ast.MatMult)):
            first, last = lines[node.lineno - 1], lines[node.end_lineno - 1]
            start, end = characters(first, node.col_offset), characters(last, node.end_col_offset)
            found.append((node.lineno, start, node.end_lineno, end))
        if kind.__name__ not in STRINGS:
            stack += children(node)
    return sorted(found, key=lambda place: (*place[:2], -place[2], -place[3]))


def read(text: str, places: Collection[Position]) -> dict[Position, frozenset[str]] | None:
    """What LibCST finds at these places: OPERATOR, or the imported names that a call may mean.

    text: its lines end in `\\n`. None if LibCST finds another number of calls than Python's parser.
    """
    tree = _Tree(text)
    lines = text.split("\n")
    found = _places(text, lines)
    if len(found) != len(tree.products):
        return None
    seen: dict[Position, frozenset[str]] = {}
    calls: dict[Position, cst.Call] = {}
    for place, node in zip(found, tree.products, strict=True):
        if place not in places or _written(node) != _words(lines, place):
            continue
        if isinstance(node, cst.Call):
            calls[place] = node
        else:
            seen[place] = OPERATOR
    if calls:  # scopes take as long as all the rest
        scopes = tree.scopes()
        seen |= {place: _names(call, scopes.get(call)) for place, call in calls.items()}
    return seen


def _written(product: cst.CSTNode) -> list[str]:
    """The words of a product as LibCST writes it, without brackets around it."""
    around = {"lpar": (), "rpar": (), "semicolon": MaybeSentinel.DEFAULT}
    bare = product.with_changes(**{key: around[key] for key in around if hasattr(product, key)})
    return NOTHING_AROUND.code_for_node(bare).split()


def _words(lines: Sequence[str], place: Position) -> list[str]:
    """The words of the text at a place; LibCST keeps the indentation elsewhere."""
    first, start, last, end = place
    if first == last:
        return lines[first - 1][start:end].split()
    rows = [lines[first - 1][start:], *lines[first : last - 1], lines[last - 1][:end]]
    return "\n".join(rows).split()


def _names(call: cst.Call, scope: object) -> frozenset[str]:
    """The imported names that a called name may mean."""
    names = scope.get_qualified_names_for(call.func) if isinstance(scope, CstScope) else ()
    return frozenset(name.name for name in names if name.source is QualifiedNameSource.IMPORT)


@dataclass(frozen=True, slots=True)
class _Omission:
    """Omitted statements, and the roots that they bind."""

    start: int
    end: int
    names: Collection[str]


def reduced(
    source: Source,
    scopes: Scopes,
    products: Sequence[tuple[int, int]],
    roots: Collection[str] = (),
) -> str:
    """The text with one assignment, of the roots bound there, for statements without a product.

    products: their spans. roots: the names that the called functions' names begin with. What
    remains are the statements with a product, all around them but decorators, and imports of the
    roots. A string holds the newlines of what is left out: lines and columns of what remains are
    those of the file. Every newline becomes `\\n`.
    """
    reducer = _Reducer(source, scopes, sorted(start for start, _ in products), sorted(roots))
    pieces = []
    done = 0
    for omission in reducer.omissions(getattr(scopes.module.node, "body", ()), scopes.module):
        lines = source.position(omission.end)[0] - source.position(omission.start)[0]
        # Of an empty line LibCST makes several nodes, of a string one.
        value = '"""' + "\n" * lines + '"""' if lines else "0"
        pieces.append(source.text[done : omission.start])
        pieces.append(" = ".join([*omission.names, value]))
        done = omission.end
    pieces.append(source.text[done:])
    return "".join(pieces).replace("\r\n", "\n").replace("\r", "\n")


@dataclass(frozen=True, slots=True)
class _Reducer:
    """Finds what can be left out. starts: offsets of the products, in order."""

    source: Source
    scopes: Scopes
    starts: list[int]
    roots: list[str]

    def omissions(self, block: Iterable[ast.AST], scope: Scope) -> Iterator[_Omission]:
        """The omissions of a block of statements of a scope, in order."""
        run: list[_Omission] = []
        for part in block:
            decorators = getattr(part, "decorator_list", None)
            if isinstance(part, ast.stmt):
                start, end = self.source.span(part)
                start = self._first_at_sign(decorators) if decorators else start
                is_branch = self.source.text.startswith("elif", start)
                if not is_branch and (omission := self._omitted(start, end, scope)):
                    run.append(omission)
                    continue
            if decorators:
                start, end = self._first_at_sign(decorators), self.source.span(decorators[-1])[1]
                # Brackets around the last one end behind it.
                after = LINE_END.match(self.source.text, end)
                if after and (omission := self._omitted(start, end, scope)):
                    run.append(omission)
            yield from self._joined(run)
            run = []
            inner = self.scopes.opened_by.get(part, scope)
            for name in BLOCKS:
                yield from self.omissions(getattr(part, name, ()), inner)
        yield from self._joined(run)

    def _joined(self, run: list[_Omission]) -> Iterator[_Omission]:
        """Consecutive statements as one omission, to the end of the last line."""
        while run:
            if end := LINE_END.match(self.source.text, run[-1].end):
                names = dict.fromkeys(name for omission in run for name in omission.names)
                yield _Omission(run[0].start, end.end(), names)
                return
            run.pop()

    def _omitted(self, start: int, end: int, scope: Scope) -> _Omission | None:
        """Code of a scope as an omission; None if a product or a root's meaning lies in it."""
        if bisect.bisect_left(self.starts, start) < bisect.bisect_left(self.starts, end):
            return None
        first, last = self.source.position(start)[0], self.source.position(end)[0]
        names = []
        for root in self.roots:
            bound = [b for b in scope.bindings.get(root, ()) if first <= b.line <= last]
            if root in scope.declarations or any(binding.target for binding in bound):
                return None
            if bound:
                names.append(root)
        has_star = any(first <= star.line <= last for star in scope.star_imports)
        return None if has_star else _Omission(start, end, names)

    def _first_at_sign(self, decorators: Sequence[ast.expr]) -> int:
        """The offset of the `@` of the first decorator; brackets may stand after it."""
        return self.source.text.rfind("@", 0, self.source.span(decorators[0])[0])
