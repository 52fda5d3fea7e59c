"""The reduced source: the parts of a file that the cross-check needs, on their original lines.

LibCST takes ten times as long for a whole file as for its products and the statements around them.
"""

import ast
import bisect
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from mixpert_py.passes.scopes import Scope, Scopes
from mixpert_py.passes.source import Source

LINE_END = re.compile(r"[ \t\f]*;?[ \t\f]*(?:#[^\r\n]*)?(?=[\r\n]|\Z)")
BLOCKS = ("body", "handlers", "orelse", "finalbody", "cases")


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
