"""The small table of what the operands are like."""

from typing import Any

from msgspec.structs import replace

from mixpert_py.tuner.report import operands
from mixpert_py.tuner.report.page import page
from mixpert_py.tuner.report.record import Record
from tests.tuner.report.records import small


def profiled(**more: Any) -> Record:
    """The first operator sampled, the others not."""
    record = small()
    first, *others = record.operators
    seen = {"calls": 10**5, "sampled": 24, "spread": 3.14159, "cancellation": 21.4159}
    sampled = replace(first, **{"int8_loss": 0.54, **seen, **more})
    return replace(record, operators=[sampled, *others])


def columns(record: Record) -> dict[str, list[str]]:
    return operands.columns(operands.sampled(record.operators).values())


def test_only_sampled_operators_are_listed() -> None:
    assert list(operands.sampled(profiled().operators)) == [1]
    assert columns(profiled()) == {
        "sampled calls": ["24 of 100000"],
        "exponent spread, bits": ["3.1"],
        "int8 loss, bits": ["0.5"],
        "cancellation": ["21.4×"],
    }
    text = page(profiled())
    assert "24 of 100000" in text
    assert "moving" not in text.partition("Operands")[2]


def test_mixed_units_are_told_in_words() -> None:
    found = columns(profiled(int8_loss=16.75))
    assert found["int8 loss, bits"] == ["16.8, small entries count"]


def test_int8_is_not_told_where_only_casts_were_tried() -> None:
    record = profiled(local_errors={"float32": 1e-7})
    assert "int8 loss, bits" not in columns(record)
    assert "nt8" not in operands.explanation(operands.sampled(record.operators).values())


def test_moving_is_told_where_anything_moved() -> None:
    assert columns(profiled(transfer=0.0125))["moving, ms"] == ["12.5"]


def test_without_a_profile_there_is_no_table() -> None:
    assert operands.sampled(small().operators) == {}
    assert 'id="operands"' not in page(small())
    assert operands.cancellation_text(None) == "–"
    assert operands.cancellation_text(2.0**53) == "9.01e+15×"
