"""Where the time goes, before and after: two bars on one scale, with a piece for every operator."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from mixpert_py.tuner.report.record import Record
from mixpert_py.tuner.report.summary import Row, number, quantity, time_unit
from mixpert_py.tuner.report.unit import Unit


@dataclass(frozen=True, slots=True)
class Piece:
    """The time of one operator, in the colour of its level."""

    number: int
    level: str
    x: float
    width: float
    text: str


@dataclass(frozen=True, slots=True)
class Rest:
    """The time outside of products."""

    x: float
    width: float
    text: str


@dataclass(frozen=True, slots=True)
class Total:
    """The whole time as a text: behind the bar, or below its end where there is no room."""

    x: float
    y: int
    anchor: str
    text: str


@dataclass(frozen=True, slots=True)
class Bar:
    """The pieces of one bar from left to right. rest, total: None where they are not known."""

    name: str
    y: int
    pieces: tuple[Piece, ...]
    rest: Rest | None
    total: Total | None


@dataclass(frozen=True, slots=True)
class Bars:
    """Both bars, and the sizes of the picture in pixels."""

    WIDTH: ClassVar[int] = 760
    HEIGHT: ClassVar[int] = 128
    LEFT: ClassVar[int] = 64
    RIGHT: ClassVar[int] = 752
    THICK: ClassVar[int] = 36
    WIDE_ENOUGH: ClassVar[float] = 20.0  # of a piece, for the operator's number inside

    bars: tuple[Bar, ...]


def bars(record: Record, rows: Sequence[Row]) -> Bars | None:
    """Both bars; None where no time is known. What no product took is the rest of a bar."""
    before = [(row, row.entry.time_before or 0.0, row.entry.before) for row in rows]
    after = [(row, row.time_after or 0.0, row.level) for row in rows]
    ends = (record.time_before, record.time_before if record.reverted else record.time_after)
    longest = max(*(end or 0.0 for end in ends), _sum(before), _sum(after))
    if not longest:
        return None
    scale, unit = (Bars.RIGHT - Bars.LEFT) / longest, time_unit(record)
    return Bars(
        (
            _bar("before", 8, before, ends[0], scale, unit),
            _bar("after", 70, after, ends[1], scale, unit),
        )
    )


def _sum(times: list[tuple[Row, float, str]]) -> float:
    return sum(time for _, time, _ in times)


def _bar(
    name: str,
    y: int,
    times: list[tuple[Row, float, str]],
    total: float | None,
    scale: float,
    unit: Unit,
) -> Bar:
    x, pieces = float(Bars.LEFT), []
    for row, time, level in times:
        if time > 0:
            text = f"{row.number} {row.entry.expression}: {quantity(time, unit)}, {level}"
            pieces.append(Piece(row.number, level, x, time * scale, text))
        x += time * scale
    rest = None
    outside = (total or 0.0) - _sum(times)
    # The products' times are sums of rounded ones: less than a pixel is no rest.
    if outside * scale > 1:
        rest = Rest(x, outside * scale, f"outside of products: {quantity(outside, unit)}")
        x += outside * scale
    end = None if total is None else _total(f"{number(total, unit)} {unit.name}", x, y)
    return Bar(name, y, tuple(pieces), rest, end)


def _total(text: str, x: float, y: int) -> Total:
    if x + 8 + 7 * len(text) < Bars.RIGHT:
        return Total(x + 8, y + 23, "start", text)
    return Total(Bars.RIGHT, y + Bars.THICK + 15, "end", text)
