"""Tables that fit a terminal by leaving columns out, not by cutting what stands in them."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len
from rich.console import JustifyMethod
from rich.table import Table
from rich.text import Text

GAP = 2  # blanks between columns
LEAST = 12  # characters that a column of words keeps


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its heading and how it gives way where a table is too wide.

    drop: 0 for a column that always stays; of the others the one with the largest number is left
    out first. wraps: whether its cells are words, which may take several lines.
    """

    name: str
    right: bool = False
    drop: int = 0
    wraps: bool = False


def fitted(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> Table:
    """A table of at most `width` characters a line.

    A cell of a column that stays is never cut: what is wider than the table is folded.
    """
    natural = [_natural(column, [row[at] for row in rows]) for at, column in enumerate(columns)]
    least = [min(LEAST, n) if c.wraps else n for c, n in zip(columns, natural, strict=True)]
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
        table.add_row(*(Text(row[at]) for at in shown))
    return table


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
