"""The small table of what the operands are like."""

from typing import Any

from msgspec.structs import replace

from mixpert_py.tuner.report import operands
from mixpert_py.tuner.report.markdown import markdown
from mixpert_py.tuner.report.page import page
from mixpert_py.tuner.report.record import Record
from mixpert_py.tuner.report.summary import Program, rows
from tests.tuner.report.records import small


def profiled(**more: Any) -> Record:
    """The first operator sampled, the others not."""
    record = small()
    first, *others = record.operators
    seen = {"calls": 10**5, "sampled": 24, "spread": 3.14159, "cancellation": 21.4159}
    sampled = replace(first, **{"int8_loss": 0.54, **seen, **more})
    return replace(record, operators=[sampled, *others])


def test_only_sampled_operators_are_listed() -> None:
    found = operands.sampled_rows(rows(profiled(), Program("m.py")))
    assert len(found) == 1
    assert operands.names(found) == (
        "sampled calls",
        "exponent spread, bits",
        "int8 loss, bits",
        "cancellation",
    )
    assert operands.cells(found[0].entry, found) == (
        ("24 of 100000", 24.0),
        ("3.1", 3.14159),
        ("0.5", 0.54),
        ("21.4×", 21.4159),
    )
    for text in (markdown(profiled(), Program("")), page(profiled(), Program(""))):
        assert "24 of 100000" in text
        assert "moving" not in text.partition("Operands")[2]


def test_mixed_units_are_told_in_words() -> None:
    found = operands.sampled_rows(rows(profiled(int8_loss=16.75), Program("m.py")))
    assert operands.cells(found[0].entry, found)[2] == ("16.8, small entries count", 16.75)


def test_int8_is_not_told_where_only_casts_were_tried() -> None:
    found = operands.sampled_rows(rows(profiled(local_errors={"float32": 1e-7}), Program("m.py")))
    assert "int8 loss, bits" not in operands.names(found)
    assert "nt8" not in operands.explanation(found)
    assert len(operands.cells(found[0].entry, found)) == len(operands.names(found))


def test_moving_is_told_where_anything_moved() -> None:
    found = operands.sampled_rows(rows(profiled(transfer=0.0125), Program("m.py")))
    assert operands.names(found)[-1] == "moving, ms"
    assert operands.cells(found[0].entry, found)[-1] == ("12.5", 0.0125)


def test_without_a_profile_there_is_no_table() -> None:
    assert operands.sampled_rows(rows(small(), Program("m.py"))) == []
    assert "Operands" not in markdown(small(), Program(""))
    assert 'id="operands"' not in page(small(), Program(""))
    assert operands.cancellation_text(None) == "–"
    assert operands.cancellation_text(2.0**53) == "9.01e+15×"
