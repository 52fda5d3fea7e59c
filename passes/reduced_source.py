"""The reduced source: the parts of a file that the cross-check needs, on their original lines.

LibCST takes ten times as long for a whole file as for its products and the statements around them.
"""

import ast
import bisect
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from mixpert_py.passes.source import Source

INDENT = re.compile(r"[ \t\f]*")
LINE_END = re.compile(r"[ \t\f]*;?[ \t\f]*(?:#[^\r\n]*)?(?=[\r\n]|\Z)")
# Syntax that may bind a name of a scope around the statement in which it stands.
OUTWARD = re.compile(r":=|\b(?:global|nonlocal)\b")
OUTWARD_WORDS = (":=", "global", "nonlocal")

PLAIN = (ast.Expr, ast.Return, ast.Assert, ast.Raise, ast.Pass, ast.Break, ast.Continue)
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
BLOCKS = ("body", "handlers", "orelse", "finalbody", "cases")


@dataclass(frozen=True, slots=True)
class _Omission:
    """Omitted statements, and the roots that they bind."""

    start: int
    end: int
    names: tuple[str, ...]


def reduced(
    source: Source,
    tree: ast.Module,
    products: Sequence[tuple[int, int]],
    roots: Collection[str] = (),
) -> str:
    """The text with one assignment, of the roots bound there, for statements without a product.

    products: their spans. roots: the names that the called functions' names begin with. What
    remains are the statements with a product, all around them but decorators, and imports of the
    roots. A string holds the newlines of what is left out: lines and columns of what remains are
    those of the file. Every newline becomes `\\n`.
    """
    outward = any(word in source.text for word in OUTWARD_WORDS)
    needed = _Needed(sorted(start for start, _ in products), frozenset(roots), outward)
    pieces = []
    done = 0
    for omission in _omissions(source, tree.body, needed):
        lines = source.position(omission.end)[0] - source.position(omission.start)[0]
        # Of an empty line LibCST makes several nodes, of a string one.
        value = '"""' + "\n" * lines + '"""' if lines else "0"
        pieces.append(source.text[done : omission.start])
        pieces.append(" = ".join([*omission.names, value]))
        done = omission.end
    pieces.append(source.text[done:])
    return "".join(pieces).replace("\r\n", "\n").replace("\r", "\n")


@dataclass(frozen=True, slots=True)
class _Needed:
    """The parts of a file that a reduced source must keep.

    starts: offsets of the products, in order. roots: as of `reduced`. outward: whether any of
    OUTWARD_WORDS is in the file, which few have.
    """

    starts: list[int]
    roots: frozenset[str]
    outward: bool

    def lies_in(self, start: int, end: int) -> bool:
        """Whether a product lies in this span."""
        return bisect.bisect_left(self.starts, start) < bisect.bisect_left(self.starts, end)

    def binds_outward(self, text: str, start: int, end: int) -> bool:
        """Whether the text in this span may bind a name of a scope around its statement."""
        return self.outward and OUTWARD.search(text, start, end) is not None


def _omissions(source: Source, block: Iterable[ast.AST], needed: _Needed) -> Iterator[_Omission]:
    """The omissions of a block of statements, in order."""
    run: list[_Omission] = []
    for part in block:
        if isinstance(part, ast.stmt) and (omission := _omitted(source, part, needed)):
            run.append(omission)
            continue
        if omission := _decorators(source, part, needed):
            run.append(omission)
        yield from _joined(source, run)
        run = []
        for name in BLOCKS:
            yield from _omissions(source, getattr(part, name, ()), needed)
    yield from _joined(source, run)


def _joined(source: Source, run: list[_Omission]) -> Iterator[_Omission]:
    """Consecutive statements as one omission, to the end of the last line."""
    while run:
        if end := LINE_END.match(source.text, run[-1].end):
            names = dict.fromkeys(name for omission in run for name in omission.names)
            yield _Omission(run[0].start, end.end(), tuple(names))
            return
        run.pop()


def _omitted(source: Source, statement: ast.stmt, needed: _Needed) -> _Omission | None:
    """A statement as an omission; None if it must stay."""
    start, end = source.span(statement)
    if decorators := getattr(statement, "decorator_list", None):
        start = _first_at_sign(source, decorators)
    if needed.lies_in(start, end):
        return None
    if source.text.startswith("elif", start) or needed.binds_outward(source.text, start, end):
        return None
    names: list[str] = []
    bound = _bind(statement, names, needed.roots)
    return _Omission(start, end, tuple(filter(needed.roots.__contains__, names))) if bound else None


def _decorators(source: Source, statement: ast.AST, needed: _Needed) -> _Omission | None:
    """The decorators of a function or class with a product, if they contain none."""
    decorators = getattr(statement, "decorator_list", None)
    if not decorators:
        return None
    start, end = _first_at_sign(source, decorators), source.span(decorators[-1])[1]
    # Brackets around the last one end behind it.
    after = LINE_END.match(source.text, end)
    if after is None or needed.lies_in(start, end):
        return None
    if needed.binds_outward(source.text, start, end):
        return None
    return _Omission(start, end, ())


def _first_at_sign(source: Source, decorators: Sequence[ast.expr]) -> int:
    """The offset of the `@` of the first decorator.

    The decorator's expression may begin on a later line than the `@`, as in `@(` and a newline.
    Only brackets and comments can stand between them, and no line of those begins with `@`.
    """
    line = decorators[0].lineno
    while True:
        indent = INDENT.match(source.text, source.line_starts[line - 1])
        assert indent is not None
        if source.text.startswith("@", indent.end()):
            return indent.end()
        line -= 1


def _bind(part: ast.AST, names: list[str], roots: frozenset[str]) -> bool:
    """Add the names that a statement binds; False if an assignment cannot stand in its place."""
    if isinstance(part, PLAIN):
        return True
    if isinstance(part, DEFINITIONS):
        names.append(part.name)
        return True
    if isinstance(part, ast.Import | ast.ImportFrom):
        bound = [alias.asname or alias.name.partition(".")[0] for alias in part.names]
        names += bound
        return "*" not in bound and roots.isdisjoint(bound)
    if isinstance(part, ast.Assign):
        targets: list[ast.expr | None] = [*part.targets]
    elif isinstance(part, ast.AugAssign | ast.AnnAssign | ast.For | ast.AsyncFor):
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
    names += [name for target in targets for name in _names(target)]
    return all(_bind(inner, names, roots) for name in BLOCKS for inner in getattr(part, name, ()))


def _names(target: ast.expr | None) -> Iterator[str]:
    """The names of a target; attributes and elements bind no names."""
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, ast.Starred):
        yield from _names(target.value)
    elif isinstance(target, ast.Tuple | ast.List):
        for element in target.elts:
            yield from _names(element)
