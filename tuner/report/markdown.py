"""A tuning as Markdown: the text of the page without its pictures."""

import re
from collections.abc import Iterable, Iterator, Sequence

from mixpert_py.tuner.report import operands
from mixpert_py.tuner.report.record import Record
from mixpert_py.tuner.report.summary import (
    Program,
    Row,
    allowed,
    brief,
    callers_text,
    chosen,
    error_name,
    gain_text,
    reached,
    rows,
    size,
    time_unit,
    trial_error,
    tuning_facts,
    verdict,
    visible,
    why,
)
from mixpert_py.tuner.report.unit import Unit, error_text

SPECIAL = re.compile(r"([\\`*_\[\]<>&#|~])")


def markdown(record: Record, program: Program) -> str:
    """Headline, operators, trials and origin. Texts of the program are escaped."""
    return "\n".join(_lines(record, program)) + "\n"


def _lines(record: Record, program: Program) -> Iterator[str]:
    found = rows(record, program)
    unit = time_unit(record)
    yield f"# {_plain(program.name or 'A tuning')}"
    yield ""
    yield verdict(record, found)
    yield ""
    yield f"- Time: {gain_text(record.gain, unit)}"
    yield f"- Error: {size(record, reached(record))} {allowed(record)}"
    yield from (f"- {name}: {_code(value)}" for name, value in tuning_facts(record))
    yield from (f"\n> {_plain(note)}" for note in program.notes)
    yield "\n## Products\n"
    yield from _operators(found, time_unit(record, [row.entry.time_before for row in found]))
    if sampled := operands.sampled_rows(found):
        yield "\n## Operands\n"
        yield from _operands(sampled)
        yield f"\n{operands.explanation(sampled)}"
    yield "\n## Plans, in the order they ran\n"
    yield from _trials(record, found, unit)


def _operators(found: Sequence[Row], unit: Unit) -> Iterator[str]:
    called = any(row.entry.callers for row in found)
    names = ("no.", "line", "product", "of the time", "level", "its error", f"time, {unit.name}")
    last = ("why no lower", *["called from"] * called)
    cells = []
    for row in found:
        entry = row.entry
        level, time = row.level, unit.number(entry.time_before)
        if row.level != entry.before:
            level = f"{entry.before} → {level}"
            time = f"{time} → {unit.number(row.time_after)}"
        cells.append(
            (
                str(row.number),
                entry.place,
                _code(entry.expression),
                f"{entry.share or 0.0:.1%}",
                _plain(level),
                error_text(entry.local_errors.get(row.level)),
                time,
                _plain(why(row, found)),
                *[_plain(callers_text(row.entry.callers))] * called,
            )
        )
    yield from _table((*names, *last), cells, right=(0, 1, 3, 5, 6))


def _operands(found: Sequence[Row]) -> Iterator[str]:
    columns = operands.names(found)
    cells = [
        (
            str(row.number),
            _code(row.entry.expression),
            *(text for text, _ in operands.cells(row.entry, found)),
        )
        for row in found
    ]
    right = (0, *range(2, 2 + len(columns)))
    yield from _table(("no.", "product", *columns), cells, right=right)


def _trials(record: Record, found: Sequence[Row], unit: Unit) -> Iterator[str]:
    names = ("no.", "what changed", f"time, {unit.name}", error_name(record), "what became of it")
    numbers = {row.entry.id: row.number for row in found}
    best = chosen(record)
    cells = []
    for at, trial in enumerate(record.trials):
        changed = ", ".join(f"{numbers.get(s, '?')}: {level}" for s, level in trial.changed.items())
        result = trial.reason if at else "start"
        if trial.problem:
            result = f"{result}: {brief(trial.problem)}"
        cells.append(
            (
                str(at + 1),
                _plain(changed or "nothing"),
                unit.number(None if trial.problem else trial.time),
                trial_error(record, trial),
                f"{_plain(result)}{', **chosen**' if trial is best else ''}",
            )
        )
    yield from _table(names, cells, right=(0, 2, 3))


def _table(
    names: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int]
) -> Iterator[str]:
    yield f"| {' | '.join(names)} |"
    yield f"|{'|'.join('--:' if at in right else ':--' for at in range(len(names)))}|"
    yield from (f"| {' | '.join(row)} |" for row in rows)


def _plain(text: str) -> str:
    """A text that Markdown shows as it stands, on one line."""
    return SPECIAL.sub(r"\\\1", visible(" ".join(text.split())))


def _code(text: str) -> str:
    """A piece of code as Markdown, on one line; its fence is longer than any in it."""
    text = visible(" ".join(text.split())).replace("|", "\\|")
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    gap = " " if "`" in text else ""
    return f"{fence}{gap}{text}{gap}{fence}"
