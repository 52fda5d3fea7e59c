"""Rewrites the code cells of a notebook as one program.

IPython's own lines in a cell (`%magic`, `!command`, `help?`) are hidden from Python's parser.
"""

import ast
import io
import json
import re
import tokenize
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

from mixpert_py.errors import SourceError, one_line
from mixpert_py.passes.finder import CallSite
from mixpert_py.passes.pipeline import MARK, analyze, rewrite
from mixpert_py.plan import Plan
from mixpert_py.sources import MAX_NOTEBOOK_BYTES
from mixpert_py.sources.in_memory import unknown_comment

FORMAT = 4
RUNNING = re.compile(r"\s*%%(?:time|capture|mixpert)\b[^\n]*")
TIMED = re.compile(r"(?P<indent>[ \t]*)%time[ \t]+(?=[^\s-])")
MAGIC = re.compile(r"(?P<indent>[ \t]*)(?:[%!?]|[^#'\"]*\?[ \t]*$)")
# `files = !ls` and `x = %magic`: the name is bound all the same.
ASSIGNED = re.compile(r"(?P<target>[ \t]*[^=#'\"!<>]+=)[ \t]*[!%]")


@dataclass(frozen=True)
class Changed:
    """A notebook after the change. sites: their lines are counted in a cell."""

    source: bytes
    sites: tuple[CallSite, ...]


def rewrite_notebook(raw: bytes, module: str, plan: Plan | None, scheme: str | None) -> Changed:
    """The notebook with its products as runtime calls, and the import in the first such cell.

    A notebook without such products keeps its bytes; another one is written anew with its own
    indentation. Raises SourceError as `pipeline.rewrite` does, and for a file that is not a
    notebook.
    """
    program = _read(raw)
    source = program.text.encode()
    program.require_known_comments(source, module)
    sites = program.placed(analyze(source, module))
    new = rewrite(source, module, plan, scheme).decode().split("\n")
    old = program.text.split("\n")
    added = None  # the import
    if len(new) == len(old) + 1:
        at = next((i for i, line in enumerate(new[:-1]) if line != old[i]), len(old))
        added = new.pop(at)
    if len(new) != len(old) or not (added is None or added.endswith(MARK)):
        raise SourceError(f"{module}: the number of lines changes; the notebook is left as it is")
    changes = {i: line for i, line in enumerate(new) if line != old[i]}
    if not changes:
        return Changed(raw, sites)
    if added is not None:
        at = program.import_line(min(changes))
        changes[at] = f"{added}\n{changes.get(at, program.line(at))}"
    return Changed(program.written(changes).encode(), sites)


def placed_sites(raw: bytes, module: str) -> tuple[bytes, tuple[CallSite, ...]]:
    """The cells in order as one source text, and its call sites, with lines counted in cells."""
    program = _read(raw)
    source = program.text.encode()
    return source, program.placed(analyze(source, module))


def cell_sites(raw: bytes, module: str) -> dict[str, tuple[str, CallSite]]:
    """The call sites by their ids, each with the name of its cell, in which lines are counted."""
    program = _read(raw, runs=True)
    sites = program.placed(analyze(program.text.encode(), module))
    return {site.id: (f"cell_{site.cell}", site) for site in sites}


def notebook_text(raw: bytes) -> bytes:
    """The code cells as one program. Raises SourceError for another language's notebook."""
    program = _read(raw, runs=True)
    if not (program.cells or is_python(program.notebook)):
        raise SourceError("a notebook of another language than Python")
    return program.text.encode()


def left_out(raw: bytes) -> list[str]:
    """The names of the code cells that are not in that program. Raises as `notebook_text` does."""
    program = _read(raw, runs=True)
    taken = {cell.number for cell in program.cells}
    numbers = (cell.number for cell in code_cells(program.notebook))
    return [f"cell_{number}" for number in numbers if number not in taken]


def _read(raw: bytes, runs: bool = False) -> "_Program":
    if len(raw) > MAX_NOTEBOOK_BYTES:
        raise SourceError(f"larger than {MAX_NOTEBOOK_BYTES >> 20} MiB; such a notebook is skipped")
    try:
        text = raw.decode()
        notebook = json.loads(text)
    except UnicodeDecodeError:
        raise SourceError("not a notebook: it is not UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise SourceError(f"not a notebook: {one_line(error)}") from None
    cells = [(cell, plain(cell.text, runs)) for cell in code_cells(notebook)]
    shown = [(cell, code) for cell, code in cells if code is not None]
    return _Program(text, notebook, [cell for cell, _ in shown], [code for _, code in shown])


@dataclass(frozen=True)
class CodeCell:
    """A code cell. number: its position among the code cells, from 1. node: its JSON object."""

    number: int
    node: dict[str, Any]

    @property
    def text(self) -> str:
        return "".join(self.node.get("source", []))


def code_cells(notebook: Any) -> list[CodeCell]:
    """The code cells of a Python notebook; empty for others. Raises SourceError on bad JSON."""
    if not isinstance(notebook, dict) or not isinstance(notebook.get("cells", []), list):
        raise SourceError("not a notebook: no list of cells")
    version = notebook.get("nbformat")
    if version != FORMAT:
        is_number = isinstance(version, int | float | None)
        which = one_line(version) if is_number else "that is no number"
        raise SourceError(f"a notebook of format {which}; {FORMAT} is known")
    if not is_python(notebook):
        return []
    nodes = (node for node in notebook.get("cells", []) if isinstance(node, dict))
    code = (node for node in nodes if node.get("cell_type") == "code")
    cells = [CodeCell(number, node) for number, node in enumerate(code, 1)]
    for cell in cells:
        source = cell.node.get("source", [])
        texts = source if isinstance(source, list) else [source]
        if not all(isinstance(it, str) for it in texts):
            raise SourceError(f"not a notebook: the source of cell {cell.number} is no text")
    return cells


def is_python(notebook: dict[str, Any]) -> bool:
    metadata = notebook.get("metadata")
    named = metadata if isinstance(metadata, dict) else {}
    for key, name in (("language_info", "name"), ("kernelspec", "language")):
        kernel = named.get(key)
        if isinstance(kernel, dict) and isinstance(kernel.get(name), str):
            return str(kernel[name]).lower() in ("python", "ipython")
    return True


@dataclass(frozen=True)
class _Program:
    """The code cells of a notebook, one after the other. json: the file's text."""

    json: str
    notebook: dict[str, Any]
    cells: list[CodeCell]
    codes: list[str]  # of each cell, with the lines of IPython hidden

    @property
    def text(self) -> str:
        return "\n".join(self.codes)

    @cached_property
    def starts(self) -> list[int]:
        """The index of each cell's first line in the text."""
        return list(accumulate((code.count("\n") + 1 for code in self.codes), initial=0))[:-1]

    def line(self, number: int) -> str:
        index = bisect_right(self.starts, number) - 1
        return self.cells[index].text.split("\n")[number - self.starts[index]]

    def place(self, line: int) -> tuple[int, int]:
        """The number of the cell that a 1-based line is in, and the line there."""
        at = bisect_right(self.starts, line - 1) - 1
        return self.cells[at].number, line - self.starts[at]

    def placed(self, sites: Sequence[CallSite]) -> tuple[CallSite, ...]:
        """The sites with their cells, and with lines counted there."""
        places = [self.place(site.line) for site in sites]
        pairs = zip(sites, places, strict=True)
        return tuple(replace(site, cell=cell, line=line) for site, (cell, line) in pairs)

    def require_known_comments(self, source: bytes, module: str) -> None:
        """`in_memory.require_known_comments`, with the line counted in its cell."""
        if (wrong := unknown_comment(source, module)) is not None:
            cell, line = self.place(wrong[0])
            raise SourceError(f"{module}: cell {cell}: line {line}: {wrong[1]}")

    def import_line(self, first: int) -> int:
        """The import's place: the top of the first changed cell, after `__future__` imports."""
        index = bisect_right(self.starts, first) - 1
        future = (
            s.end_lineno or 0
            for s in ast.parse(self.codes[index]).body
            if isinstance(s, ast.ImportFrom) and s.module == "__future__"
        )
        return self.starts[index] + max(future, default=0)

    def written(self, changes: dict[int, str]) -> str:
        """The file's text with some lines of its cells replaced. Changes the notebook."""
        for cell, start in zip(self.cells, self.starts, strict=True):
            lines = cell.text.split("\n")
            text = "\n".join(changes.get(i, line) for i, line in enumerate(lines, start))
            if text != cell.text:
                is_list = isinstance(cell.node["source"], list)
                cell.node["source"] = text.splitlines(keepends=True) if is_list else text
        indent = re.match(r"\s*\{\r?\n([ \t]+)", self.json)
        space = re.search(r'":( ?)', self.json)
        colon = f":{space[1] if space else ''}"
        made = json.dumps(
            self.notebook,
            # A half of a surrogate pair has no UTF-8.
            ensure_ascii=self.json.isascii() or "\\ud" in self.json.lower(),
            indent=indent[1] if indent else None,
            separators=("," if indent else f",{colon[1:]}", colon),
        )
        return made + self.json[len(self.json.rstrip()) :]


def plain(cell: str, runs: bool = False) -> str | None:
    """A cell as Python with equally many lines, IPython's lines replaced; None if it is not Python.

    The text under a cell magic such as `%%time` belongs to the magic. runs: whether the cell is to
    be run; then the text under magics that run it once, unchanged, is Python, and so is code after
    such a line magic. Windows newlines are read as Python reads them.
    """
    if runs:
        cell = cell.replace("\r\n", "\n")
    if runs and (magic := RUNNING.match(cell)):
        cell = "pass" + cell[magic.end() :]
    if cell.lstrip().startswith("%%") or "\r" in cell or "\f" in cell:
        return None
    if _parses(cell):
        return cell
    lines: list[str] = []
    continued = False
    for line in cell.split("\n"):
        if runs and not continued and TIMED.match(line) and _is_complete("\n".join(lines)):
            line = TIMED.sub(r"\g<indent>", line)
        hidden = "" if continued else _hidden(line, lines)
        continued = hidden is not None and line.endswith("\\")
        lines.append(line if hidden is None else hidden)
    text = "\n".join(lines)
    return text if _parses(text) else None


def _hidden(line: str, before: list[str]) -> str | None:
    """The replacement of a line of IPython; None for a line of Python."""
    magic, assigned = MAGIC.match(line), ASSIGNED.match(line)
    if not (magic or assigned) or not _is_complete("\n".join(before)):
        return None
    return f"{assigned['target']} 0" if assigned else f"{magic['indent'] if magic else ''}pass"


def _is_complete(text: str) -> bool:
    """Return False if the next line continues an expression or a string."""
    try:
        list(tokenize.generate_tokens(io.StringIO(text).readline))
    except tokenize.TokenError:
        return False
    except SyntaxError:
        pass
    return True


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
