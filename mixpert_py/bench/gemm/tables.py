"""Results of `mixpert bench gemm` as tables, for a terminal and for the pages."""

import math
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

Record = dict[str, Any]
Rows = list[list[str]]

WIDE = 200
DEFAULT = "faithful"
TARGETS = ("what", "at", "measured", "target", "")
SPEED = ("", "m × k × n", "ms", "quartiles", "packing", "kernel", "TFLOP/s", "× FP32", "host, µs")
ACCURACY = ("", "data", "m × k × n", "Frobenius", "max", "max-relative", "mred", "grade")


def target_rows(rows: Iterable[Record]) -> Rows:
    """A row for every target: what was measured, and whether it is met."""
    return [
        [
            row["what"],
            row["at"],
            _spread(row["measured"], row["unit"]),
            f"{row['sense']} {row['wanted']:g} {row['unit']}",
            "met" if row["met"] else "missed" if row["measured"] else row["detail"],
        ]
        for row in rows
    ]


def speed_rows(rows: Iterable[Record]) -> Rows:
    """Rows of times, whole and in parts; † where the device waited for the host."""
    table = []
    for row in rows:
        start = [_name(row), _shape(row)]
        if "failed" in row:
            table.append([*start, row["failed"]])
            continue
        whole = row["seconds"]
        table.append(
            [
                *start,
                _ms(whole["median"]),
                f"{_ms(whole['lower'])}–{_ms(whole['upper'])}",
                _ms(row["packing"]["median"]) if "packing" in row else "",
                _ms(row["gemm"]["median"]) if "gemm" in row else "",
                f"{row['tflops']:.0f}",
                f"{row['speedup']['median']:.2f}" if "speedup" in row else "",
                f"{1e6 * whole['host']:.0f}{'' if whole['ahead'] > 0.8 else ' †'}",
            ]
        )
    return table


def accuracy_rows(rows: Iterable[Record]) -> Rows:
    """Rows of errors by all measures, and grades."""
    return [
        [row["name"], row["family"], _shape(row), row["failed"]]
        if "failed" in row
        else [
            _name(row),
            row["family"],
            _shape(row),
            *(f"{float(row[name]):.1e}" for name in ("frobenius", "max", "max_relative", "mred")),
            row["grade"] or "–",
        ]
        for row in rows
    ]


def families(rows: Iterable[Record]) -> tuple[list[str], Rows]:
    """Columns and a row for every family: errors of the vendor and of schemes over all draws, as
    ‖E‖F / ‖C‖F (and the largest |E| / (|A||B|) in u), and how many times what it may be the
    default's is, in both measures.
    """
    by_family: dict[tuple[str, str], dict[str, Record]] = {}
    for row in rows:
        by_family.setdefault((row["family"], _shape(row)), {})[row["name"]] = row
    names = list(dict.fromkeys(name for found in by_family.values() for name in found))
    table = []
    for (family, shape), found in by_family.items():
        known = next((row for row in found.values() if "failed" not in row), None)
        default = found.get(DEFAULT, {})
        table.append(
            [
                family,
                shape,
                f"{known['terms']:.0f}" if known else "–",
                f"{float(known['floor']):.1e}" if known else "–",
                *(_errors(found.get(name)) for name in names),
                times(default.get("frobenius_over")),
                times(default.get("componentwise_over")),
            ]
        )
    over = (f"{DEFAULT} over allowed: norm", "largest")
    return ["data", "m × k × n", "terms", "floor", *names, *over], table


def times(ratio: float | str | None) -> str:
    """A ratio as text, rounded up, so that none above 1 is shown as 1."""
    if ratio is None:
        return "–"
    value = float(ratio)
    if value >= 10 or math.isnan(value):
        return f"{value:,.0f}×"
    return f"{math.ceil(100 * value - 1e-9) / 100:.2f}×"


def show(columns: Sequence[str], rows: Rows) -> None:
    """Print a table on stdout, in its full width unless stdout is a terminal."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for name in columns:
        table.add_column(name)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console(width=None if sys.stdout.isatty() else WIDE).print(table)


def markdown(columns: Sequence[str], rows: Rows) -> str:
    """A table as Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _name(row: Record) -> str:
    """The contender's name, and what ran in its place if anything did."""
    name: str = row["name"]
    ran = row.get("ran", name)
    return name if ran == name else f"{name}: {ran}"


def _errors(row: Record | None) -> str:
    if row is None or "failed" in row:
        return "failed" if row else "–"
    frobenius, largest = float(row["frobenius"]), float(row["componentwise"])
    native = any(ran.startswith("native") for ran in row.get("ran", ()))
    return f"{frobenius:.1e} ({largest:.1f} u){' native' if native else ''}"


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3f}"


def _shape(row: Record) -> str:
    m, k, n = row["m"], row["k"], row["n"]
    return f"{m}³" if m == k == n else f"{m} × {k} × {n}"


def _spread(measured: dict[str, float] | None, unit: str) -> str:
    if measured is None:
        return "–"
    low, value, high = (f"{measured[key]:.3g}" for key in ("lower", "median", "upper"))
    return f"{value} {unit}" if low == high else f"{value} {unit} ({low}–{high})"
