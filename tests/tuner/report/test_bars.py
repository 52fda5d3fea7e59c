"""The bars of times before and after."""

import msgspec
import pytest

from mixpert_py.tuner.report.bars import bars
from mixpert_py.tuner.report.record import Record
from mixpert_py.tuner.report.summary import Program, rows
from tests.tuner.report.records import many, not_finite, small


def parts(record: Record) -> dict[str, list[float]]:
    """Level → the lengths of its pieces, in parts of the longest bar; "": outside of products."""
    found: dict[str, list[float]] = {}
    for bar in bars(record, rows(record, Program("m.py"))):
        for piece in bar.pieces:
            assert (piece.row is None) == (not piece.level)
            found.setdefault(piece.level, []).append(piece.part)
    return found


def test_pieces_are_as_long_as_their_times() -> None:
    record = small()
    found = parts(record)
    before = record.time_before or 0.0
    # All native before, and one operator still is; the program takes a second of its own.
    assert found["native"] == pytest.approx([t / before for t in (3, 2, 1, 1)])
    assert found[""] == pytest.approx([1 / before] * 2)
    assert sum(map(sum, found.values())) == pytest.approx(1 + (record.time_after or 0.0) / before)
    assert [bar.total for bar in bars(record, rows(record, Program("m.py")))] == [
        "7.00 s",
        "4.50 s",
    ]


def test_a_reverted_plan_takes_as_long_as_before() -> None:
    record = small()
    start = dict.fromkeys(record.plan, "native")
    found = parts(msgspec.structs.replace(record, reverted=True, schemes=start))
    assert found.keys() == {"native", ""}
    assert sum(found["native"]) + sum(found[""]) == pytest.approx(2)


def test_the_longest_bar_ends_with_the_picture() -> None:
    """Where that is the time of the products afterwards, too."""
    record = small()
    slower = [
        msgspec.structs.replace(entry, time_after=10 * (entry.time_before or 0.0))
        for entry in record.operators
    ]
    record = msgspec.structs.replace(record, operators=slower)
    drawn = bars(record, rows(record, Program("m.py")))
    assert max(sum(piece.part for piece in bar.pieces) for bar in drawn) == pytest.approx(1)


def test_unknown_times_leave_a_bar_empty() -> None:
    record = not_finite()
    before, after = bars(record, rows(record, Program("m.py")))
    assert (before.pieces, before.total) == ((), "")
    assert [piece.level for piece in after.pieces] == ["int8x6"]


def test_without_an_operator_there_is_only_the_rest() -> None:
    assert bars(many(0), []) == []
