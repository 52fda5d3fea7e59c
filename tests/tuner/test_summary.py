"""The sentences and numbers of a tuning."""

import msgspec
import pytest

from mixpert_py.errors import visible
from mixpert_py.tuner.records import StopReason
from mixpert_py.tuner.report import (
    MEANING,
    NO_GAIN,
    UNCLEAR,
    headline,
    value_line,
    verified,
    whole_program,
)
from mixpert_py.tuner.tuning_record import (
    Gain,
    InputEntry,
    TuningRecord,
    ValueEntry,
    VerificationEntry,
)
from tests.tuner.sample_records import many, small

FRESH = VerificationEntry(
    error=2e-5,
    worst="x",
    native_seconds=8.0,
    spread=0.1,
    native_lowered=5.0,
    lowered=1.0,
    least=0.15,
    most=0.25,
)


def changed(record: TuningRecord, **values: object) -> TuningRecord:
    return msgspec.structs.replace(record, **values)


def test_every_reason_has_a_meaning() -> None:
    assert set(MEANING) == set(StopReason)


GAIN = Gain(before=2.0, after=1.6, times=1.25, least=1.2, most=1.3, verdict="faster")


@pytest.mark.parametrize(
    ("gain", "text"),
    [
        (GAIN, "2.00 → 1.60 s (1.25× as fast, 1.20 to 1.30)"),
        (Gain(before=2.0, after=2.0, verdict="cannot tell"), "2.00 s, no measurable gain"),
        (Gain(before=2.0, after=2.0, verdict="not faster"), "2.00 s, no measurable gain"),
        (Gain(before=2.0, after=2.0), "2.00 s"),
        (Gain(), "unknown"),
    ],
)
def test_every_form_shows_the_same_gain(gain: Gain, text: str) -> None:
    record = changed(small(), gain=gain, verification=FRESH)
    assert f"Program: {text.removesuffix(NO_GAIN)}, frobenius" in headline(record)
    assert headline(record).count("No measurable gain. ") == (NO_GAIN in text)


def test_what_a_verification_showed() -> None:
    held = [InputEntry(arguments=f"--seed {at}", error=3e-5) for at in range(59)]
    values = [
        ValueEntry(name="y", criterion="max", budget=1e-3, error=5e-4),
        ValueEntry(name="z", criterion="mred", budget=None, error=None),
    ]
    record = changed(small(), verification=FRESH, gain=GAIN)
    times = "time in the lowered products 5.00 → 1.00 s."
    assert verified(record) == f"Verified in fresh processes: error 2.0e-05, {times}"
    unclear = verified(changed(record, unclear=True))
    assert unclear.endswith(UNCLEAR)
    assert "Pairs of runs show 15 % to 25 % of the native time there" in unclear
    several = changed(record, criterion=None, values=values, hold_outs=held, hold_out=0.3)
    several = changed(several, hold_out_rate=0.05)
    assert verified(several, "runs") == (
        "Verified in runs: errors at most 0.002 % of their budgets, on 59 other inputs at most "
        f"30 % (0 of 59 over: at most 5 % of such inputs, with 95 % confidence), {times}"
    )
    assert [*map(value_line, values)] == [
        "y: max error 5.0e-04 of 1e-3 allowed",
        "z: mred error – of any allowed",
    ]
    predicted = changed(record, unit="products")
    assert verified(predicted) == "Verified in fresh processes: error 2.0e-05."
    assert "was not verified" in verified(changed(record, interrupted=True))
    assert verified(changed(record, reverted=True)).endswith("showed no gain.")
    assert verified(changed(many(0), unclear=True)) == UNCLEAR
    assert verified(many(0)) == ""


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (1.0, ""),
        (
            1.9,
            " Whole runs vary by 200 ms, more than the gain: it is measured in the lowered "
            "products.",
        ),
    ],
)
def test_a_program_may_not_gain_what_its_products_do(after: float, said: str) -> None:
    assert whole_program(Gain(before=2.0, after=after), 0.2) == said


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
