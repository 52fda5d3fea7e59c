"""Finds a notebook's code cells in its JSON text, and makes edits of them there.

IPython's own lines in a cell (`%magic`, `!command`, `help?`) are hidden from Python's parser.
"""

import ast
import io
import json
import re
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mixpert_py.errors import SourceError, one_line
from mixpert_py.passes.edits import Edit, splice

FORMAT = 4
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+')
RUNNING = re.compile(r"\s*%%(?:time|capture|mixpert)\b[^\n]*")
TIMED = re.compile(r"(?P<indent>[ \t]*)%time[ \t]+(?=[^\s-])")
MAGIC = re.compile(r"(?P<indent>[ \t]*)(?:[%!?]|[^#'\"]*\?[ \t]*$)")
# `files = !ls` and `x = %magic`: the name is bound all the same.
ASSIGNED = re.compile(r"(?P<target>[ \t]*[^=#'\"!<>]+=)[ \t]*[!%]")


@dataclass(frozen=True, slots=True)
class Piece:
    """A JSON string: its span, quotes included, and its text."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Cell:
    """A code cell. number: its position among the code cells, from 1. pieces: the strings of its
    source.

    opened: the offset after the list's bracket; None if the source is one string.
    """

    number: int
    pieces: tuple[Piece, ...]
    opened: int | None

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)


def code_cells(text: str) -> list[Cell]:
    """The code cells of a Python notebook in order; empty for another language.

    Raises SourceError, in one line, if the text is not JSON or not a notebook of format 4.
    """
    try:
        notebook = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SourceError(f"not a notebook: {one_line(error)}") from None
    if not isinstance(notebook, dict) or not isinstance(notebook.get("cells", []), list):
        raise SourceError("not a notebook: no list of cells")
    if notebook.get("nbformat") != FORMAT:
        found = notebook.get("nbformat")
        which = one_line(found) if isinstance(found, int | float | None) else "that is no number"
        raise SourceError(f"a notebook of format {which}; {FORMAT} is known")
    if not _is_python(notebook.get("metadata")):
        return []
    places = _sources(text)
    cells: list[Cell] = []
    for index, cell in enumerate(notebook.get("cells", [])):
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        opened, pieces = places.get(index, (None, []))
        source = cell.get("source", [])
        texts = [piece.text for piece in pieces]
        if texts != (source if isinstance(source, list) else [source]):
            raise SourceError(f"not a notebook: the source of cell {len(cells) + 1} is no text")
        cells.append(Cell(len(cells) + 1, tuple(pieces), opened))
    return cells


def is_python(text: str) -> bool:
    """Return whether a notebook's cells are Python. text: the notebook's JSON."""
    return _is_python(json.loads(text).get("metadata"))


def _is_python(metadata: object) -> bool:
    named = metadata if isinstance(metadata, dict) else {}
    for key, name in (("language_info", "name"), ("kernelspec", "language")):
        found = named.get(key)
        if isinstance(found, dict) and isinstance(found.get(name), str):
            return str(found[name]).lower() in ("python", "ipython")
    return True


def _sources(text: str) -> dict[int, tuple[int | None, list[Piece]]]:
    """Maps each cell to the offset after its source's bracket, if that is a list, and the source's
    strings.
    """
    found: dict[int, tuple[int | None, list[Piece]]] = {}
    for path, match in _values(text):
        match path:
            case ("cells", int(cell), "source"):
                if match[0] == "[":
                    found[cell] = (match.end(), [])
                elif match[0][0] == '"':
                    found[cell] = (None, [Piece(*match.span(), json.loads(match[0]))])
            case ("cells", int(cell), "source", int()):
                if match[0][0] == '"':
                    found[cell][1].append(Piece(*match.span(), json.loads(match[0])))
    return found


def _values(text: str) -> Iterator[tuple[tuple[str | int, ...], re.Match[str]]]:
    """The first token of every value of a valid JSON text, with the keys that lead to it."""
    path: list[str | int] = []
    names: list[bool] = []  # for each open bracket: an object, whose next string is a key
    waits_for_key = False
    for match in TOKEN.finditer(text):
        token = match[0]
        if token in "}]":
            path.pop()
            names.pop()
        elif token == ",":
            waits_for_key = names[-1]
            if not names[-1]:
                last = path[-1]
                assert isinstance(last, int)
                path[-1] = last + 1
        elif token == ":":
            continue
        elif waits_for_key:
            path[-1] = json.loads(token)
            waits_for_key = False
        else:
            yield tuple(path), match
            if token in "{[":
                names.append(token == "{")
                path.append(0 if token == "[" else "")
                waits_for_key = token == "{"
        if token in "}]":
            waits_for_key = False


def json_edits(text: str, cell: Cell, changes: Iterable[Edit]) -> list[Edit]:
    """Edits of the JSON text that make these changes of a cell's text.

    A line that is added or removed between two strings of a list is a string of its own. Raises
    SourceError if the edits would touch more than these changes.
    """
    edits = []
    inside: dict[int, list[Edit]] = {}
    for change in changes:
        index, offset = _find(cell, change)
        piece = cell.pieces[index]
        whole = (change.start - offset, change.end - offset) == (0, len(piece.text))
        if cell.opened is not None and change.start == change.end == offset:
            new = _string(change.replacement, text) + _between(text, cell)
            edits.append(Edit(piece.start, piece.start, new, True, -1))
        elif not change.replacement and whole and index + 1 < len(cell.pieces):
            edits.append(Edit(piece.start, cell.pieces[index + 1].start, "", True, 0))
        else:
            here = (change.start - offset, change.end - offset)
            inside.setdefault(index, []).append(Edit(*here, change.replacement, True, change.depth))
    for index, several in inside.items():
        piece = cell.pieces[index]
        if text[piece.start : piece.end] != _string(piece.text, text):
            raise SourceError(f"cell {cell.number} has unusual escapes; the notebook is left")
        new = _string(splice(piece.text, several), text)
        edits.append(Edit(piece.start, piece.end, new, True, 0))
    return edits


def _between(text: str, cell: Cell) -> str:
    """The JSON text between two strings of the cell's list."""
    if len(cell.pieces) > 1:
        return text[cell.pieces[0].end : cell.pieces[1].start]
    return "," + text[cell.opened : cell.pieces[0].start]


def _string(content: str, text: str) -> str:
    """A JSON string in this notebook's style."""
    return json.dumps(content, ensure_ascii=text.isascii())


def _find(cell: Cell, change: Edit) -> tuple[int, int]:
    """The string that contains a change, and where the string begins in the cell's text."""
    offset = 0
    for index, piece in enumerate(cell.pieces):
        if offset <= change.start < offset + len(piece.text) and change.end <= offset + len(
            piece.text
        ):
            return index, offset
        offset += len(piece.text)
    raise SourceError(f"cell {cell.number} is split within a line; the notebook is left")


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
        for _ in tokenize.generate_tokens(io.StringIO(text).readline):
            pass
    except tokenize.TokenError:
        return False
    except SyntaxError:
        return True
    return True


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
