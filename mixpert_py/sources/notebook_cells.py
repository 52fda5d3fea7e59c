"""Code cells of a notebook, with the places of their text in the JSON; all else stays as it is."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from mixpert_py.errors import SourceError, one_line

FORMAT = 4
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+')


@dataclass(frozen=True, slots=True)
class Piece:
    """One JSON string: its span, quotes included, and what it says."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Cell:
    """A code cell. number: among the code cells, from 1. pieces: the strings of its source.

    opened: the offset behind the list's bracket; None where the source is one string.
    """

    number: int
    pieces: tuple[Piece, ...]
    opened: int | None

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)


def code_cells(text: str) -> list[Cell]:
    """The code cells of a Python notebook in their order; of another language, none.

    Raises SourceError, in one line, where the text is no JSON or no notebook of format 4.
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
        said = [piece.text for piece in pieces]
        if said != (source if isinstance(source, list) else [source]):
            raise SourceError(f"not a notebook: the source of cell {len(cells) + 1} is no text")
        cells.append(Cell(len(cells) + 1, tuple(pieces), opened))
    return cells


def _is_python(metadata: object) -> bool:
    named = metadata if isinstance(metadata, dict) else {}
    for key, name in (("language_info", "name"), ("kernelspec", "language")):
        found = named.get(key)
        if isinstance(found, dict) and isinstance(found.get(name), str):
            return str(found[name]).lower() in ("python", "ipython")
    return True


def _sources(text: str) -> dict[int, tuple[int | None, list[Piece]]]:
    """For each cell its source: where a list opens, and the strings of it."""
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
