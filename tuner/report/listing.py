"""The program's source with its products marked; lines far from any product are folded away."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from mixpert_py.tuner.report.summary import Row

NEAR = 4  # lines above and below a product that are not folded
LEAST_FOLD = 4  # fewer lines are not folded

# Lines as Python's tokenizer counts them, with their ends: spans are offsets in this very text.
LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")

Mark = tuple[int, int, Row]


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a line. row: the operator that it belongs to, None outside of products."""

    text: str
    row: Row | None


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the source. begin: the operators that begin in it, by number."""

    number: int
    pieces: tuple[Piece, ...]
    begin: tuple[Row, ...]
    has_product: bool


def listing(
    text: str, spans: Mapping[str, tuple[int, int]], rows: Sequence[Row]
) -> list[tuple[list[Line], bool]]:
    """The lines in groups, each with whether it is folded away.

    spans: site → the offsets at which its product begins and ends in the text.
    """
    marks = [(*spans[row.entry.id], row) for row in rows if row.entry.id in spans]
    lines: list[Line] = []
    near: set[int] = set()
    for at, found in enumerate(LINE.finditer(text)):
        here = [mark for mark in marks if mark[0] < found.end() and found.start() < mark[1]]
        if here:
            near |= set(range(at - NEAR, at + NEAR + 1))
        begin = sorted((row for start, _, row in here if start >= found.start()), key=_number)
        pieces = tuple(_pieces(text, *found.span(), here))
        lines.append(Line(at + 1, pieces, tuple(begin), bool(here)))
    groups = groupby(lines, key=lambda line: line.number - 1 in near)
    return [
        (some, not is_near and len(some) >= LEAST_FOLD)
        for is_near, group in groups
        for some in [list(group)]
    ]


def _number(row: Row) -> int:
    return row.number


def _pieces(text: str, start: int, end: int, marks: Sequence[Mark]) -> Iterator[Piece]:
    """A line, cut where a product begins or ends; a piece belongs to the innermost product."""
    cuts = {start, end} | {min(max(cut, start), end) for mark in marks for cut in mark[:2]}
    for left, right in pairwise(sorted(cuts)):
        piece = text[left:right].rstrip("\r\n")
        around = [mark for mark in marks if mark[0] <= left and right <= mark[1]]
        if not around or not piece.strip():
            yield Piece(piece, None)
            continue
        _, _, row = min(around, key=lambda mark: mark[1] - mark[0])
        yield Piece(piece, row)
