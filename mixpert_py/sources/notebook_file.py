"""Rewrites the code cells of a notebook as one program; all other bytes stay."""

import ast
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from mixpert_py.errors import SourceError
from mixpert_py.passes import imports
from mixpert_py.passes.call_site import CallSite
from mixpert_py.passes.dataflow.graph import Dependencies
from mixpert_py.passes.edits import Edit, splice
from mixpert_py.passes.pipeline import analyze, dependencies, rewrite
from mixpert_py.passes.source import parse
from mixpert_py.plan import Plan
from mixpert_py.sources import comments
from mixpert_py.sources.notebook_cells import Cell, code_cells, is_python, json_edits, plain
from mixpert_py.sources.source_files import MAX_NOTEBOOK_BYTES


@dataclass(frozen=True)
class Changed:
    """A notebook after the change. sites: their lines are counted in a cell. cells: the cell of
    each site.
    """

    source: bytes
    sites: tuple[CallSite, ...]
    cells: tuple[int, ...]


@dataclass(frozen=True)
class Followed:
    """The flow of values between a notebook's products; `sites` and `cells` are as in `Changed`."""

    sites: tuple[CallSite, ...]
    cells: tuple[int, ...]
    flow: Dependencies


def rewrite_notebook(raw: bytes, module: str, plan: Plan | None, scheme: str | None) -> Changed:
    """The notebook with its products as runtime calls, and the import in the first such cell.

    Raises SourceError as `pipeline.rewrite` does, and for a file that is not a notebook.
    """
    program = _read(raw)
    tree = parse(program.text, module)
    name = imports.alias(tree, program.text)
    added = not imports.is_imported(tree, name)
    head = f"import {imports.PACKAGE} as {name}\n" * added
    source = f"{head}{program.text}".encode()
    program.require_known_comments(source, module, added)
    sites = analyze(source, module)
    new = rewrite(source, module, plan, scheme).decode().split("\n")[added:]
    old = program.text.split("\n")
    if len(new) != len(old):
        raise SourceError(f"{module}: the number of lines changes; the notebook is left as it is")
    changes: dict[int, tuple[str, ...]] = {
        i: (line,) for i, line in enumerate(new) if line != old[i]
    }
    if changes and added:
        at = program.import_line(min(changes))
        changes[at] = (
            head.removesuffix("\n") + imports.MARK,
            *changes.get(at, (program.line(at),)),
        )
    return program.changed(program.edits(changes), sites, added)


def follow_notebook(raw: bytes, module: str) -> Followed:
    """The flow of values through the cells in order. Raises as `rewrite_notebook` does."""
    program = _read(raw)
    source = program.text.encode()
    sites, cells = program.placed(analyze(source, module), False)
    return Followed(sites, cells, dependencies(source, module))


def cell_sites(raw: bytes, module: str) -> dict[str, tuple[str, CallSite]]:
    """The call sites by their ids, each with the name of its cell, in which lines are counted."""
    program = _read(raw, runs=True)
    sites, cells = program.placed(analyze(program.text.encode(), module), False)
    named = zip(sites, cells, strict=True)
    return {site.id: (f"cell_{cell}", site) for site, cell in named}


def cell_lines(raw: bytes) -> list[tuple[int, int]]:
    """Each line of `notebook_text` as the number of its cell and the line number in it."""
    program = _read(raw, runs=True)
    return [
        (cell.number, line + 1)
        for cell, code in zip(program.cells, program.codes, strict=True)
        for line in range(code.count("\n") + 1)
    ]


def notebook_text(raw: bytes) -> bytes:
    """The code cells as one program, with IPython's lines hidden.

    Raises SourceError for a file that is not a notebook, or one of another language.
    """
    program = _read(raw, runs=True)
    if not (program.cells or is_python(program.json)):
        raise SourceError("a notebook of another language than Python")
    return program.text.encode()


def left_out(raw: bytes) -> list[str]:
    """The names of the code cells that are not in that program. Raises as `notebook_text` does."""
    taken = {cell.number for cell in _read(raw, runs=True).cells}
    numbers = (cell.number for cell in code_cells(raw.decode()))
    return [f"cell_{number}" for number in numbers if number not in taken]


def _read(raw: bytes, runs: bool = False) -> "_Program":
    if len(raw) > MAX_NOTEBOOK_BYTES:
        raise SourceError(f"larger than {MAX_NOTEBOOK_BYTES >> 20} MiB; such a notebook is skipped")
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise SourceError("not a notebook: it is not UTF-8") from None
    shown = [
        (cell, code) for cell in code_cells(text) if (code := plain(cell.text, runs)) is not None
    ]
    return _Program(text, [cell for cell, _ in shown], [code for _, code in shown])


@dataclass(frozen=True)
class _Program:
    """The code cells of a notebook, one after the other. json: the file's text."""

    json: str
    cells: list[Cell]
    codes: list[str]  # of each cell, with the lines of IPython hidden

    @property
    def text(self) -> str:
        return "\n".join(self.codes)

    @property
    def starts(self) -> list[int]:
        """The index of each cell's first line in the text."""
        counts = (code.count("\n") + 1 for code in self.codes)
        return list(accumulate(counts, initial=0))[:-1]

    def line(self, number: int) -> str:
        """A line in the notebook's own spelling."""
        index = bisect_right(self.starts, number) - 1
        return self.cells[index].text.split("\n")[number - self.starts[index]]

    def changed(self, edits: list[Edit], sites: Sequence[CallSite], added: bool) -> Changed:
        """The notebook after the edits. added: a line before the text, which the sites count."""
        return Changed(splice(self.json, edits).encode(), *self.placed(sites, added))

    def placed(
        self, sites: Sequence[CallSite], added: bool
    ) -> tuple[tuple[CallSite, ...], tuple[int, ...]]:
        """The sites with lines counted in their cells, and the numbers of those cells."""
        starts = self.starts
        lines = [site.line - 1 - added for site in sites]
        cells = [bisect_right(starts, line) - 1 for line in lines]
        placed = [
            replace(site, line=line - starts[cell] + 1)
            for site, line, cell in zip(sites, lines, cells, strict=True)
        ]
        return tuple(placed), tuple(self.cells[cell].number for cell in cells)

    def require_known_comments(self, source: bytes, module: str, added: bool) -> None:
        """`comments.require_known`, with the line counted in its cell. added: as in `changed`."""
        wrong = comments.problem(source, module)
        if wrong is not None:
            line, reason = wrong
            line -= 1 + added
            at = bisect_right(self.starts, line) - 1
            place = f"cell {self.cells[at].number}: line {line - self.starts[at] + 1}"
            raise SourceError(f"{module}: {place}: {reason}")

    def import_line(self, first: int) -> int:
        """The place of the import: before the cell's first changed line, after `__future__`
        imports.
        """
        index = bisect_right(self.starts, first) - 1
        tree = ast.parse(self.codes[index])
        future = [
            s for s in tree.body if isinstance(s, ast.ImportFrom) and s.module == "__future__"
        ]
        line = self.starts[index] + max((s.end_lineno or 0 for s in future), default=0)
        if line > first:
            raise SourceError("a product on the line of a future import; the notebook is left")
        return line

    def edits(self, changes: dict[int, tuple[str, ...]]) -> list[Edit]:
        """Edits of the JSON text that replace some lines."""
        edits = []
        for cell, start in zip(self.cells, self.starts, strict=True):
            at = 0
            own = []
            for number, line in enumerate(cell.text.split("\n"), start):
                end = at + len(line)
                match changes.get(number):
                    case (new,):
                        own.append(Edit(at, end, new, True, 0))
                    case (before, new):
                        own.append(Edit(at, at, f"{before}\n", True, -1))
                        own += [Edit(at, end, new, True, 0)] if new != line else []
                at = end + 1
            edits += json_edits(self.json, cell, own)
        return edits
