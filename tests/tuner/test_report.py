"""An outcome as the table for people and as the record for programs."""

import io
import json
from dataclasses import replace
from math import inf, nan
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from mixpert_py.errors import MixPertError
from mixpert_py.tuner.records import Outcome, StopReason, Verdict
from mixpert_py.tuner.report import error_text, share_text, summary, trials
from mixpert_py.tuner.tuning_record import Gain, TuningRecord, read, record
from tests.tuner.table_program import TableProgram, tune

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
    """The outcome of a program of one operator."""
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
    """All reports, each under its title."""
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
