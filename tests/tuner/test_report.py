"""A tuning as a table, as sentences and as a record."""

import io
import json
from dataclasses import replace
from math import inf, isnan, nan
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from mixpert_py.errors import MixPertError, visible
from mixpert_py.tuner.records import (
    Measurement,
    Outcome,
    StopReason,
    Verdict,
    median_of,
    time_noise,
)
from mixpert_py.tuner.report import (
    MEANING,
    NO_GAIN,
    UNCLEAR,
    error_text,
    headline,
    share_text,
    summary,
    trials,
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
    read,
    record,
)
from tests.tuner.table_program import TableProgram, tune

LADDER = (("native",), ("int8x6",), ("int8x3",))
A, B, C = "m:f/matmul~a1#0", "m:f/matmul~b2#0", "m:g/dot~c3#0"


def small(budget: float = 1e-4, **options: Any) -> TuningRecord:
    """Three operators: one lowered twice, one once, one not at all because the program fails."""
    program = TableProgram(
        {
            A: {"native": 3.0, "int8x6": 2.0, "int8x3": 1.0},
            B: {"native": 2.0, "int8x6": 1.5, "int8x3": 1.0},
            C: {"native": 1.0, "int8x6": 0.5, "int8x3": 0.2},
        },
        {A: {"int8x6": 1e-7, "int8x3": 1e-5}, B: {"int8x6": 2e-7, "int8x3": 1e-3}},
        failing={C: "int8x6"},
        overhead=1.0,
    )
    search = {"search": "greedy", "noise": 0.0, **options}
    return record(tune(program, program.operators(), [(A, B)], LADDER, budget, **search))


def many(count: int) -> TuningRecord:
    """So many operators, all alike; none: a program without any."""
    sites = [f"m:f/matmul~{number:x}#0" for number in range(count)]
    program = TableProgram(
        {site: {"native": 1.0, "int8x6": 0.5, "int8x3": 0.2} for site in sites},
        {site: {"int8x6": 1e-8, "int8x3": 1e-7} for site in sites},
    )
    return record(tune(program, program.operators(), [], LADDER, 1e-4, noise=0.0))


CPU = (("native",), ("float32",))
FACTOR, SOLVE, SHORT = (
    "chol:factor/matmul~8f3a#0",
    "chol:Solver.solve/dot~11ab#0",
    "chol:<module>/matmul~22cd#0",
)
PRINTED = Path(__file__).with_name("report.txt")


def outcome() -> Outcome:
    """A predecessor raised, one operator lowered, one too short."""
    program = TableProgram(
        {
            FACTOR: {"native": 1.0, "float32": 0.6},
            SOLVE: {"native": 0.9, "float32": 0.4},
            SHORT: {"native": 0.001, "float32": 0.001},
        },
        {FACTOR: {"float32": 6e-6}, SOLVE: {"float32": 7e-6}},
        overhead=0.599,
    )
    expressions = ("trailing[k:] - panel[k:] @ panel[k:].T", "np.dot(lower[[1]], x)", "a @ a.T")
    operators = [
        replace(operator, expression=expression, line=40 + operator.line, shapes=((4, 5, 6),))
        for operator, expression in zip(program.operators(), expressions, strict=True)
    ]
    return tune(program, operators, [(FACTOR, SOLVE)], CPU, 1e-5, noise=0.002, search="greedy")


def typical() -> Outcome:
    """Four operators with expressions and times of the usual lengths, and the commonest reasons."""
    found = outcome()
    said = (
        ("np.dot(hidden, weights[1].T) + bias", "mlp:<module>", 412.0, StopReason.BOTTOM),
        ("trailing[k:] - panel[k:] @ panel[k:].T", "mlp:Net.forward", 91.2, StopReason.OVER_BUDGET),
        ("(activations.T @ delta)[:, :-1]", "mlp:gradient", 40.0, StopReason.NOT_TAKEN),
        ("x.T @ weights[0] - mean", "mlp:gradient", 0.5, StopReason.RAISED),
    )
    verdicts = []
    for number, (expression, function, seconds, reason) in enumerate(said, 141):
        site = f"{function}/matmul~{number:x}#0"
        operator = replace(
            found.verdicts[0].operator,
            id=site,
            expression=expression,
            line=number,
            local_errors={"float32": 5.4e-8, "mixpert-full": 5.4e-8},
        )
        after = "native" if reason in (StopReason.NOT_TAKEN, StopReason.RAISED) else "float32"
        detail = site if reason is StopReason.RAISED else ""
        verdicts.append(Verdict(operator, "native", after, seconds, seconds / 2, reason, detail))
    return replace(found, verdicts=tuple(verdicts))


def of_one(native: float, lowered: float, /, budget: float = 1e-5, **errors: float) -> Outcome:
    program = TableProgram({FACTOR: {"native": native, "float32": lowered}}, {FACTOR: errors})
    return tune(program, program.operators(), [], CPU, budget, noise=0.0)


def reports() -> dict[str, tuple[TuningRecord, int]]:
    """Title → the record of a tuning, and the width of its terminal."""
    common, usual = outcome(), typical()
    first, *others = usual.verdicts
    faster = Gain(before=2.5, after=2.0, times=1.25, least=1.2, most=1.3, verdict="faster")
    unclear = Gain(before=5.0, after=5.0, verdict="cannot tell")
    longest = [
        replace(v, after="mixpert-full") if v.after != v.before else v for v in usual.verdicts
    ]
    words = "s.py: ended with exit code 1; its last lines:\nTraceback …\nValueError: no\n"
    failed = replace(common.verdicts[0], reason=StopReason.FAILED, detail=words)
    library = replace(common.verdicts[0].operator, id="lib:go/matmul~aa#0", path="lib.py")
    imported = replace(common.verdicts[0], operator=library, reason=StopReason.BOTTOM, detail="")
    nothing = tune(TableProgram({}, {}), [], [], CPU, 1e-5, noise=0.0)
    shares = replace(common, budget=1.0, best=replace(common.best, error=0.4567))

    def gained(whole: Outcome, gain: Gain) -> TuningRecord:
        return msgspec.structs.replace(record(whole), gain=gain)

    def with_rows(whole: Outcome, *verdicts: Verdict) -> Outcome:
        return replace(whole, verdicts=verdicts)

    return {
        "faster": (gained(common, faster), 120),
        "faster, narrower": (gained(common, faster), 100),
        "no measurable gain": (gained(common, unclear), 120),
        "typical": (record(usual), 130),
        "typical, on 80 columns": (record(usual), 80),
        "typical, on 60 columns": (record(usual), 60),
        "the longest name of a level": (record(with_rows(usual, *longest)), 130),
        "different starts": (
            record(with_rows(usual, replace(first, before="int8x10"), *others)),
            130,
        ),
        "predicted": (record(common, criterion="mred", predicted=True), 100),
        "unknown native time": (record(of_one(inf, 6.0, float32=1e-7), predicted=True), 120),
        "nothing lowered": (record(of_one(1.0, 2.0, 1e-15)), 100),
        "over budget": (record(of_one(1.0, 2.0, native=1e-3)), 100),
        "interrupted": (record(replace(common, interrupted=True)), 100),
        "failed": (record(with_rows(common, failed)), 120),
        "several modules": (record(with_rows(common, *common.verdicts[1:], imported)), 120),
        "no operator": (record(nothing), 120),
        "several budgets": (record(shares, None), 120),
    }


def printed() -> str:
    file = io.StringIO()
    for title, (report, width) in reports().items():
        print(f"==== {title}", file=file)
        console = Console(file=file, width=width, color_system=None)
        console.print(summary(report, width))
        if title == "failed":
            console.print("", trials(report, width), sep="\n")
    return "".join(f"{line.rstrip()}\n" for line in file.getvalue().splitlines())


def test_the_printed_reports() -> None:
    """`python -m tests.tuner.test_report` writes the file anew."""
    assert printed().split("==== ") == PRINTED.read_text("utf-8").split("==== ")


def test_record_round_trips_through_json() -> None:
    found = outcome()
    entry = msgspec.to_builtins(record(found))
    assert json.loads(json.dumps(entry, allow_nan=False)) == entry
    assert read(entry, "x") == record(found)
    assert entry["plan"] == dict(found.plan)
    assert (entry["unit"], entry["criterion"], entry["budget"]) == ("seconds", "frobenius", 1e-5)
    assert (entry["gain"]["before"], entry["error"]) == (2.5, 7e-6)
    solve = entry["operators"][1]
    assert (solve["id"], solve["line"]) == (SOLVE, 42)
    assert (solve["before"], solve["after"]) == ("native", "float32")
    assert (solve["time_before"], solve["time_after"], solve["share"]) == (0.9, 0.4, 0.36)
    assert (solve["reason"], solve["local_error"]) == ("lowest rung", 7e-6)
    assert solve["shapes"] == [[4, 5, 6]]
    assert entry["operators"][0]["detail"] == SOLVE
    assert entry["trials"][-1]["changed"] == {FACTOR: "native", SOLVE: "float32"}
    assert entry["trials"][-1]["reason"] == "kept"
    assert len(entry["trials"]) == len(found.trials)


@pytest.mark.parametrize("error", [nan, inf])
def test_record_has_no_number_that_json_lacks(error: float) -> None:
    program = TableProgram(
        {"a": {"native": 3.0, "float32": 1.0}, "b": {"native": 2.0, "float32": 1.0}},
        {"a": {"float32": error}},
        failing={"b": "float32"},
    )
    outcome = tune(program, program.operators(), [], CPU, inf, noise=0.0)
    entry = msgspec.to_builtins(record(outcome, predicted=True))
    json.dumps(entry, allow_nan=False)
    assert entry["unit"] == "products"
    assert entry["budget"] is None
    assert entry["operators"][0]["local_errors"] == {"float32": None}
    assert entry["trials"][-1]["problem"] == "exit code 3"
    assert entry["trials"][-1]["gain"] is None


@pytest.mark.parametrize("entries", [None, 3, {}, {"unit": "hours"}])
def test_what_is_no_record_is_refused(entries: object) -> None:
    with pytest.raises(MixPertError, match=r"^x\.db: not the result of a tuning: .+$"):
        read(entries, "x.db")


@pytest.mark.parametrize(
    ("error", "text"), [(None, "–"), (0.0, "0"), (3.14e-7, "3.1e-07"), (nan, "not finite")]
)
def test_errors(error: float | None, text: str) -> None:
    assert error_text(error) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (None, "–"),
        (0.0, "0 %"),
        (0.2554, "25.5 %"),
        (12.0, "12 times"),
        (inf, "not finite"),
        (nan, "not finite"),
    ],
)
def test_shares(share: float | None, text: str) -> None:
    assert share_text(share) == text


if __name__ == "__main__":
    PRINTED.write_text(printed(), "utf-8")


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


def run(seconds: float, error: float = 0.0) -> Measurement:
    return Measurement(seconds, error, {"a": seconds / 2})


def test_middle_is_the_median_time_and_the_largest_error() -> None:
    runs = [run(3.0, 1e-6), run(9.0, 3e-6), run(1.0, 2e-6)]
    assert median_of(runs) == Measurement(3.0, 3e-6, {"a": 1.5})


def test_a_nan_is_the_largest_error() -> None:
    assert isnan(median_of([run(1.0, 1.0), run(1.0, nan), run(1.0, inf)]).error)


def test_a_site_that_ran_in_some_runs_only() -> None:
    runs = [run(1.0), run(1.0), Measurement(1.0, 0.0, {})]
    assert median_of(runs).site_seconds == {"a": 0.5}


def test_noise_grows_with_the_spread() -> None:
    narrow = time_noise([run(1.8), run(2.0), run(2.2)])["a"]
    wide = time_noise([run(1.6), run(2.0), run(2.4)])["a"]
    assert narrow == pytest.approx(3 * 1.4826 * 0.1)
    assert wide == pytest.approx(2 * narrow)
