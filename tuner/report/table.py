"""Tables that fit a terminal by leaving columns out, not by cutting what stands in them.

A tuning as text is made of them: a headline, a row for every operator, and a row for every plan.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len, chop_cells
from rich.console import Group, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from mixpert_py.tuner.records import Reason
from mixpert_py.tuner.report.record import OperatorEntry, Record
from mixpert_py.tuner.report.summary import (
    MEANING,
    brief,
    callers_text,
    chosen,
    error_name,
    headline,
    time_unit,
    trial_error,
    why,
)
from mixpert_py.tuner.report.unit import PRODUCTS, Unit, error_text

GAP = 2  # blanks between columns
LEAST = 12  # characters that a column of words keeps
EXPRESSION = 20  # that a column of expressions keeps
CALLERS = 16  # that a column of lines with numbers of calls keeps
# Cells are broken behind a piece. A number in parentheses, such as how often, stays in one.
PIECE = re.compile(r"(?:\(\d+\)|[^\s(,])*(?:[(,]+\s*|\s+|$)")


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
            blanks = piece[len(piece.rstrip()) :]
            *full, end = chop_cells(piece.rstrip(), width)
            yield from full
            piece = end + blanks
        line += piece
    yield line.rstrip()


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


def summary(record: Record, width: int) -> Group:
    """Headline, operators and what their reasons mean; readable from 60 columns up."""
    parts: list[RenderableType] = [Text(headline(record))]
    if record.operators:
        reasons = dict.fromkeys(entry.reason for entry in record.operators)
        parts += ["", operators(record, width), ""]
        parts += [Text(f"{reason}: {MEANING[reason]}") for reason in reasons if reason in MEANING]
    return Group(*parts)


def operators(record: Record, width: int) -> Table:
    """The table of operators, longest first, in at most `width` characters.

    Where all operators start from the same level, the header names it, and a row only where its
    operator ended.
    """
    entries = record.operators
    unit = time_unit(record, [entry.time_before for entry in entries])
    places = {entry.id: entry.place for entry in entries}
    called = any(entry.callers for entry in entries)
    starts = {entry.before for entry in entries}
    columns = (
        Column("site", drop=4),
        Column("line", right=not any(entry.path for entry in entries)),
        Column("expression", wraps=True, least=EXPRESSION),
        *[Column("called from", wraps=True, least=CALLERS)] * called,
        Column("% of\ntime", right=True, drop=3),
        Column(f"level\n{min(starts)} →" if len(starts) == 1 else "level"),
        Column("error", right=True, drop=1),
        Column(unit.name if unit is PRODUCTS else f"time, {unit.name}", right=True, drop=2),
        Column("why it\nstopped", wraps=True),
    )
    rows = []
    for entry in entries:
        is_measured = entry.reason != Reason.ELSEWHERE
        row = (
            _function(entry.id),
            entry.place,
            entry.expression,
            *[callers_text(entry.callers)] * called,
            f"{entry.share or 0.0:.0%}".rstrip("%") if is_measured else "–",
            entry.after if len(starts) == 1 else _step(entry.before, entry.after),
            error_text(entry.local_error),
            _times(entry, unit) if is_measured else "–",
            why(entry, places),
        )
        rows.append(row)
    return fitted(columns, rows, width)


def trials(record: Record, width: int) -> Table:
    """The table of the plans in the order in which they ran."""
    unit, best = time_unit(record), chosen(record)
    places = {entry.id: entry.place for entry in record.operators}
    columns = (
        Column("plan", right=True),
        Column("what changed, by line", wraps=True),
        Column(f"time, {unit.name}", right=True, drop=1),
        Column(error_name(record), right=True),
        Column("what became of it", wraps=True, least=32),
    )
    rows = []
    for number, trial in enumerate(record.trials, 1):
        changes = (f"{places.get(site, '?')}: {level}" for site, level in trial.changed.items())
        result = trial.reason if number > 1 else "start"
        result += f": {brief(trial.problem)}" if trial.problem else ""
        time = unit.number(None if trial.problem else trial.time)
        changed, error = ", ".join(changes) or "nothing", trial_error(record, trial)
        rows.append((str(number), changed, time, error, result + ", chosen" * (trial is best)))
    return fitted(columns, rows, width)


def _function(site: str) -> str:
    """The function of a site, by the site's id."""
    module, _, rest = site.partition(":")
    return rest.partition("/")[0] or module


def _step(before: str, after: str) -> str:
    return after if before == after else f"{before} → {after}"


def _times(entry: OperatorEntry, unit: Unit) -> str:
    before = unit.number(entry.time_before)
    return before if entry.before == entry.after else f"{before} → {unit.number(entry.time_after)}"
