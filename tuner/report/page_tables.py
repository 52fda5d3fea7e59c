"""The page's tables: the operators, and the plans in the order that they ran."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from mixpert_py.tuner.records import Reason
from mixpert_py.tuner.report import operands
from mixpert_py.tuner.report.html import EMPTY, Html, el, join
from mixpert_py.tuner.report.record import Record, TrialEntry
from mixpert_py.tuner.report.summary import (
    MEANING,
    Row,
    brief,
    chosen,
    counted,
    error_name,
    number,
    time_unit,
    trial_error,
    why,
)
from mixpert_py.tuner.report.unit import Unit, clock_unit, error_text

TRIALS_SHOWN = 60
CHANGES_SHOWN = 3

Colors = Mapping[str, int]


def legend(found: Sequence[Row], colors: Colors) -> Html:
    """The levels that the operators have, or had at the start."""
    used = {row.level for row in found} | {row.entry.before for row in found}
    chips = (_chip(level, colors) for level in colors if level in used)
    return el("p", "Levels, most accurate first:", *chips, class_="legend")


def operators_table(record: Record, found: Sequence[Row], colors: Colors) -> Html:
    """A row for every operator, longest first."""
    unit = time_unit(record)
    if record.unit == "seconds":
        unit = clock_unit(row.entry.time_before or 0.0 for row in found)
    names = ("no.", "line", "product", "of the time", "level", "its error", f"time, {unit.name}")
    lines = [_operator(row, found, colors, unit) for row in found]
    return _table((*names, "why no lower"), lines, right=(0, 1, 3, 5, 6))


def _operator(row: Row, found: Sequence[Row], colors: Colors, unit: Unit) -> Html:
    entry = row.entry
    share = entry.share or 0.0
    error = entry.local_errors.get(row.level)
    level, time = _chip(row.level, colors), number(entry.time_before, unit)
    if row.level != entry.before:
        level = join(_chip(entry.before, colors), " → ", level)
        time = f"{time} → {number(row.time_after, unit)}"
    calls = [" × ".join(map(str, entry.shapes[0]))] if entry.shapes else []
    if entry.shapes[1:]:
        calls.append(counted(len(entry.shapes) - 1, "more shape"))
    calls.append(counted(entry.calls, "call"))
    return el(
        "tr",
        _numeric(el("a", str(row.number), href=f"#source-{row.number}"), row.number),
        _numeric(str(entry.line), entry.line),
        el("td", el("code", entry.expression, title=entry.id), el("small", ", ".join(calls))),
        _numeric(
            join(f"{share:.1%}", el("span", class_="part", style=f"--part:{min(share, 1.0):.4f}")),
            share,
        ),
        el("td", level, class_="steps"),
        _numeric(error_text(error), error),
        _numeric(time, entry.time_before),
        el("td", why(row, found)),
        id=f"op-{row.number}",
        data_op=row.number,
    )


def operands_table(found: Sequence[Row]) -> Html:
    """A row for every operator of which the profile looked into calls."""
    lines = [
        el(
            "tr",
            _numeric(str(row.number), row.number),
            el("td", el("code", row.entry.expression)),
            *(_numeric(text, value) for text, value in operands.cells(row.entry, found)),
            data_op=row.number,
        )
        for row in found
    ]
    columns = operands.names(found)
    return _table(("no.", "product", *columns), lines, right=(0, *range(2, 2 + len(columns))))


def trials_tables(record: Record, found: Sequence[Row], colors: Colors) -> Iterator[Html]:
    """A row for every plan; where they are many, most of them folded away."""
    unit = time_unit(record)
    of = {row.entry.id: row for row in found}
    best = chosen(record)
    lines = [
        _trial(at, record, of, colors, unit, trial is best)
        for at, trial in enumerate(record.trials)
    ]
    names = ("no.", "what changed", f"time, {unit.name}", error_name(record), "what became of it")
    yield el("div", _table(names, lines[:TRIALS_SHOWN], right=(0, 2, 3)), class_="scroll")
    if rest := lines[TRIALS_SHOWN:]:
        more = el("summary", counted(len(rest), "more plan"))
        yield el("details", more, el("div", _table(names, rest, right=(0, 2, 3)), class_="scroll"))
    yield meanings(trial.reason for trial in record.trials[1:])


def _trial(
    at: int, record: Record, of: Mapping[str, Row], colors: Colors, unit: Unit, is_best: bool
) -> Html:
    trial = record.trials[at]
    badge = el("span", "chosen", class_="badge") if is_best else EMPTY
    time = None if trial.problem else trial.time
    return el(
        "tr",
        _numeric(str(at + 1), at),
        el("td", *_changes(trial, of, colors)),
        _numeric(number(time, unit), time),
        _numeric(trial_error(record, trial), trial.error),
        el("td", trial.reason if at else "start", badge, _problem(trial.problem or "")),
        id=f"trial-{at + 1}",
        data_trial=at + 1,
        data_ops=" ".join(str(of[site].number) for site in trial.changed if site in of),
        class_="kept" if trial.reason == Reason.KEPT else "refused",
    )


def _changes(trial: TrialEntry, of: Mapping[str, Row], colors: Colors) -> Iterator[Html]:
    """The operators that a plan changed, by number and level; many of them folded."""
    if not trial.changed:
        yield join("nothing")
    changes = [
        el("span", _name(of.get(site)), " ", _chip(level, colors), class_="change")
        for site, level in trial.changed.items()
    ]
    yield from changes[:CHANGES_SHOWN]
    if rest := changes[CHANGES_SHOWN:]:
        yield el("details", el("summary", f"and {len(rest)} more"), *rest)


def _name(row: Row | None) -> Html:
    if row is None:
        return join("?")
    href, title = f"#op-{row.number}", row.entry.expression
    return el("a", str(row.number), href=href, title=title, data_op=row.number)


def _problem(problem: str) -> Html:
    """Its last line, and all of it where there is more."""
    short = brief(problem)
    if short == problem.strip():
        return el("small", short) if short else EMPTY
    return el("details", el("summary", short), el("pre", problem))


def meanings(reasons: Iterable[str]) -> Html:
    """What the reasons that occur mean."""
    occurring = set(reasons)
    used = [reason for reason in MEANING if reason in occurring]
    if not used:
        return EMPTY
    terms = (join(el("dt", reason), el("dd", MEANING[reason])) for reason in used)
    return el("details", el("summary", "What the reasons mean"), el("dl", *terms))


def _chip(level: str, colors: Colors) -> Html:
    return el("span", level, class_=f"chip level-{colors[level]}")


def _numeric(content: str, value: float | None) -> Html:
    """A cell that is sorted by its value; what is not known comes last."""
    return el("td", content, class_="right", data_value=value)


def _table(names: Sequence[str], lines: Sequence[Html], right: Sequence[int]) -> Html:
    heads = (
        el("th", name, scope="col", class_="right" if at in right else None)
        for at, name in enumerate(names)
    )
    return el("table", el("thead", el("tr", *heads)), el("tbody", *lines))
