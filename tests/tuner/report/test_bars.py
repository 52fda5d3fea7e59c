"""Where the time goes."""

import msgspec
import pytest

from mixpert_py.tuner.report.bars import Bars, bars
from mixpert_py.tuner.report.record import Record
from mixpert_py.tuner.report.summary import Program, levels, rows
from tests.tuner.report.records import many, not_finite, small


def widths(record: Record) -> dict[str, list[float]]:
    """Colour → the widths of its pieces; "rest": what no product took."""
    picture, colors = bars(record, rows(record, Program("m.py"))), levels(record)
    assert picture is not None
    found: dict[str, list[float]] = {}
    for bar in picture.bars:
        for piece in bar.pieces:
            found.setdefault(f"level-{colors[piece.level]}", []).append(piece.width)
        if bar.rest:
            found.setdefault("rest", []).append(bar.rest.width)
    return found


def test_pieces_are_as_long_as_their_times() -> None:
    record = small()
    found = widths(record)
    whole = Bars.RIGHT - Bars.LEFT
    before = record.time_before or 0.0
    # All native before, and one operator still is; the program takes a second of its own.
    assert found["level-0"] == pytest.approx([t / before * whole for t in (3, 2, 1, 1)], rel=1e-4)
    assert found["rest"] == pytest.approx([whole / before] * 2, rel=1e-3)
    assert sum(map(sum, found.values())) == pytest.approx(
        whole * (1 + (record.time_after or 0.0) / before), rel=1e-4
    )


def test_a_reverted_plan_takes_as_long_as_before() -> None:
    record = small()
    start = dict.fromkeys(record.plan, "native")
    found = widths(msgspec.structs.replace(record, reverted=True, schemes=start))
    assert found.keys() == {"level-0", "rest"}
    assert sum(found["level-0"]) + sum(found["rest"]) == pytest.approx(
        2 * (Bars.RIGHT - Bars.LEFT), rel=1e-4
    )


def test_the_longest_bar_ends_with_the_picture() -> None:
    """Where that is the time of the products afterwards, too."""
    record = small()
    slower = [
        msgspec.structs.replace(entry, time_after=10 * (entry.time_before or 0.0))
        for entry in record.operators
    ]
    record = msgspec.structs.replace(record, operators=slower)
    picture = bars(record, rows(record, Program("m.py")))
    assert picture is not None
    ends = [piece.x + piece.width for bar in picture.bars for piece in bar.pieces]
    assert max(ends) == pytest.approx(Bars.RIGHT)


def test_unknown_times_leave_a_bar_empty() -> None:
    assert list(widths(not_finite())) == ["level-1"]


def test_without_an_operator_there_is_only_the_rest() -> None:
    assert not bars(many(0), [])
