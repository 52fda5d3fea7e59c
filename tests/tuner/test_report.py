"""An outcome as the table for people and as the record for programs."""

import io
import json
from dataclasses import replace
from math import inf, nan

import msgspec
import pytest
from rich.console import Console

from mixpert_py.errors import MixPertError
from mixpert_py.tuner.records import Outcome, Reason, Verdict
from mixpert_py.tuner.report.record import Gain, read, record
from mixpert_py.tuner.report.summary import MEANING
from mixpert_py.tuner.report.table import Report
from mixpert_py.tuner.report.unit import PRODUCTS, clock_unit, error_text, share_text
from tests.tuner.table_program import TableProgram, tune

CPU = (("native",), ("float32",))
FACTOR, SOLVE, SHORT = (
    "chol:factor/matmul~8f3a#0",
    "chol:Solver.solve/dot~11ab#0",
    "chol:<module>/matmul~22cd#0",
)


@pytest.fixture
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


def printed(report: Report, width: int) -> str:
    """A report as far as its table."""
    text = printed_whole(report, width)
    return text.rpartition("\n\n")[0] if report.outcome.verdicts else text


def printed_whole(report: Report, width: int) -> str:
    """A report with the meanings of its words."""
    file = io.StringIO()
    Console(file=file, width=width, color_system=None).print(report)
    return file.getvalue()


def test_words_that_occur_are_explained(typical: Outcome) -> None:
    text = printed_whole(Report(typical), 300).rpartition("\n\n")[2]
    assert text.splitlines() == [f"{v.reason}: {MEANING[v.reason]}" for v in typical.verdicts]
    assert "too short" not in text


@pytest.mark.parametrize("width", [100, 120])
def test_table_shows_every_column(outcome: Outcome, width: int) -> None:
    gain = Gain(before=2.5, after=2.0, times=1.25, least=1.2, most=1.3, verdict="faster")
    text = printed(Report(outcome, gain=gain), width)
    assert all(len(line) <= width for line in text.splitlines())
    words = " ".join(text.split())
    assert words.startswith(
        "Program: 2.50 → 2.00 s (1.25× as fast, 1.20 to 1.30), frobenius error 7.0e-06 of "
    )
    assert " 1e-5 allowed, 4 plans tried." in words
    lines = [" ".join(x.split()) for x in text.splitlines()]
    table = lines.index("") + 1
    assert lines[table : table + 2] == [
        "% of level why it",
        "site line expression time native → error time, s stopped",
    ]
    factor, solve, short = (x for x in lines if x.startswith(("factor", "Solver", "<module>")))
    assert factor.startswith("factor 41 trailing[k:] - panel[k:] @")
    assert " 40 native – 1.00 raised for" in factor
    assert solve == "Solver.solve 42 np.dot(lower[[1]], x) 36 float32 7.0e-06 0.900 → 0.400 " + (
        "lowest rung"
    )
    assert short == "<module> 43 a @ a.T 0 native – 0.001 too short"


def test_a_busy_machine_does_not_change_the_parts_of_the_time(outcome: Outcome) -> None:
    """Once the program took 2.5 s, and twice as long when it was timed again."""
    gain = Gain(before=5.0, after=5.0, verdict="cannot tell")
    text = printed(Report(outcome, gain=gain), 120)
    assert text.startswith("No measurable gain. Program: 5.00 s, frobenius error")
    assert text.partition("\n")[2] == printed(Report(outcome), 120).partition("\n")[2]


@pytest.mark.parametrize("width", [60, 80])
def test_narrow_tables_leave_columns_out_and_cut_nothing(typical: Outcome, width: int) -> None:
    text = printed_whole(Report(typical), width)
    assert all(len(line.rstrip()) <= width for line in text.splitlines())
    assert "…" not in text
    table = text.partition("\n\n")[2].partition("\n\n")[0]
    assert "site" not in table
    assert ("time, s" in table) == (width == 80)
    for verdict in typical.verdicts:
        assert all(word in table for word in verdict.operator.expression.split())
        assert f" {verdict.operator.line}  " in table
        assert error_text(verdict.local_error) in table
    for word in ("lowest rung", "over budget", "took no call"):
        assert word in table
    assert "raised for" in table
    assert "line 144" in table


@pytest.fixture
def typical(outcome: Outcome) -> Outcome:
    """Four operators with expressions and times of the usual lengths, and the commonest reasons."""
    first = outcome.verdicts[0]
    said = (
        ("np.dot(hidden, weights[1].T) + bias", "mlp:<module>", 412.0, Reason.BOTTOM),
        ("trailing[k:] - panel[k:] @ panel[k:].T", "mlp:Net.forward", 91.2, Reason.OVER_BUDGET),
        ("(activations.T @ delta)[:, :-1]", "mlp:gradient", 40.0, Reason.NOT_TAKEN),
        ("x.T @ weights[0] - mean", "mlp:gradient", 0.5, Reason.RAISED),
    )
    verdicts = []
    for number, (expression, function, seconds, reason) in enumerate(said, 141):
        site = f"{function}/matmul~{number:x}#0"
        operator = replace(
            first.operator,
            id=site,
            expression=expression,
            line=number,
            local_errors={"float32": 5.4e-8, "mixpert-full": 5.4e-8},
        )
        after = "native" if reason in (Reason.NOT_TAKEN, Reason.RAISED) else "float32"
        detail = site if reason is Reason.RAISED else ""
        verdicts.append(Verdict(operator, "native", after, seconds, seconds / 2, reason, detail))
    return replace(outcome, verdicts=tuple(verdicts))


@pytest.mark.parametrize("lowest", ["float32", "mixpert-full"])
def test_a_typical_row_keeps_to_one_line(typical: Outcome, lowest: str) -> None:
    verdicts = tuple(
        replace(v, after=lowest) if v.after != v.before else v for v in typical.verdicts
    )
    lines = printed(Report(replace(typical, verdicts=verdicts)), 130).splitlines()
    rows = lines[lines.index("") + 4 :]
    assert len(rows) == len(verdicts)
    for row, verdict in zip(rows, verdicts, strict=True):
        assert verdict.operator.expression in row
        assert row.rstrip().endswith(("lowest rung", "over budget", "took no call", "line 144"))


def test_operators_with_different_starts_show_theirs(typical: Outcome) -> None:
    first, *others = typical.verdicts
    verdicts = (replace(first, before="int8x10"), *others)
    text = printed(Report(replace(typical, verdicts=verdicts)), 130)
    assert "int8x10 → float32" in text
    assert "native → float32" in text
    assert "native →\n" not in text
    assert len(text.splitlines()) == 5 + len(verdicts)


def test_a_site_keeps_to_one_line_where_there_is_room(outcome: Outcome) -> None:
    verdicts = tuple(
        replace(v, reason=Reason.OVER_BUDGET, detail="", after="x6") for v in outcome.verdicts
    )
    text = printed(Report(replace(outcome, verdicts=verdicts)), 120)
    assert len(text.splitlines()) == 5 + len(verdicts)


def test_brackets_of_an_expression_are_not_markup(outcome: Outcome) -> None:
    assert "lower[[1]]" in printed(Report(outcome), 140)
    assert "panel[k:].T" in printed(Report(outcome), 160)


def test_predicted_times_are_products(outcome: Outcome) -> None:
    text = printed(Report(outcome, criterion="mred", predicted=True), 100)
    assert text.startswith("Predicted: 2.50 → 2 products (1.25× fewer), mred error ")
    assert "error" in text
    assert "products" in text.splitlines()[3]
    assert "time," not in text


def test_a_native_time_that_the_model_does_not_know() -> None:
    program = TableProgram({FACTOR: {"native": inf, "float32": 6.0}}, {FACTOR: {"float32": 1e-7}})
    outcome = tune(program, program.operators(), [], CPU, 1e-5, noise=0.0)
    assert outcome.plan == {FACTOR: "float32"}
    words = " ".join(printed(Report(outcome, predicted=True), 120).split())
    assert words.startswith("Predicted: – → 6 products, frobenius error 1.0e-07 of ")
    assert " 0 float32 1.0e-07 – → 6 " in words


def test_nothing_lowered_is_said() -> None:
    program = TableProgram({FACTOR: {"native": 1.0, "float32": 2.0}}, {})
    outcome = tune(program, program.operators(), [], CPU, 1e-15, noise=0.0)
    text = printed(Report(outcome), 100)
    assert text.startswith("Every product stays as it was. Program: 1.00 s, frobenius error 0 of ")
    assert "not faster" in text


def test_over_budget_at_the_start_is_said() -> None:
    program = TableProgram({FACTOR: {"native": 1.0}}, {FACTOR: {"native": 1e-3}})
    outcome = tune(program, program.operators(), [], CPU, 1e-5, noise=0.0)
    assert printed(Report(outcome), 100).startswith("Over the budget before anything is lowered")


def test_interrupted_is_said(outcome: Outcome) -> None:
    text = printed(Report(replace(outcome, interrupted=True)), 100)
    assert text.startswith("Interrupted; the best plan so far. Program: ")


def test_a_failed_run_shows_its_problem(outcome: Outcome) -> None:
    said = "s.py: ended with exit code 1; its last lines:\nTraceback …\nValueError: no\n"
    failed = replace(outcome.verdicts[0], reason=Reason.FAILED, detail=said)
    text = printed(Report(replace(outcome, verdicts=(failed,))), 120)
    assert "failed: ValueError: no" in " ".join(text.split())


def test_sites_of_several_modules_show_them(outcome: Outcome) -> None:
    other = replace(outcome.verdicts[0].operator, id="lib:go/matmul~aa#0", path="lib.py")
    verdicts: tuple[Verdict, ...] = (
        *outcome.verdicts[1:],
        replace(outcome.verdicts[0], operator=other, reason=Reason.BOTTOM),
    )
    text = printed(Report(replace(outcome, verdicts=verdicts)), 120)
    assert f"lib.py:{other.line} " in text


def test_no_operator_prints_the_headline_only() -> None:
    outcome = tune(TableProgram({}, {}), [], [], CPU, 1e-5, noise=0.0)
    assert printed(Report(outcome), 120).endswith(" allowed, 1 plan tried.\n")


def test_record_round_trips_through_json(outcome: Outcome) -> None:
    entry = msgspec.to_builtins(record(outcome))
    assert json.loads(json.dumps(entry, allow_nan=False)) == entry
    assert read(entry, "x") == record(outcome)
    assert entry["plan"] == dict(outcome.plan)
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
    assert len(entry["trials"]) == len(outcome.trials)


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
    ("seconds", "text"),
    [(0.0, "0.000 s"), (2.0, "2.00 s"), (1.234, "1.23 s"), (0.0123, "12.3 ms"), (45e-6, "45.0 µs")],
)
def test_clock_units(seconds: float, text: str) -> None:
    assert clock_unit([seconds, nan]).quantity(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(6.0, "6"), (1234.0, "1,234"), (2.4e12, "2.40e+12"), (0.25, "0.250"), (inf, "–")],
)
def test_products(count: float, text: str) -> None:
    assert PRODUCTS.number(count) == text


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


def test_several_budgets_are_told_as_shares(outcome: Outcome) -> None:
    several = replace(outcome, budget=1.0, best=replace(outcome.best, error=0.4567))
    assert ", errors at most 45.7 % of their budgets, " in Report(several, None).headline().plain
