"""Output of the commands for people: tables on stdout, progress on stderr."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from mixpert_py.doctor import Finding
from mixpert_py.plan import Criterion, Plan
from mixpert_py.runtime.gpu import device
from mixpert_py.runtime.reasons import MEANING as MEANING_OF_REASONS
from mixpert_py.sources.source_files import shown_path
from mixpert_py.tuner.report.fitted import CALLERS, EXPRESSION, Column, fitted
from mixpert_py.tuner.report.operands import (
    LOSS_SHOWN_FROM,
    are_for_gpus,
    bits_text,
    cancellation_text,
    small_entries,
)
from mixpert_py.tuner.report.record import read
from mixpert_py.tuner.report.summary import (
    MEANING,
    Program,
    allowed,
    callers_text,
    gain_text,
    rate_text,
    reached,
    size,
    time_unit,
    verdict,
    why,
)
from mixpert_py.tuner.report.summary import rows as rows_of
from mixpert_py.tuner.report.table import Report
from mixpert_py.tuner.report.unit import budget_text, clock_unit, error_text, share_text

if TYPE_CHECKING:
    from mixpert_py.tuner.report.record import Record
    from mixpert_py.tuning.search import TuningResult
    from mixpert_py.tuning.verify import Verification

# Columns of a profile about a product's operands, and the meanings that stand below it.
OPERANDS = {
    "spread,\nbits": "How many bits smaller entries are than the largest of their row, on average.",
    "int8\nloss": "How many bits less accurate int8x6 is than float32 on these operands.",
    "cancels": "How many times as large the result would be if nothing cancelled in it.",
}

NARROWEST = 20  # characters

Records = Sequence[dict[str, Any]]


class _Console(Console):
    """A console that leaves it to its caller what a closed pipe means.

    Where the environment says COLUMNS=0, or another width that no terminal has, it has 80.
    """

    def __init__(self, stderr: bool = False, file: TextIO | None = None) -> None:
        super().__init__(stderr=stderr, file=file)
        if self.width < NARROWEST:
            self.width = 80

    def on_broken_pipe(self) -> None:
        raise  # the BrokenPipeError that is being handled


def console() -> Console:
    """The console that tables are printed on."""
    return _Console()


@contextmanager
def progress(quiet: bool = False, verbose: bool = False) -> Iterator[Callable[[str], None]]:
    """A line on stderr while runs go on; yields the callback for a run that is about to start.

    verbose: a line for each run stays, on a terminal or not.
    """
    columns = (
        TextColumn("run {task.completed}: {task.description}"),
        BarColumn(24),  # pulses: how many runs the search will need is not known before
        TimeElapsedColumn(),
    )
    console = _Console(stderr=True)
    with Progress(
        *columns,
        console=console,
        transient=True,
        disable=quiet or verbose or not console.is_terminal,
    ) as bar:
        task = bar.add_task("starting", total=None)

        def on_run(purpose: str) -> None:
            bar.update(task, advance=1, description=purpose)
            if verbose:
                number = round(bar.tasks[0].completed)
                console.print(Text(f"run {number}: {purpose}"), soft_wrap=True)

        yield on_run


def print_tuned(tuned: "TuningResult", runs: str = "fresh processes") -> None:
    """Print the result of `mixpert tune`: headline, table, verification.

    runs: those of the verification.
    """
    console = _Console()
    console.print(
        Report(tuned.outcome, tuned.limits.metric, tuned.predicted, tuned.device, tuned.gain)
    )
    console.print()
    if said := _verdict(tuned, runs):
        console.print(Text(said))
    if tuned.limits.only is None:
        for value in tuned.plan.criterion:
            console.print(Text(f"  {value_line(value)}"))
    for note in tuned.notes:
        console.print(Text(note))


def _verdict(tuned: "TuningResult", runs: str = "fresh processes") -> str:
    outcome, found = tuned.outcome, tuned.verification
    if outcome.interrupted:
        return "Interrupted: the plan was not verified."
    unit = clock_unit((found.native_lowered,))
    times = f"{unit.number(found.native_lowered)} → {unit.quantity(found.lowered)}"
    if tuned.reverted:
        return f"In {runs} the plan that was found showed no gain ({times})."
    if not outcome.lowered:
        return UNCLEAR if tuned.unclear else ""
    error = f"error {error_text(found.error)}"
    if tuned.limits.only is None:
        error = f"errors at most {share_text(found.error)} of their budgets"
    if tuned.hold_out is not None:
        count = len(tuned.hold_out.inputs)
        size = error_text if tuned.limits.only else share_text
        where = "on the hold-out" if count == 1 else f"on {count} other inputs at most"
        error = f"{error}, {where} {size(tuned.hold_out.error)}"
        if count > 1:
            error += f" ({rate_text(count, tuned.hold_out.rate)})"
    verified = f"Verified in {runs}: {error}"
    if tuned.predicted:
        return f"{verified}."
    verified = f"{verified}, time in the lowered products {times}."
    if tuned.unclear:
        least, most = (share_text(part) for part in (found.ratio.least, found.ratio.most))
        shown = f"Pairs of runs show {least} to {most} of the native time there"
        return f"{verified} {shown}; `mixpert verify` makes more of them. {UNCLEAR}"
    return f"{verified}{whole_program(found)}"


UNCLEAR = (
    "Cannot tell on this machine now whether a lower level is faster: times differ by less than "
    "they vary. Tune while it is idle, with data for which the program takes longer, or for a GPU "
    "whose times are predicted (--device NAME)."
)


def whole_program(found: "Verification") -> str:
    """A note where the whole program's time does not show the gain of its products; else empty."""
    if found.native_seconds * (1 - found.program.mean) > found.spread:
        return ""
    vary = clock_unit((found.spread,)).quantity(found.spread)
    return (
        f" Whole runs vary by {vary}, more than the gain: it is measured in the lowered products."
    )


def value_line(value: Criterion) -> str:
    """An observed value's error and budget."""
    return (
        f"{value.name}: {value.metric} error {error_text(value.achieved)} of "
        f"{budget_text(value.budget)} allowed"
    )


def print_budgets(entries: Sequence[dict[str, Any]]) -> None:
    """Print a row for each budget of `mixpert tune`. entries: the records of the tunings."""
    records = [read(entry, "") for entry in entries]
    columns = [Column("budget", right=True), Column("error", right=True)]
    columns += [Column("lowered"), Column("time of the program", wraps=True)]
    rows = [
        (
            budget_text(record.budget or 0.0),
            size(record, reached(record)),
            f"{sum(x.before != x.after for x in record.operators)} of {len(record.operators)}",
            gain_text(record.gain, time_unit(record)),
        )
        for record in records
    ]
    console = _Console()
    console.print(fitted(columns, rows, console.width))
    console.print()
    for note in dict.fromkeys(note for record in records for note in record.notes):
        console.print(Text(note))


def print_sites(records: Records) -> None:
    """Print the list of `mixpert sites`: a table on a terminal, elsewhere whole lines."""
    found = sum(record["rewritten"] for record in records)
    if records and sys.stdout.isatty():
        _print_table_of_sites(records)
    elif records:
        for record in records:
            place = f"{record['path']}:{record['line']}:{record['column']}"
            click.echo(f"{place}: {record['expression']} — {record['reason'] or 'is rewritten'}")
    click.echo(f"{found} rewritten, {len(records) - found} left alone")


def _print_table_of_sites(records: Records) -> None:
    columns = (
        Column("place"),
        Column("expression", drop=1, wraps=True, least=EXPRESSION),
        Column("kind", drop=2),
        Column("", wraps=True),
    )
    rows = [
        (
            f"{record['path']}:{record['line']}:{record['column']}",
            record["expression"],
            record["kind"],
            record["reason"] or "is rewritten",
        )
        for record in records
    ]
    console = _Console()
    console.print(fitted(columns, rows, console.width))


def print_profile(
    records: Records, file: TextIO | None = None, *, script: str | None = None
) -> None:
    """Print the table of `mixpert run --profile`, on stderr: stdout is the program's.

    file: where it is printed instead. script: the program's file: where a product stands in
    another one, lines come with their file's name; cells of a notebook have none.
    """
    # The program may have put something else in the place of sys.stderr.
    console = _Console(file=file or sys.__stderr__)
    if not records:
        console.print("no rewritten product was called in this process")
        return
    unit = clock_unit(record["seconds"] for record in records)
    time, moving = f"time, {unit.name}", f"moving, {unit.name}"
    moved = any(record["transfer_seconds"] for record in records)
    called = any(record.get("callers") for record in records)
    refused = any(record["reasons"] for record in records)
    spread, loss, cancels = OPERANDS
    ran = (scheme for record in records for scheme in record["schemes"])
    sliced = are_for_gpus(ran) or device.may_be_here()
    several = script is not None and {record["path"] for record in records} != {script}
    columns = (
        Column("line", right=not several),
        Column("expression", wraps=True, least=EXPRESSION),
        *[Column("called from", wraps=True, least=CALLERS)] * called,
        Column("calls", right=True, drop=5),
        Column("m × k × n", drop=4),
        Column("ran", wraps=True),
        Column(time, right=True),
        *[Column(moving, right=True, drop=6)] * moved,
        Column(spread, right=True, drop=7),
        *[Column(loss, right=True, drop=8)] * sliced,
        Column(cancels, right=True, drop=9),
        *[Column("not as planned", wraps=True)] * refused,
    )
    rows = []
    for record in records:
        m, k, n, _ = record["shapes"][0]
        more = f" +{len(record['shapes']) - 1}" if len(record["shapes"]) > 1 else ""
        row = (
            _line(record, several),
            record["expression"],
            *[callers_text(record.get("callers") or {})] * called,
            str(record["calls"]),
            f"{m} × {k} × {n}{more}" if m or k or n else "–",
            ", ".join(record["schemes"]) + _outliers(record["outliers"]),
            unit.number(record["seconds"]),
            *[unit.number(record["transfer_seconds"])] * moved,
            bits_text(record["spread"]),
            *[bits_text(record["int8_loss"])] * sliced,
            cancellation_text(record["cancellation"]),
            *[_reasons(record["reasons"])] * refused,
        )
        rows.append(row)
    table = fitted(columns, rows, console.width)
    console.print(table)
    console.print()
    for line in _meanings([column.header for column in table.columns], records):
        console.print(Text(line))
    for hint in dict.fromkeys(_hints(records, several) if sliced else ()):  # one for each line
        console.print(Text(hint), soft_wrap=True)


def _meanings(shown: Sequence[object], records: Records) -> Iterator[str]:
    """A line for each word of a profile that does not explain itself."""
    for name, meaning in OPERANDS.items():
        if name in shown:
            yield f"{' '.join(name.split())}: {meaning}"
    for reason in dict.fromkeys(reason for record in records for reason in record["reasons"]):
        yield f"{reason}: {MEANING_OF_REASONS[reason]}"


def _line(record: Mapping[str, Any], several: bool) -> str:
    """The line of a product; after its file, where the products are of several."""
    return place_text(record["path"] if several and record["line"] else "", record["line"])


def place_text(path: str, line: int | None) -> str:
    """A file and a line: the file from the current folder, or from that which its package is in, or
    its name alone. path: "" for the line alone.
    """
    number = str(line) if line else "–"
    if not path:
        return number
    shown = shown_path(path)
    return f"{os.path.basename(shown) if os.path.isabs(shown) else shown}:{number}"


def _hints(records: Records, several: bool) -> Iterator[str]:
    for record in records:
        line = _line(record, several)
        place = f"line {line}" if record["line"] else record["expression"]
        if (bits := record["int8_loss"] or 0.0) >= LOSS_SHOWN_FROM:
            yield f"{place}: int8x6 loses about {bits:.0f} bits here: small entries along K count"
        if hint := small_entries(record["spread"]):
            yield f"{place}: {hint}"


def _reasons(calls: Mapping[str, int]) -> str:
    return ", ".join(f"{reason} ({count})" for reason, count in calls.items())


def _outliers(share: float) -> str:
    """The largest share of blocks that left a product's slices, where there are any."""
    return f", {100 * share:.2g} % outliers" if share else ""


def print_plan(plan: Plan) -> None:
    """Print a plan as a table."""
    console = _Console()
    for criterion in plan.criterion:
        console.print(Text(f"{value_line(criterion)}, reference {criterion.reference}"))
    columns = (
        Column("site"),
        Column("expression", drop=2, wraps=True, least=EXPRESSION),
        Column("scheme"),
        Column("error", drop=1),
        Column("native, ms", right=True, drop=4),
        Column("ms", right=True, drop=3),
    )
    rows = [
        (
            site.id,
            site.expression,
            site.scheme + (" (locked)" if site.locked else ""),
            error_text(site.error),
            _milliseconds(site.native_ms),
            _milliseconds(site.ms),
        )
        for site in plan.site
    ]
    console.print(fitted(columns, rows, console.width) if rows else "no call site")


def print_report(record: "Record", program: "Program") -> None:
    """Print the summary of `mixpert report`: what was gained, each product, and why it stopped."""
    found = rows_of(record, program)
    unit = time_unit(record, [row.entry.time_before for row in found])
    console = _Console()
    console.print(Text(verdict(record, found)))
    console.print(Text(f"Time: {gain_text(record.gain, time_unit(record))}"))
    console.print(Text(f"Error: {size(record, reached(record))} {allowed(record)}"))
    for note in program.notes:
        console.print(Text(note))
    if not found:
        return
    called = any(row.entry.callers for row in found)
    columns = (
        Column("line", right=all(row.entry.place.isdecimal() for row in found)),
        Column("product", wraps=True, least=EXPRESSION),
        *[Column("called from", wraps=True, least=CALLERS)] * called,
        Column("% of\ntime", right=True, drop=3),
        Column("level"),
        Column("error", drop=1),
        Column(f"time, {unit.name}", right=True, drop=2),
        Column("why it stopped", wraps=True),
    )
    rows = []
    for row in found:
        entry, level, time = row.entry, row.level, unit.number(row.entry.time_before)
        if level != entry.before:
            time = f"{time} → {unit.number(row.time_after)}"
            level = f"{entry.before} → {level}"
        share = f"{entry.share or 0.0:.0%}".rstrip("%")
        error = error_text(entry.local_errors.get(row.level))
        callers = [callers_text(entry.callers)] * called
        product = (entry.place, entry.expression, *callers)
        rows.append((*product, share, level, error, time, why(row, found)))
    console.print()
    console.print(fitted(columns, rows, console.width))
    console.print()
    for reason in dict.fromkeys(row.entry.reason for row in found):
        if reason in MEANING:
            console.print(Text(f"{reason}: {MEANING[reason]}"))


def _milliseconds(measured: float | None) -> str:
    """A dash where it was not measured; plans of before say 0 then."""
    return f"{measured:.3f}" if measured else "–"


def print_findings(findings: Sequence[Finding]) -> None:
    """Print the examination of `mixpert doctor`."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for finding in findings:
        mark = Text("") if finding.fine else Text("missing", style="bold")
        table.add_row(finding.what, Text(finding.found), mark)
    _Console().print(table)
