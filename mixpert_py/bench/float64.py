"""The results of float64 products as the README shows them: the staircase, and a table below it."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mixpert_py.bench import pictures
from mixpert_py.bench.gemm import staircase, tables
from mixpert_py.bench.gemm.plane import Point
from mixpert_py.bench.pictures import Theme, embedded

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "staircase-float64"
SIZE = 8192
BASE = "cuBLAS FP64"
SIZES = (2048, 4096, SIZE)
SHOWN = (BASE, "crt14", "crt12", "crt9")

Record = dict[str, Any]


def markdown(result: Record, docs: str) -> str:
    """A result of `tests.measure.float64` as picture and table. docs: the pictures' folder."""
    rows = {(row["name"], row["n"]): row for row in result["rows"]}
    cells = [
        [
            name,
            *(
                f"{rows[name, n]['tflops']:.0f} ({rows[name, n]['over_native']:.1f}×)"
                for n in SIZES
            ),
            f"{rows[name, SIZE]['error']:.1e}",
        ]
        for name in SHOWN
    ]
    facts = result["machine"]
    said = staircase.sentence(*_points(result), f"{SIZE} × {SIZE} float64", facts["device"])
    columns = ["float64", *(f"{n}³" for n in SIZES), f"error at {SIZE}³"]
    return (
        f"{embedded(NAME, said, docs)}\n{tables.markdown(columns, cells)}\n\n"
        "TFLOP/s of n³ float64 products (and how many times cuBLAS FP64's speed), packing "
        "included, on the device alone; relative Frobenius error on normal data. One "
        f"{facts['device']}, CUDA {facts['cuda']}, cuBLAS {facts['cublas']}, {facts['date']}.\n"
    )


def draw(result: Record, folder: Path) -> list[Path]:
    """Draw the staircase into a folder. Raises MixPertError without matplotlib."""
    return pictures.draw({NAME: partial(_picture, result)}, folder)


def _picture(result: Record, theme: Theme) -> "Axes":
    what = f"float64 products of {SIZE} × {SIZE} matrices on one {result['machine']['device']}"
    return staircase.drawn(*_points(result), what, theme)


def _points(result: Record) -> tuple[list[Point], list[Point]]:
    """The steps at SIZE³, the most accurate first, and what they are compared with."""
    found = [
        Point(row["name"], "", row["tflops"], row["error"])
        for row in result["rows"]
        if row["n"] == SIZE
    ]
    ours = {point.name for point in found} - {BASE}
    return staircase.descending(found, ours), [point for point in found if point.name == BASE]
