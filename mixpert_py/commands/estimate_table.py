"""The tables of `mixpert estimate`."""

from collections.abc import Iterator

from rich.text import Text

from mixpert_py.commands.tables import console, place_text
from mixpert_py.errors import counted
from mixpert_py.tuner.prediction import ceiling, times_text
from mixpert_py.tuner.report.summary import (
    SHORT_PROGRAM,
    START_UP,
    callers_text,
    clock_unit,
    error_text,
)
from mixpert_py.tuner.report.table import Column, fitted
from mixpert_py.tuning.estimate import Estimate, EstimatedProduct

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
LEAST = 1.02  # times as fast: below it a level is told as no faster


def print_estimate(found: Estimate, budget: str, script: str) -> None:
    """Print the shares, each product by level, and the likely gains.

    script: the program's file. If a product is in another file, lines are shown with their file.
    """
    out = console()
    unit = clock_unit((found.seconds,))
    out.print(
        Text(
            f"Program: {unit.quantity(found.seconds)}, of which products "
            f"{unit.quantity(found.products_seconds)} ({100 * found.share:.0f} %): "
            f"{times_text(ceiling(found.share))} as fast if they took no time."
        )
    )
    out.print()
    _print_products(found, script)
    out.print()
    likely = Column(f"likely at {budget}", right=True)
    columns = (Column("program"), likely, Column("error", right=True))
    rows = [(it.device or "here", times_text(it.gain), error_text(it.error)) for it in found.places]
    out.print(fitted(columns, rows, out.width))
    out.print()
    for note in _notes(found, float(budget)):
        out.print(Text(note))
    out.print()


def print_verdict(sentence: str, command: str | None) -> None:
    """Print the verdict, and the next command on a line of its own, which is never cut."""
    out = console()
    out.print(Text(sentence))
    if command is not None:
        out.print(Text(f"Next: {command}"), soft_wrap=True)


def _print_products(found: Estimate, script: str) -> None:
    """Print the products that take most of the time, with the fastest level here."""
    out = console()
    shown = [one for one in found.products if one.seconds >= NEGLIGIBLE * found.seconds]
    shown = shown[:MOST_PRODUCTS]
    several = not {one.path for one in shown} <= {script, ""}
    called = any(one.callers for one in shown)
    columns = (
        Column("line", right=not several, wraps=several, least=PLACE),
        Column("product", wraps=True),
        *[Column("called from", wraps=True, drop=1)] * called,
        Column("% of\ntime", right=True),
        Column("here", wraps=True, least=HERE),
        Column("error"),
    )
    rows = [
        (
            place_text(one.path if several else "", one.line),
            one.expression,
            *[callers_text(one.callers)] * called,
            f"{100 * one.seconds / found.seconds:.0f}",
            *_here(one),
        )
        for one in shown
    ]
    if rows:
        out.print(fitted(columns, rows, out.width))
    if rest := found.products[len(shown) :]:
        part = sum(one.seconds for one in rest) / found.seconds
        out.print(Text(f"{counted(len(rest), 'more product')}: {100 * part:.1f} % of the time."))


def _notes(found: Estimate, budget: float) -> Iterator[str]:
    """Sentences on the meaning of the figures, and on why they may be off."""
    if any(one.speeds["here"].get("blas", 0.0) >= LEAST for one in found.products):
        yield IN_LOOPS
    yield (
        "Errors are those of single products on this run's operands, relative to float64 in the "
        "Frobenius norm. The program's error is estimated from them."
    )
    error = found.places[0].error
    if error > 0:
        yield (
            f"Here the program's error is estimated as {error_text(error)}. It is within the "
            f"budget unless the program amplifies errors {budget / error:.2g} times: "
            "`mixpert tune` measures that."
        )
    if len(found.places) > 1:
        yield PREDICTED
    if found.unmeasured >= WORTH_NAMING:
        part = 100 * found.unmeasured
        yield f"{part:.0f} % of the products' time was not measured: taken to be like the rest."
    if found.seconds < SHORT_PROGRAM and found.places[0].gain >= LEAST:
        yield START_UP
    if found.uncounted:
        yield (
            f"Processes that the program started took {found.children:.1f} s of processor time; "
            "their products are not counted."
        )


def _here(one: EstimatedProduct) -> tuple[str, str]:
    """The gain on this machine, or why there is none, and the error of the level."""
    if one.unsuited:
        return one.unsuited, "–"
    speeds = {level: gain for level, gain in one.speeds["here"].items() if level in one.errors}
    if not speeds:
        return "not measured", "–"
    level = max(speeds, key=speeds.__getitem__)
    is_faster = speeds[level] >= LEAST
    here = f"{times_text(speeds[level])} in {level}" if is_faster else f"not faster in {level}"
    return here, error_text(one.errors[level])
