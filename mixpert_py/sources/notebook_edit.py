"""Edits of a cell's text become edits of the JSON text that it is written in."""

import json
from collections.abc import Iterable

from mixpert_py.errors import SourceError
from mixpert_py.passes.edits import Edit, splice
from mixpert_py.sources.notebook_cells import Cell


def json_edits(text: str, cell: Cell, changes: Iterable[Edit]) -> list[Edit]:
    """The same changes in the JSON text. Raises SourceError where they would touch more than that.

    A line that comes or goes between two strings of a list is a string of its own.
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
    """What stands between two strings of the cell's list."""
    if len(cell.pieces) > 1:
        return text[cell.pieces[0].end : cell.pieces[1].start]
    return "," + text[cell.opened : cell.pieces[0].start]


def _string(said: str, text: str) -> str:
    """A string as this notebook writes them."""
    return json.dumps(said, ensure_ascii=text.isascii())


def _find(cell: Cell, change: Edit) -> tuple[int, int]:
    """The string that a change lies in, and where that begins in the cell's text."""
    offset = 0
    for index, piece in enumerate(cell.pieces):
        if offset <= change.start < offset + len(piece.text) and change.end <= offset + len(
            piece.text
        ):
            return index, offset
        offset += len(piece.text)
    raise SourceError(f"cell {cell.number} is split within a line; the notebook is left")
