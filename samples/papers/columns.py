"""Columns and measures that several papers' exhibits share."""

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from samples.papers.exhibit import Column, Found, Missing, Row
from samples.papers.place import FP32, SKEWED, SQUARES, Place

NAME, RANGE, SIZE = Column("name", "product"), Column("range", "operands"), Column("n", "N")
M, K, N = (Column(key, key) for key in "mkn")
TFLOPS, TIMES = Column("tflops", "TFLOP/s", ".1f"), Column("times", "× cuBLAS FP32", ".2f")
MILLISECONDS = Column("seconds", "time, ms", ".3f", 1e3)
MAX = Column("max", "max error against FP32", ".2e")
MAX_EXACT = Column("max_exact", "against FP64", ".2e")
MRED = Column("mred", "mean relative error against FP32", ".2e")
FROBENIUS = Column("frobenius", "Frobenius error against FP64", ".2e")

SQUARE_SPEED = (NAME, SIZE, MILLISECONDS, TFLOPS, TIMES)
SKEWED_SPEED = (NAME, M, K, N, MILLISECONDS, TFLOPS, TIMES)

Measure = Callable[[Place], Found | Missing]


def squares(*names: str) -> Measure:
    """Speeds of N × N × N products."""
    return partial(_speeds, [(n, n, n) for n in SQUARES], names)


def skewed(*names: str) -> Measure:
    """Speeds of products that are long or flat."""
    return partial(_speeds, SKEWED, names)


def errors(names: Sequence[str], ranges: Collection[str], squares: Iterable[int]) -> Measure:
    """Errors of N × N × N products of uniform operands."""
    return partial(_errors, names, ranges, tuple(squares))


def saved(name: str, folder: Path) -> dict[str, Any] | None:
    """A result that another measurement saves in a folder."""
    path = folder / f"{name}.json"
    if not path.exists():
        return None
    loaded: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return loaded


def mean(rows: Iterable[Row], name: str, key: str = "times") -> float:
    """Geometric mean of a column over the rows of that name."""
    return geometric_mean(row[key] for row in rows if row["name"] == name)


def over_fp32(name: str) -> Callable[[Sequence[Row]], str]:
    """A headline: how many times as fast as cuBLAS FP32, over all shapes."""
    return lambda rows: f"{name} {mean(rows, name):.2f}× cuBLAS FP32 (geometric mean)"


def largest(name: str) -> Callable[[Sequence[Row]], str]:
    """A headline: an error at the largest size, beside that of cuBLAS FP16."""

    def text(rows: Sequence[Row]) -> str:
        n = max(row["n"] for row in rows)
        own, half = (
            next(row["max"] for row in rows if row["name"] == one and row["n"] == n)
            for one in (name, "cuBLAS FP16")
        )
        return f"{name} {own:.1e}, cuBLAS FP16 {half:.1e} at N = {n}"

    return text


def _speeds(shapes: Iterable[tuple[int, int, int]], names: Sequence[str], place: Place) -> Found:
    return Found([row for shape in shapes for row in place.speeds((FP32, *names), *shape)])


def _errors(
    names: Sequence[str], ranges: Collection[str], squares: tuple[int, ...], place: Place
) -> Found:
    sizes = place.sizes(squares)
    return Found([row for r in ranges for n in sizes for row in place.errors(names, r, n, n, n)])
