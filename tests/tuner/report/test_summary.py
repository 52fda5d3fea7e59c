"""The sentences and numbers that both forms of a report share."""

from dataclasses import replace

import msgspec
import pytest

from mixpert_py.tuner.records import Reason
from mixpert_py.tuner.report.record import Record, ValueEntry, VerificationEntry
from mixpert_py.tuner.report.summary import (
    COLORS,
    MEANING,
    Program,
    allowed,
    chosen,
    levels,
    reached,
    rows,
    size,
    speedup,
    times,
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
    seconds=2.0,
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


def test_times_are_those_of_fresh_processes() -> None:
    record = small()
    assert times(record) == (record.time_before, record.time_after)
    verified = changed(record, verification=FRESH)
    assert (times(verified), speedup(verified), reached(verified)) == ((8.0, 2.0), 4.0, 2e-5)
    assert times(changed(verified, interrupted=True)) == times(record)
    assert times(changed(verified, unit="products")) == times(record)
    assert speedup(not_finite()) is None


def test_a_reverted_plan_is_the_start() -> None:
    start = dict.fromkeys((A, B, C), "native")
    record = changed(small(), reverted=True, schemes=start, verification=FRESH)
    assert (speedup(record), reached(record)) == (1.0, 0.0)
    assert chosen(record) is record.trials[0]
    found = rows(record, Program("m.py"))
    assert {row.level for row in found} == {"native"}
    assert all(row.time_after == row.entry.time_before for row in found)
    assert "no faster in fresh processes" in verdict(record, found)


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (
            changed(small(), verification=FRESH),
            "2 of 3 products lowered. Times are measured, in fresh processes",
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
    assert (size(record, 2.5e-5), allowed(record)) == ("2.5e-05", "of 1.0e-04 allowed")
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
        "y: max error 5.0e-04 of 1.0e-03 allowed",
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
