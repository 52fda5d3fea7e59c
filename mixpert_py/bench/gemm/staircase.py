"""The staircase of accuracy and speed: one step for each level that the tuner descends."""

from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from mixpert_py.bench.gemm.plane import Point, Sections, dominated, points
from mixpert_py.bench.gemm.sizes import BASE
from mixpert_py.bench.pictures import Label, Theme, axes, name_points, show_errors
from mixpert_py.runtime import schemes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "staircase"
SIZE = 4096
LADDER = "int8"
DEFAULT = "faithful"
COMPARED = (BASE, "cuBLAS TF32")
MARGIN = 3.5  # the axis reaches errors so many times as small, and as large, as those of the steps


def steps(sections: Sections) -> list[Point]:
    """The levels at SIZE³, the most accurate first, each faster than all before it."""
    return descending(points(sections, SIZE), {n for rung in schemes.ladder(LADDER) for n in rung})


def descending(found: Sequence[Point], levels: Collection[str]) -> list[Point]:
    """The points of these names that no point beats, the slowest and most accurate first."""
    beaten = dominated(found)
    kept = [point for point in found if point.name in levels and point.name not in beaten]
    return sorted(kept, key=lambda point: point.tflops)


def compared(sections: Sections) -> list[Point]:
    """The vendor's products at SIZE³ that the steps are compared with, its FP32 product first."""
    found = {point.name: point for point in points(sections, SIZE)}
    return [found[name] for name in COMPARED if name in found]


def is_known(sections: Sections) -> bool:
    """Return whether the results hold a step, and the vendor's FP32 product, at SIZE³."""
    return bool(steps(sections)) and any(point.name == BASE for point in compared(sections))


def alternative(sections: Sections, device: str) -> str:
    """The message of the staircase, as a sentence for its alternative text."""
    return sentence(steps(sections), compared(sections), f"{SIZE} × {SIZE} float32", device)


def sentence(stairs: Sequence[Point], vendor: Sequence[Point], matrices: str, device: str) -> str:
    """Return the message of a staircase as a sentence.

    stairs: its steps, the most accurate first. vendor: the vendor's products that they are compared
    with, first the one whose speed counts as 1.
    """
    base = vendor[0]
    said = [
        f"{step.name} is {step.tflops / base.tflops:.1f} times as fast at an error of "
        f"{step.error:.1e}"
        for step in stairs
    ]
    return (
        f"Each step down in accuracy is one up in speed. On one {device}, for {matrices} "
        f"matrices, where {base.name} has an error of {base.error:.1e}: {'; '.join(said)}."
    )


def picture(sections: Sections, device: str, theme: Theme) -> "Axes":
    """The staircase of float32 products."""
    what = f"float32 products of {SIZE} × {SIZE} matrices on one {device}"
    return drawn(steps(sections), compared(sections), what, theme)


def drawn(stairs: Sequence[Point], vendor: Sequence[Point], subtitle: str, theme: Theme) -> "Axes":
    """Draw steps from the upper left to the lower right: what lies below them is beaten by one.

    stairs, vendor: as in `sentence`.
    """
    base = vendor[0]
    found = [(step, step.tflops / base.tflops) for step in stairs]
    errors = [step.error for step, _ in found]
    bottom, top = max(errors) * MARGIN, min(errors) / MARGIN
    plot = axes(
        theme,
        340.0,
        "Each step down in accuracy is one up in speed",
        subtitle,
    )
    show_errors(plot, "y", top, bottom)
    plot.invert_yaxis()
    plot.set_ylabel("error, normal data  (more accurate →)")
    fastest = found[-1][1]
    every = 4 if fastest >= 4 else 1
    ticks = sorted({1, *range(every, int(fastest) + 1, every)})
    plot.set_xlim(0, fastest * 1.1)
    plot.set_xticks(ticks, [f"{tick}×" for tick in ticks])
    plot.set_xlabel(f"times as fast as {base.name}, packing included")
    path = [(0.0, errors[0])]
    for (_, speed), (here, below) in zip(found, pairwise([*errors, bottom]), strict=True):
        path += [(speed, here), (speed, below)]
    across, down = zip(*path, strict=True)
    plot.fill_between(across, down, bottom, color=theme.tint, linewidth=0)
    plot.plot(across, down, color=theme.ours, linewidth=2.0)
    labels = [
        Label(speed, step.error, _named(step.name, speed), theme.tuned, "bold")
        for step, speed in reversed(found)
    ]
    labels += [
        Label(point.tflops / base.tflops, point.error, point.name, theme.vendor) for point in vendor
    ]
    for label in labels:
        marker = "o" if label.weight == "bold" else "s"
        plot.plot(label.x, label.y, marker=marker, color=label.color, markersize=8.0)
    name_points(plot, labels, path)
    return plot


def _named(name: str, speed: float) -> str:
    return f"{name} {speed:.1f}×{', the default' if name == DEFAULT else ''}"
