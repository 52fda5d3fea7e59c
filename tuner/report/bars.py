"""Two bars on one scale, the time before and after, with a piece for every operator."""

from collections.abc import Sequence
from dataclasses import dataclass

from mixpert_py.tuner.report.record import Record
from mixpert_py.tuner.report.summary import Row, time_unit

# A smaller part of the longest bar, less than a pixel, may come from rounded times of products.
LEAST_REST = 1 / 700

Times = Sequence[tuple[Row, float, str]]


@dataclass(frozen=True, slots=True)
class Piece:
    """The time of one operator at one level, or, with neither, the time outside of products.

    part: its length, as a part of the longest bar. text: a description for people.
    """

    row: Row | None
    level: str
    part: float
    text: str


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar's pieces from left to right. total: the whole time as text, empty if unknown."""

    name: str
    pieces: tuple[Piece, ...]
    total: str


def bars(record: Record, rows: Sequence[Row]) -> list[Bar]:
    """Both bars; none where no time is known."""
    before = [(row, row.entry.time_before or 0.0, row.entry.before) for row in rows]
    after = [(row, row.time_after or 0.0, row.level) for row in rows]
    end = record.time_before if record.reverted else record.time_after
    longest = max(record.time_before or 0.0, end or 0.0, _sum(before), _sum(after))
    if not longest:
        return []
    return [
        _bar(record, "before", before, record.time_before, longest),
        _bar(record, "after", after, end, longest),
    ]


def _sum(times: Times) -> float:
    return sum(time for _, time, _ in times)


def _bar(record: Record, name: str, times: Times, total: float | None, longest: float) -> Bar:
    unit = time_unit(record)
    pieces = [
        Piece(
            row,
            level,
            time / longest,
            f"{row.number} {row.entry.expression}: {unit.quantity(time)}, {level}",
        )
        for row, time, level in times
        if time > 0
    ]
    rest = (total or 0.0) - _sum(times)
    if rest / longest > LEAST_REST:
        text = f"outside of products: {unit.quantity(rest)}"
        pieces.append(Piece(None, "", rest / longest, text))
    end = "" if total is None else unit.quantity(total)
    return Bar(name, tuple(pieces), end)
