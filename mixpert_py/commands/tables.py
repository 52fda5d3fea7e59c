"""Output of the commands for people: tables on stdout, progress on stderr."""

import io
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from mixpert_py.errors import counted, visible
from mixpert_py.runtime.gpu import device
from mixpert_py.runtime.reasons import MEANING as MEANING_OF_REASONS
from mixpert_py.runtime.reasons import Reason
from mixpert_py.sources import shown_path
from mixpert_py.tuner import report
from mixpert_py.tuner.prediction import ceiling, times_text
from mixpert_py.tuner.tuning_record import TuningRecord

if TYPE_CHECKING:
    from mixpert_py.tuning.estimate import Estimate, EstimatedProduct

ON_GPUS = ("int8", "crt", "fp16", "faithful", "mixpert")  # begin the names of their levels
SPREAD = "spread,\nbits"
SPREAD_MEANS = (
    "spread, bits: How many bits smaller entries are than the largest of their row, on average."
)
NARROWEST = 20  # characters
PAGE_WIDTH = 120
PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="color-scheme" content="light dark">
<title>A tuning</title>
</head>
<body>
<pre>{code}</pre>
</body>
</html>
"""
# Of the tables of `mixpert estimate`.
PLACE, HERE = 14, 20  # characters that columns of places, and of gains or reasons, keep
MOST_PRODUCTS = 4  # products; of more, those that take least are summed up
NEGLIGIBLE = 0.005  # share of the program's time below which a product is summed up, too
WORTH_NAMING = 0.01  # share of the products' time in those that were not measured

PREDICTED = (
    "GPUs are predicted, for operands that lie there, against the GPU's own native products; the "
    "rest of the program is assumed to keep its share of the time. Predictions ignore rows whose "
    "range is too wide for the level."
)
IN_LOOPS = "blas: NumPy makes these products in a loop; BLAS makes them in the same precision."
MIN_SPEEDUP = 1.02  # over native: a level with less is shown as "not faster"

Records = Sequence[dict[str, Any]]


class TableConsole(Console):
    """A console that prints texts as they are, without markup, and leaves it to its caller what a
    closed pipe means.

    Where the environment says COLUMNS=0, or another width that no terminal has, it has 80.
    """

    def __init__(
        self, stderr: bool = False, file: TextIO | None = None, *, record: bool = False
    ) -> None:
        super().__init__(
            stderr=stderr, file=file, record=record, markup=False, emoji=False, highlight=False
        )
        if self.width < NARROWEST:
            self.width = 80

    def on_broken_pipe(self) -> None:
        raise  # the BrokenPipeError that is being handled


@contextmanager
def progress(quiet: bool = False, verbose: bool = False) -> Iterator[Callable[[str], None]]:
    """A line on stderr while runs go on; yields the callback for a run that is about to start.

    verbose: a line for each run stays, on a terminal or not.
    """
    columns = (
        TextColumn("run {task.completed}: {task.description}", markup=False),
        BarColumn(24),  # pulses: how many runs the search will need is not known before
        TimeElapsedColumn(),
    )
    console = TableConsole(stderr=True)
    hidden = quiet or verbose or not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task("starting", total=None)

        def on_run(purpose: str) -> None:
            bar.update(task, advance=1, description=purpose)
            if verbose:
                console.print(f"run {round(bar.tasks[0].completed)}: {purpose}", soft_wrap=True)

        yield on_run


def print_tuned(
    record: TuningRecord, runs: str = "fresh processes", console: Console | None = None
) -> None:
    """Print the result of a tuning: headline, operators, verification. runs: of the latter."""
    console = console or TableConsole()
    console.print(report.summary(record, console.width))
    console.print()
    if said := report.verified(record, runs):
        console.print(said)
    if record.criterion is None:
        for value in record.values:
            console.print(f"  {report.value_line(value)}")
    for note in record.notes:
        console.print(note)


def print_report(record: TuningRecord, console: Console | None = None) -> None:
    """Print the summary of `mixpert report`: the result of a tuning, and every plan that ran."""
    console = console or TableConsole()
    print_tuned(record, console=console)
    console.print()
    console.print(report.trials(record, console.width))


def report_page(record: TuningRecord) -> str:
    """One HTML page, which loads nothing, with the tables that `print_report` prints."""
    console = TableConsole(file=io.StringIO(), record=True)
    console.width = PAGE_WIDTH
    print_report(record, console)
    return visible(console.export_html(code_format=PAGE, inline_styles=True))


def print_budgets(records: Sequence[TuningRecord]) -> None:
    columns = [report.Column("budget", right=True), report.Column("error", right=True)]
    columns += [report.Column("lowered"), report.Column("time of the program", wraps=True)]
    rows = [
        (
            report.budget_text(record.budget or 0.0),
            report.size(record, report.reached(record)),
            f"{sum(x.before != x.after for x in record.operators)} of {len(record.operators)}",
            report.gain_text(record.gain, report.time_unit(record)),
        )
        for record in records
    ]
    console = TableConsole()
    console.print(report.fitted(columns, rows, console.width))
    console.print()
    for note in dict.fromkeys(note for record in records for note in record.notes):
        console.print(note)


def print_profile(
    records: Records, file: TextIO | None = None, *, script: str | None = None
) -> None:
    """Print the table of `mixpert run --profile`, on stderr: stdout is the program's.

    file: where it is printed instead. script: the program's file: where a product stands in
    another one, lines come with their file's name; cells of a notebook have none.
    """
    # The program may have put something else in the place of sys.stderr.
    console = TableConsole(file=file or sys.__stderr__)
    if not records:
        console.print("no rewritten product was called in this process")
        return
    unit = report.clock_unit(record["seconds"] for record in records)
    time, moving = f"time, {unit.name}", f"moving, {unit.name}"
    moved = any(record["transfer_seconds"] for record in records)
    refused = any(record["reasons"] for record in records)
    ran = [scheme for record in records for scheme in record["schemes"]]
    sliced = any(scheme.startswith(ON_GPUS) for scheme in ran) or device.may_be_here()
    several = script is not None and {record["path"] for record in records} != {script}
    columns = (
        report.Column("line", right=not several),
        report.Column("expression", wraps=True, least=report.EXPRESSION),
        report.Column("calls", right=True, drop=5),
        report.Column("m × k × n", drop=4),
        report.Column("ran", wraps=True),
        report.Column(time, right=True),
        *[report.Column(moving, right=True, drop=6)] * moved,
        report.Column(SPREAD, right=True, drop=7),
        *[report.Column("not as planned", wraps=True)] * refused,
    )
    rows = []
    for record in records:
        m, k, n, _ = record["shapes"][0]
        more = f" +{len(record['shapes']) - 1}" if len(record["shapes"]) > 1 else ""
        share = record["outliers"]  # the largest of blocks that left the product's slices
        outliers = f", {100 * share:.2g} % outliers" if share else ""
        in_loops = f", {Reason.LOOP}" if record.get("in_loops") else ""
        row = (
            _line(record, several),
            record["expression"],
            str(record["calls"]),
            f"{m} × {k} × {n}{more}" if m or k or n else "–",
            ", ".join(record["schemes"]) + outliers + in_loops,
            unit.number(record["seconds"]),
            *[unit.number(record["transfer_seconds"])] * moved,
            "–" if record["spread"] is None else f"{record['spread']:.1f}",
            *[", ".join(f"{reason} ({n})" for reason, n in record["reasons"].items())] * refused,
        )
        rows.append(row)
    table = report.fitted(columns, rows, console.width)
    console.print(table)
    console.print()
    for line in _meanings([column.header for column in table.columns], records):
        console.print(line)
    for hint in dict.fromkeys(_hints(records, several) if sliced else ()):  # one for each line
        console.print(hint, soft_wrap=True)


def _meanings(shown: Sequence[object], records: Records) -> Iterator[str]:
    """A line for each word of a profile that does not explain itself."""
    if SPREAD in shown:
        yield SPREAD_MEANS
    reasons = [reason for record in records for reason in record["reasons"]]
    if any(record.get("in_loops") for record in records):
        reasons.append(Reason.LOOP)
    for reason in dict.fromkeys(reasons):
        yield f"{reason}: {MEANING_OF_REASONS[reason]}"


def _line(record: Mapping[str, Any], several: bool) -> str:
    """The line of a product; after its file, where the products are of several."""
    return place_text(record["path"] if several and record["line"] else "", record["line"])


def place_text(path: str, line: int | None) -> str:
    """`file:line`, the file as `shown_path` has it, else its name; without a path the line."""
    number = str(line) if line else "–"
    if not path:
        return number
    shown = shown_path(path)
    return f"{os.path.basename(shown) if os.path.isabs(shown) else shown}:{number}"


def _hints(records: Records, several: bool) -> Iterator[str]:
    for record in records:
        if hint := report.small_entries(record["spread"]):
            place = f"line {_line(record, several)}" if record["line"] else record["expression"]
            yield f"{place}: {hint}"


def print_estimate(found: "Estimate", budget: str, script: str) -> None:
    """Print the shares, each product by level, and the likely gains. script: the program's."""
    out = TableConsole()
    unit = report.clock_unit((found.seconds,))
    out.print(
        f"Program: {unit.quantity(found.seconds)}, of which products "
        f"{unit.quantity(found.products_seconds)} ({100 * found.share:.0f} %): "
        f"{times_text(ceiling(found.share))} as fast if they took no time."
    )
    out.print()
    _print_products(found, script)
    out.print()
    likely = report.Column(f"likely at {budget}", right=True)
    columns = (report.Column("program"), likely, report.Column("error", right=True))
    rows = []
    for it in found.places:
        rows.append((it.device or "here", times_text(it.gain), report.error_text(it.error)))
    out.print(report.fitted(columns, rows, out.width))
    out.print()
    for note in _notes(found, float(budget)):
        out.print(note)
    out.print()


def print_verdict(sentence: str, command: str | None) -> None:
    """Print the verdict, and the next command on a line of its own, which is never cut."""
    out = TableConsole()
    out.print(sentence)
    if command is not None:
        out.print(f"Next: {command}", soft_wrap=True)


def _print_products(found: "Estimate", script: str) -> None:
    """Print the products that take most of the time, with the fastest level here."""
    out = TableConsole()
    shown = [one for one in found.products if one.seconds >= NEGLIGIBLE * found.seconds]
    shown = shown[:MOST_PRODUCTS]
    several = not {one.path for one in shown} <= {script, ""}
    columns = (
        report.Column("line", right=not several, wraps=several, least=PLACE),
        report.Column("product", wraps=True),
        report.Column("% of\ntime", right=True),
        report.Column("here", wraps=True, least=HERE),
        report.Column("error"),
    )
    rows = [
        (
            place_text(one.path if several else "", one.line),
            one.expression,
            f"{100 * one.seconds / found.seconds:.0f}",
            *_here(one),
        )
        for one in shown
    ]
    if rows:
        out.print(report.fitted(columns, rows, out.width))
    if rest := found.products[len(shown) :]:
        part = sum(one.seconds for one in rest) / found.seconds
        out.print(f"{counted(len(rest), 'more product')}: {100 * part:.1f} % of the time.")


def _notes(found: "Estimate", budget: float) -> Iterator[str]:
    """Sentences on the meaning of the figures, and on why they may be off."""
    if any(one.speeds["here"].get("blas", 0.0) >= MIN_SPEEDUP for one in found.products):
        yield IN_LOOPS
    yield (
        "Errors are those of single products on this run's operands, relative to float64 in the "
        "Frobenius norm. The program's error is estimated from them."
    )
    error = found.places[0].error
    if error > 0:
        yield (
            f"Here the program's error is estimated as {report.error_text(error)}. It is within "
            f"the budget unless the program amplifies errors {budget / error:.2g} times: "
            "`mixpert tune` measures that."
        )
    if len(found.places) > 1:
        yield PREDICTED
    if found.unmeasured >= WORTH_NAMING:
        part = 100 * found.unmeasured
        yield f"{part:.0f} % of the products' time was not measured: taken to be like the rest."
    if found.seconds < report.SHORT_PROGRAM and found.places[0].gain >= MIN_SPEEDUP:
        yield report.START_UP
    if found.uncounted:
        yield (
            f"Processes that the program started took {found.children:.1f} s of processor time; "
            "their products are not counted."
        )


def _here(one: "EstimatedProduct") -> tuple[str, str]:
    """The gain on this machine, or why there is none, and the error of the level."""
    if one.unsuited:
        return one.unsuited, "–"
    speeds = {level: gain for level, gain in one.speeds["here"].items() if level in one.errors}
    if not speeds:
        return "not measured", "–"
    level = max(speeds, key=speeds.__getitem__)
    is_faster = speeds[level] >= MIN_SPEEDUP
    here = f"{times_text(speeds[level])} in {level}" if is_faster else f"not faster in {level}"
    return here, report.error_text(one.errors[level])
