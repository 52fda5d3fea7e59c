"""A tuning as text: a headline, a row for every operator, and a row for every plan that ran."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mixpert_py.tuner.records import Reason
from mixpert_py.tuner.report.fitted import CALLERS, EXPRESSION, Column, fitted
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
