"""The tables of `mixpert estimate`."""

import os
from collections.abc import Iterator

from rich.text import Text

from mixpert_py.commands.fitted import Column, fitted
from mixpert_py.commands.tables import console
from mixpert_py.tuner.estimate import ceiling, times_text
from mixpert_py.tuner.report.unit import clock_unit, error_text
from mixpert_py.tuning.estimate import Estimate, EstimatedProduct

MOST_PRODUCTS = 4  # products; of more, those that take least are summed up
NEGLIGIBLE = 0.005  # share of the program's time below which a product is summed up, too
WORTH_NAMING = 0.01  # share of the products' time in those that were not measured

ERRORS = (
    "Errors are those of single products on this run's operands, relative to float64 in the "
    "Frobenius norm. Of the program's own error they are a guess, which `mixpert tune` checks."
)
PREDICTED = (
    "GPUs are predicted, for operands that lie there, against the GPU's own native products; the "
    "rest of the program is assumed to keep its share of the time."
)


def print_estimate(found: Estimate, budget: str) -> None:
    """Print the shares, each product by level, and what is likely where."""
    out = console()
    unit = clock_unit((found.seconds,))
    share = f"{100 * found.share:.0f} %"
    out.print(
        Text(
            f"Program: {unit.quantity(found.seconds)}, of which products "
            f"{unit.quantity(found.products_seconds)} ({share})."
        )
    )
    out.print()
    names = [place.device or "here" for place in found.places]
    columns = (
        Column("line", right=True),
        Column("product", wraps=True),
        Column("% of\ntime", right=True),
        Column("level"),
        Column("error"),
        *(Column(name, right=True, drop=at) for at, name in enumerate(names)),
    )
    shown = [one for one in found.products if one.seconds >= NEGLIGIBLE * found.seconds]
    shown = shown[:MOST_PRODUCTS]
    several = len({one.path for one in shown}) > 1
    rows = [row for one in shown for row in _rows(one, found, names, several)]
    if rows:
        out.print(fitted(columns, rows, out.width))
    rest = found.products[len(shown) :]
    if rest:
        part = sum(one.seconds for one in rest) / found.seconds
        word = "product" if len(rest) == 1 else "products"
        out.print(Text(f"{len(rest)} more {word}: {100 * part:.1f} % of the time."))
    out.print()
    _print_places(found, budget)
    out.print()
    out.print(Text(ERRORS))
    if len(found.places) > 1:
        out.print(Text(PREDICTED))
    if found.unmeasured >= WORTH_NAMING:
        part = 100 * found.unmeasured
        out.print(
            Text(f"{part:.0f} % of the products' time was not measured, and is taken to be alike.")
        )
    out.print()


def print_verdict(sentence: str, command: str | None) -> None:
    """Print the verdict, and the next command on a line of its own, which is never cut."""
    out = console()
    out.print(Text(sentence))
    if command is not None:
        out.print(Text(f"Next: {command}"), soft_wrap=True)


def _rows(
    one: EstimatedProduct, found: Estimate, names: list[str], several: bool
) -> Iterator[tuple[str, ...]]:
    """A row for each level, the product in the first."""
    place = str(one.line) if one.line else "–"
    if several and one.path:
        place = f"{os.path.basename(one.path)}:{place}"
    head = (place, one.expression, f"{100 * one.seconds / found.seconds:.0f}")
    levels = [level for level in one.errors if any(level in its for its in one.speeds.values())]
    if not levels:
        yield (*head, "native", "–", *("–" for _ in names))
    for level in levels:
        speeds = [one.speeds[name].get(level) for name in names]
        texts = ["–" if speed is None else times_text(speed) for speed in speeds]
        yield (*head, level, error_text(one.errors[level]), *texts)
        head = ("", "", "")


def _print_places(found: Estimate, budget: str) -> None:
    columns = (
        Column("program"),
        Column("if products took no time", right=True),
        Column(f"likely at {budget}", right=True),
    )
    most = times_text(ceiling(found.share))
    rows = [(place.device or "here", most, times_text(place.gain)) for place in found.places]
    out = console()
    out.print(fitted(columns, rows, out.width))
