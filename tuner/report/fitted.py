"""Tables that fit a terminal by leaving columns out, not by cutting what stands in them."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len, chop_cells
from rich.console import JustifyMethod
from rich.table import Table
from rich.text import Text

GAP = 2  # blanks between columns
LEAST = 12  # characters that a column of words keeps
EXPRESSION = 20  # that a column of expressions keeps
CALLERS = 16  # that a column of lines with numbers of calls keeps
# Cells are broken behind one. A number in parentheses, such as how often, stays in one piece.
PIECE = re.compile(r"(?:\(\d+\)|[^\s(,])*(?:[(,]+\s*|\s+|$)")
FOLDER = re.compile(r"[^/]*/|[^/]+$")  # a path is broken behind one where it has to be


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its heading and how it gives way where a table is too wide.

    drop: 0 for a column that always stays; of the others the one with the largest number is left
    out first. wraps: whether its cells are words, which may take several lines of `least`
    characters.
    """

    name: str
    right: bool = False
    drop: int = 0
    wraps: bool = False
    least: int = LEAST


def fitted(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> Table:
    """A table of at most `width` characters a line.

    A cell of a column that stays is never cut: what is wider than the table is folded.
    """
    natural = [_natural(column, [row[at] for row in rows]) for at, column in enumerate(columns)]
    least = [min(c.least, n) if c.wraps else n for c, n in zip(columns, natural, strict=True)]
    shown = list(range(len(columns)))
    while _total(least, shown) > width:
        droppable = [at for at in shown if columns[at].drop]
        if not droppable:
            break
        shown.remove(max(droppable, key=lambda at: columns[at].drop))
    sizes = dict(zip(shown, _sizes(natural, least, shown, width), strict=True))
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for at in shown:
        justify: JustifyMethod = "right" if columns[at].right else "left"
        table.add_column(columns[at].name, justify=justify, overflow="fold", width=sizes[at])
    for row in rows:
        # Text, not str: brackets of an expression are not markup.
        table.add_row(*(Text("\n".join(_lines(row[at], sizes[at]))) for at in shown))
    return table


def _lines(text: str, width: int) -> Iterator[str]:
    """The text in lines of at most `width`, broken behind blanks, commas and opening parentheses.

    A piece without any of them that is wider than a line is broken anywhere.
    """
    line = ""
    for piece in PIECE.findall(text):
        if line and cell_len((line + piece).rstrip()) > width:
            yield line.rstrip()
            line = ""
        if cell_len((line + piece).rstrip()) > width:
            *full, piece = _pieces_of_path(piece, width)
            yield from full
        line += piece
    yield line.rstrip()


def _pieces_of_path(piece: str, width: int) -> Iterator[str]:
    """A piece in lines of at most `width`, broken behind slashes, and elsewhere if it has to be."""
    line = ""
    for part in FOLDER.findall(piece):
        if line and cell_len((line + part).rstrip()) > width:
            yield line
            line = ""
        blanks = part[len(part.rstrip()) :]
        *full, line = chop_cells(line + part.rstrip(), width) or [""]
        yield from full
        line += blanks
    yield line


def _natural(column: Column, cells: Sequence[str]) -> int:
    """The width of a column's widest line."""
    return max(cell_len(line) for cell in (column.name, *cells) for line in cell.split("\n"))


def _total(sizes: Sequence[int], shown: Sequence[int]) -> int:
    """The width of a table of these columns, with the gaps between them."""
    return sum(sizes[at] for at in shown) + GAP * (len(shown) - 1)


def _sizes(
    natural: Sequence[int], least: Sequence[int], shown: Sequence[int], width: int
) -> list[int]:
    """The widths of the columns: between the least and the natural ones, in their order.

    Where not even the least ones fit, the widest column gives way.
    """
    spare = width - _total(least, shown)
    sizes = []
    for at in shown:
        more = max(0, min(natural[at] - least[at], spare))
        sizes.append(least[at] + more)
        spare -= more
    if spare < 0:
        widest = sizes.index(max(sizes))
        sizes[widest] = max(1, sizes[widest] + spare)
    return sizes
