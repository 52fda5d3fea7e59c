"""The sentences and numbers that both forms of a report share."""

from dataclasses import replace

import msgspec
import pytest

from mixpert_py.tuner.records import Reason
from mixpert_py.tuner.report.markdown import markdown
from mixpert_py.tuner.report.page import page
from mixpert_py.tuner.report.record import Gain, Record, ValueEntry, VerificationEntry
from mixpert_py.tuner.report.summary import (
    COLORS,
    MEANING,
    Program,
    allowed,
    levels,
    rows,
    size,
    tuning_facts,
    verdict,
    visible,
    why,
)
from tests.tuner.report.records import A, B, C, many, not_finite, small

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


def test_a_reverted_plan_says_so() -> None:
    record = changed(small(), reverted=True)
    assert "no faster in fresh processes" in verdict(record, rows(record, Program("m.py")))


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (
            changed(small(), verification=FRESH),
            "2 of 3 products lowered. Times are measured in fresh processes",
        ),
        (small(budget=0.0), "Every product stays as it was."),
        (changed(small(), interrupted=True), "Interrupted: this is the best plan so far"),
        (not_finite(), "1 of 1 product lowered. Times are predicted"),
        (many(0), "The program calls no matrix product."),
        (changed(small(), budget=-1.0), "Over the budget before anything is lowered."),
    ],
    ids=["lowered", "kept", "interrupted", "predicted", "no-product", "over-budget"],
)
def test_verdict(record: Record, said: str) -> None:
    assert verdict(record, rows(record, Program("m.py"))).startswith(said)


def test_levels_are_coloured_from_most_to_least_accurate() -> None:
    assert levels(small()) == {"native": 0, "int8x6": 1, "int8x3": COLORS}
    assert levels(many(0)) == {"native": 0}


def test_why_names_the_successor_and_ends_with_the_problem() -> None:
    found = rows(small(), Program("m.py", numbers={A: 1, B: 2, C: 3}))
    by_site = {row.entry.id: row for row in found}
    assert why(by_site[C], found) == "failed: exit code 3"

    def said(reason: str, detail: str) -> str:
        row = by_site[A]
        entry = msgspec.structs.replace(row.entry, reason=reason, detail=detail)
        return why(replace(row, entry=entry), found)

    assert said(Reason.RAISED, B) == "raised for a successor, number 2"
    assert said(Reason.FAILED, "Traceback:\n  x\nValueError: y\n") == "failed: ValueError: y"


def test_errors_of_several_budgets_are_shares() -> None:
    record = small()
    assert (size(record, 2.5e-5), allowed(record)) == ("2.5e-05", "of 1e-4 allowed")
    values = [
        ValueEntry(name="y", criterion="max", budget=1e-3, error=5e-4),
        ValueEntry(name="z", criterion="mred", budget=None, error=None),
    ]
    assert not [
        said for name, said in tuning_facts(changed(record, values=values)) if name == "Value"
    ]
    several = changed(record, criterion=None, budget=1.0, values=values)
    assert (size(several, 0.255), allowed(several)) == ("25.5 %", "of its budget")
    assert size(several, None) == "–"
    assert [said for name, said in tuning_facts(several) if name == "Value"] == [
        "y: max error 5.0e-04 of 1e-3 allowed",
        "z: mred error – of any allowed",
    ]
    assert "Error measure" not in dict(tuning_facts(several))


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


def test_where_nothing_has_an_error_no_value_has_the_largest() -> None:
    name, found = "Value with the largest error", msgspec.structs.replace(FRESH, worst="y")
    assert (name, "y") in tuning_facts(changed(small(), verification=found))
    exact = msgspec.structs.replace(found, error=0.0)
    assert name not in dict(tuning_facts(changed(small(), verification=exact)))
