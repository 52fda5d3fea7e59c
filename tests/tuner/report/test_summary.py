"""The sentences and numbers that both forms of a report share."""

import msgspec
import pytest

from mixpert_py.tuner.records import Reason
from mixpert_py.tuner.report.markdown import markdown
from mixpert_py.tuner.report.page import page
from mixpert_py.tuner.report.record import Gain, Record, VerificationEntry
from mixpert_py.tuner.report.summary import (
    COLORS,
    MEANING,
    Program,
    levels,
    rows,
    visible,
)
from tests.tuner.report.records import A, B, C, many, small

FRESH = VerificationEntry(
    error=2e-5,
    worst="x",
    native_seconds=8.0,
    spread=0.1,
    native_lowered=5.0,
    lowered=1.0,
)


def changed(record: Record, **values: object) -> Record:
    return msgspec.structs.replace(record, **values)


def test_every_reason_has_a_meaning() -> None:
    assert set(MEANING) == set(Reason)


def test_rows_have_the_numbers_of_the_graph() -> None:
    found = rows(small(), Program("m.py", numbers={A: 4, C: 2}))
    assert {row.entry.id: row.number for row in found} == {A: 4, C: 2, B: 5}


GAIN = Gain(before=2.0, after=1.6, times=1.25, least=1.2, most=1.3, verdict="faster")


@pytest.mark.parametrize(
    ("gain", "text", "card"),
    [
        (GAIN, "2.00 → 1.60 s (1.25× as fast, 1.20 to 1.30)", "1.25×"),
        (Gain(before=2.0, after=2.0, verdict="cannot tell"), "2.00 s, no measurable gain", None),
        (Gain(before=2.0, after=2.0, verdict="not faster"), "2.00 s, no measurable gain", None),
        (Gain(before=2.0, after=2.0), "2.00 s", "–"),
        (Gain(), "unknown", "–"),
    ],
)
def test_every_form_shows_the_same_gain(gain: Gain, text: str, card: str | None) -> None:
    record = changed(small(), gain=gain, verification=FRESH)
    program = Program("m.py")
    assert f"\n- Time: {text}\n" in markdown(record, program)
    shown = page(record, program)
    assert f"<strong>{card or 'No measurable gain'}</strong>" in shown
    assert shown.count("× as fast") == 0
    assert ("<strong>1.60 <small>s" in shown) == (gain is GAIN)


def test_levels_are_coloured_from_most_to_least_accurate() -> None:
    assert levels(small()) == {"native": 0, "int8x6": 1, "int8x3": COLORS}
    assert levels(many(0)) == {"native": 0}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31m", r"\x1b[31m"),
        ("a\u202eb", r"a\u202eb"),
        ("\udc80", r"\udc80"),
        ("\tü\n", "\tü\n"),
    ],
)
def test_what_cannot_be_seen_is_shown(text: str, shown: str) -> None:
    assert visible(text) == shown
    visible(text).encode()
