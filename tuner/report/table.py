"""Tables that fit a terminal by leaving columns out, not by cutting what stands in them.

A tuning as text is made of them: a headline, a row for every operator, and a row for every plan.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mixpert_py.tuner.records import Reason
from mixpert_py.tuner.report.record import Record
from mixpert_py.tuner.report.summary import (
    MEANING,
    PRODUCTS,
    brief,
    chosen,
    error_name,
    error_text,
    headline,
    time_unit,
    trial_error,
    why,
)

GAP = 2  # characters between columns
LEAST = 12  # characters that a column of words keeps
EXPRESSION = 20  # that a column of expressions keeps


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
    natural = [
        max(cell_len(line) for text in (column.name, *cells) for line in text.split("\n"))
        for column, *cells in zip(columns, *rows, strict=True)
    ]
    least = [min(c.least, n) if c.wraps else n for c, n in zip(columns, natural, strict=True)]
    shown = list(range(len(columns)))
    while (total := sum(least[at] + GAP for at in shown) - GAP) > width:
        droppable = [at for at in shown if columns[at].drop]
        if not droppable:
            break
        shown.remove(max(droppable, key=lambda at: columns[at].drop))
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    spare = width - total
    for at in shown:
        more = min(natural[at] - least[at], max(spare, 0))
        spare -= more
        table.add_column(
            columns[at].name,
            justify="right" if columns[at].right else "left",
            overflow="fold",
            width=least[at] + more if total <= width else None,
        )
    for row in rows:
        # Text, not str: brackets of an expression are not markup.
        table.add_row(*(Text(row[at]) for at in shown))
    return table


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
    starts = {entry.before for entry in entries}
    columns = (
        Column("site", drop=4),
        Column("line", right=not any(entry.path for entry in entries)),
        Column("expression", wraps=True, least=EXPRESSION),
        Column("% of\ntime", right=True, drop=3),
        Column(f"level\n{min(starts)} →" if len(starts) == 1 else "level"),
        Column("error", right=True, drop=1),
        Column(unit.name if unit is PRODUCTS else f"time, {unit.name}", right=True, drop=2),
        Column("why it\nstopped", wraps=True),
    )
    rows = []
    for entry in entries:
        level, time = entry.after, unit.number(entry.time_before)
        share = f"{entry.share or 0.0:.0%}".rstrip("%")
        if entry.before != entry.after:
            level = level if len(starts) == 1 else f"{entry.before} → {entry.after}"
            time = f"{time} → {unit.number(entry.time_after)}"
        if entry.reason == Reason.ELSEWHERE:
            share = time = "–"
        row = (
            _function(entry.id),
            entry.place,
            entry.expression,
            share,
            level,
            error_text(entry.local_error),
            time,
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
