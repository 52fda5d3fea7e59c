"""The tables and pictures of the pages, made from saved results: the one writer of them.

Each table stands in a page between `<!-- bench NAME -->` and `<!-- end -->`. `python -m
tests.benchmarks.tables` writes all of them, and draws the two pictures: accuracy against speed, one
step for each level of a ladder.
"""

import re
from collections.abc import Callable, Collection, Sequence
from html import escape
from itertools import pairwise
from math import ceil, floor, log10
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from mixpert_py import files
from mixpert_py.runtime import schemes
from tests.benchmarks import (
    apps,
    dispatch,
    exact,
    exact_bits,
    float64,
    gemm,
    looks,
    machine,
    models,
    programs,
    symmetric,
    ten_tunings,
)
from tests.benchmarks.gemm import BASE, DEFAULT, Point, points

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Record = dict[str, Any]

WIDTH = 525.0  # points, which browsers show as 700 pixels
HEIGHT = 340.0
MARGIN = 3.5  # the axis reaches errors so many times as small, and as large, as those of the steps
# Text stays text, so that files are small and the reader's font is used. The same result makes the
# same bytes.
SETTINGS: Any = {"svg.fonttype": "none", "svg.hashsalt": "mixpert", "font.size": 12.0}
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


class Theme(NamedTuple):
    """The colours of a picture's light or dark form, and what its file's name ends in."""

    suffix: str
    page: str
    text: str
    grid: str
    vendor: str
    ours: str
    tint: str  # what lies below the staircase


LIGHT = Theme("", "#ffffff", "#1f1f1f", "#e4e7eb", "#b34700", "#1a6fb8", "#dceafa")
DARK = Theme("-dark", "#0d1117", "#e6e6e6", "#2b323b", "#f2994a", "#5aa9f0", "#16304d")


class Staircase(NamedTuple):
    """steps: the levels, the most accurate first. vendor: what they are compared with, first the
    product whose speed counts as 1. matrices: of what size and type.
    """

    name: str
    steps: list[Point]
    vendor: list[Point]
    matrices: str
    device: str

    def sentence(self) -> str:
        base, ends = self.vendor[0], (self.steps[0], self.steps[-1])
        said = " to ".join(
            f"{step.name} {step.tflops / base.tflops:.1f}× (error {step.error:.1e})"
            for step in ends
        )
        return f"Speed over {base.name}, by error: from {said}, for {self.matrices} matrices."

    def embedded(self, folder: str) -> str:
        """Markdown of the picture, which follows the reader's light or dark setting."""
        dark = f"{folder}/{self.name}-dark.svg"
        return (
            f'<picture><source media="(prefers-color-scheme: dark)" srcset="{dark}">'
            f'<img alt="{escape(self.sentence())}" src="{folder}/{self.name}.svg"></picture>\n'
        )


def of_float32(result: Record, size: int = 4096) -> Staircase:
    """The staircase of a result of `tests.benchmarks.gemm`."""
    found = points(result["sections"], size)
    levels = {name for rung in schemes.ladder("int8") for name in rung}
    vendor = [one for name in (BASE, "cuBLAS TF32") for one in found if one.name == name]
    matrices, device = f"{size} × {size} float32", result["machine"]["device"]
    return Staircase("staircase", _steps(found, levels), vendor, matrices, device)


def of_float64(result: Record, size: int = 8192) -> Staircase:
    """The staircase of a result of `tests.benchmarks.float64`."""
    rows = [row for row in result["rows"] if row["n"] == size and row["name"] != "crt"]
    found = [Point(row["name"], row["tflops"], row["error"]) for row in rows]
    vendor = [one for one in found if one.name.startswith("cuBLAS")]
    steps = _steps(found, {one.name for one in found} - {one.name for one in vendor})
    matrices, device = f"{size} × {size} float64", result["machine"]["device"]
    return Staircase("staircase-float64", steps, vendor, matrices, device)


def _steps(found: Sequence[Point], levels: Collection[str]) -> list[Point]:
    """The points of these names that no point beats, the slowest and most accurate first."""

    def is_beaten(point: Point) -> bool:
        return any(
            other.tflops >= point.tflops and other.error <= point.error and other[1:] != point[1:]
            for other in found
        )

    kept = [point for point in found if point.name in levels and not is_beaten(point)]
    return sorted(kept, key=lambda point: point.tflops)


def draw(stairs: Staircase, folder: Path) -> None:
    import matplotlib
    from matplotlib.figure import Figure

    for theme in (LIGHT, DARK):
        written = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
        filled = ("figure.facecolor", "axes.facecolor", "savefig.facecolor")
        colors: Any = dict.fromkeys(written, theme.text) | dict.fromkeys(filled, theme.page)
        with matplotlib.rc_context({**SETTINGS, **colors}):
            figure = Figure(figsize=(WIDTH / 72, HEIGHT / 72), dpi=72, layout="constrained")
            _draw_steps(figure.add_subplot(), stairs, theme)
            path = folder / f"{stairs.name}{theme.suffix}.svg"
            figure.savefig(path, format="svg", metadata={"Date": None})


def _draw_steps(axes: "Axes", stairs: Staircase, theme: Theme) -> None:
    """Steps from the upper left to the lower right: what lies below them is beaten by one."""
    base = stairs.vendor[0]
    errors = [step.error for step in stairs.steps]
    speeds = [step.tflops / base.tflops for step in stairs.steps]
    bottom, top = max(errors) * MARGIN, min(errors) / MARGIN
    powers = range(ceil(log10(top)), floor(log10(bottom)) + 1)
    axes.set_yscale("log")
    axes.set_ylim(bottom, top)
    axes.set_yticks(
        [10.0**power for power in powers],
        [f"10{str(power).translate(SUPERSCRIPTS)}" for power in powers],
    )
    axes.minorticks_off()
    every = 4 if speeds[-1] >= 4 else 1
    ticks = sorted({1, *range(every, int(speeds[-1]) + 1, every)})
    axes.set_xlim(0, speeds[-1] * 1.25)
    axes.set_xticks(ticks, [f"{tick}×" for tick in ticks])
    axes.grid(color=theme.grid, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(f"{stairs.matrices} products on one {stairs.device}", loc="left", fontsize=13)
    axes.set_ylabel("error, normal data  (more accurate →)")
    axes.set_xlabel(f"times as fast as {base.name}, packing included")
    path = [(0.0, errors[0])]
    for speed, (here, below) in zip(speeds, pairwise([*errors, bottom]), strict=True):
        path += [(speed, here), (speed, below)]
    across, down = zip(*path, strict=True)
    axes.fill_between(across, down, bottom, color=theme.tint, linewidth=0)
    axes.plot(across, down, color=theme.ours, linewidth=2.0)
    for points_, color, marker in (
        (stairs.steps, theme.ours, "o"),
        (stairs.vendor, theme.vendor, "s"),
    ):
        for point in points_:
            speed = point.tflops / base.tflops
            default = ", the default" if point.name == DEFAULT else ""
            name = point.name if marker == "s" else f"{point.name} {speed:.1f}×{default}"
            axes.plot(speed, point.error, marker=marker, color=color, markersize=7.0)
            beside = (-7, -4) if marker == "s" else (7, 5)
            axes.annotate(
                name,
                (speed, point.error),
                xytext=beside,
                textcoords="offset points",
                color=color,
                fontsize=11.0,
                ha="right" if marker == "s" and speed > 2 else "left",
                va="top" if marker == "s" else "baseline",
            )


ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/measured.md")
MARKED = re.compile(r"(<!-- bench (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


# The name of a mark → the name of its result, and what makes Markdown of the result.
PARTS: dict[str, tuple[str, Callable[[Record], str]]] = {
    "staircase": ("gemm", lambda found: of_float32(found).embedded("docs")),
    "levels": ("gemm", gemm.levels_markdown),
    "numpy": ("apps", apps.host_sentence),
    "gemm": ("gemm", gemm.speeds_markdown),
    "families": ("gemm", gemm.families_markdown),
    "float64": (
        "float64",
        lambda found: f"{of_float64(found).embedded('.')}\n{float64.markdown(found)}",
    ),
    "apps": ("apps", apps.markdown),
    "programs": ("programs-gpu", programs.markdown),
    "calls": ("dispatch", dispatch.markdown),
    "calls_on_gpu": ("dispatch-gpu", dispatch.markdown),
    "sweep": ("sweep", dispatch.sweep_sentence),
    "models": ("models", models.markdown),
    "exact": ("exact", exact.markdown),
    "exact_gpu": ("exact-gpu", exact.markdown),
    "exact_bits": ("exact-bits", exact_bits.sentence),
    "looks": ("looks", looks.markdown),
    "complex": ("complex-products", float64.complex_markdown),
    "symmetric": ("symmetric", symmetric.markdown),
    "tunings": ("tunings", ten_tunings.markdown),
    "first": ("first-example", ten_tunings.first_sentence),
}


def filled(page: Path) -> str:
    """The text of a page with every table of a saved result between its marks.

    Raises KeyError for a mark that no table has.
    """

    def part(match: re.Match[str]) -> str:
        result, make = PARTS[match[2]]
        found = machine.load(result)
        return match[0] if found is None else f"{match[1]}{make(found)}{match[3]}"

    return MARKED.sub(part, page.read_text("utf-8"))


@click.command()
def command() -> None:
    """Write the tables and pictures of the pages from saved results."""
    for name in PAGES:
        files.replace(ROOT / name, filled(ROOT / name).encode())
    for result, make in (("gemm", of_float32), ("float64", of_float64)):
        found = machine.load(result)
        if found is not None:
            draw(make(found), ROOT / "docs")


if __name__ == "__main__":
    command()
