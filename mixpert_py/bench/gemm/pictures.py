"""Results of `mixpert bench gemm` as pictures: the staircase, speed over size, and the plane of
accuracy and speed with every contender.
"""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mixpert_py.bench import pictures
from mixpert_py.bench.gemm import staircase
from mixpert_py.bench.gemm.plane import Point, Sections, cubes, dominated, is_judged, points, sizes
from mixpert_py.bench.pictures import Label, Theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SPEED, PLANE = "gemm-speed", "gemm-accuracy"
SHOWN = (
    *("faithful", "int8x6", "int8x3"),
    *("cuBLAS FP32", "cuBLAS TF32", "cuBLAS FP16", "cuBLAS FP64"),
)
TWINS = ("cuBLAS FP32 pedantic", "fp16x3", "fp16")  # of cuBLAS FP32, faithful and cuBLAS FP16
MARKERS = "osD^"
ROOM = 0.25  # of the width over the sizes, for the names of the lines


def draw(sections: Sections, device: str, folder: Path) -> list[Path]:
    """Draw the speeds and, where errors were judged, the plane and the staircase into a folder.

    Raises MixPertError without matplotlib.
    """
    makers = {SPEED: _speed}
    if is_judged(sections):
        makers[PLANE] = _plane
    if staircase.is_known(sections):
        makers[staircase.NAME] = staircase.picture
    bound = {name: partial(make, sections, device) for name, make in makers.items()}
    return pictures.draw(bound, folder)


def speed_alternative(sections: Sections, device: str) -> str:
    """The message of the picture of speeds, as a sentence for its alternative text."""
    largest = sizes(sections)[-1]
    at = {row["name"]: row["tflops"] for row in cubes(sections, "speed", largest)}
    said = ", ".join(f"{name} {at[name]:.0f}" for name in SHOWN if name in at)
    return f"TFLOP/s of products of {largest} × {largest} matrices on one {device}: {said}."


def plane_alternative(sections: Sections, device: str) -> str:
    """The message of the plane of accuracy and speed, as a sentence for its alternative text."""
    size, found = _judged(sections)
    beaten = dominated(found)
    best = ", ".join(point.name for point in found if point.name not in beaten)
    return (
        f"At {size} × {size} on one {device}, no contender is both faster and more accurate than "
        f"one of these, the fastest first: {best}."
    )


def _speed(sections: Sections, device: str, theme: Theme) -> "Axes":
    axes = pictures.axes(
        theme, 370.0, "Speed over size", f"float32 products of n × n matrices on one {device}"
    )
    found = sizes(sections)
    at: dict[str, list[tuple[int, float]]] = {}
    for size in found:
        for row in cubes(sections, "speed", size):
            at.setdefault(row["name"], []).append((size, row["tflops"]))
    labels = []
    for number, name in enumerate(name for name in SHOWN if name in at):
        is_vendor = name.startswith("cuBLAS")
        color = theme.vendor if is_vendor else theme.ours
        axes.plot(
            *zip(*at[name], strict=True),
            color=color,
            linestyle="--" if is_vendor else "-",
            marker=MARKERS[number % len(MARKERS)],
            markersize=5.5,
        )
        labels.append(Label(*at[name][-1], name, color))
    axes.set_xscale("log", base=2)
    axes.set_xlim(found[0] * 0.9, found[-1] * (found[-1] / found[0]) ** ROOM * 1.1)
    axes.set_xticks(found, [str(size) for size in found])
    axes.minorticks_off()
    axes.set_xlabel("n")
    axes.set_ylabel("TFLOP/s, packing and casts included")
    axes.set_ylim(bottom=0)
    pictures.name_points(axes, labels, at_right=True)
    return axes


def _plane(sections: Sections, device: str, theme: Theme) -> "Axes":
    size, found = _judged(sections)
    beaten = dominated(found)
    front = [point for point in found if point.name not in beaten]
    axes = pictures.axes(
        theme,
        480.0,
        "Accuracy against speed",
        f"n = {size} on one {device}; a hollow one is beaten in both by another",
    )
    errors = [point.error for point in found] or [1.0]
    pictures.show_errors(axes, "y", min(errors) / 2.5, max(errors) * 2)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("TFLOP/s, packing and casts included  (faster →)")
    axes.set_ylabel("error, normal data  (more accurate →)")
    path = _corners(front)
    axes.plot(*zip(*path, strict=True), color=theme.quiet, linewidth=1.0, zorder=0)
    for point in found:
        color = _color(point, theme)
        axes.plot(
            point.tflops,
            point.error,
            marker="s" if point.kind == "vendor" else "o",
            color=color,
            markerfacecolor=theme.page if point.name in beaten else color,
            markersize=7.0,
        )
    speeds = [point.tflops for point in found] or [1.0]
    axes.set_xlim(min(speeds) / 1.2, max(speeds) * 1.25)
    ticks = [tick for tick in (50, 100, 200, 500, 1000) if min(speeds) < tick < max(speeds)]
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()
    labels = [
        Label(
            point.tflops,
            point.error,
            point.name,
            theme.quiet if point.name in beaten else _color(point, theme),
        )
        for point in found
    ]
    pictures.name_points(axes, labels, path)
    return axes


def _judged(sections: Sections) -> tuple[int, list[Point]]:
    """The size that the plane shows, and the contenders there, the fastest first."""
    known = {size: points(sections, size) for size in sizes(sections)}
    size = max((size for size in known if known[size] and size <= 8192), default=0)
    found = [point for point in known.get(size, []) if point.name not in TWINS]
    return size, sorted(found, key=lambda point: -point.tflops)


def _corners(front: list[Point]) -> list[tuple[float, float]]:
    """The corners of the line through the best, from the fastest to the most accurate."""
    corners = []
    for fast, good in zip(front, [*front[1:], None], strict=True):
        corners.append((fast.tflops, fast.error))
        if good is not None:
            corners.append((good.tflops, fast.error))
    return corners


def _color(point: Point, theme: Theme) -> str:
    return theme.vendor if point.kind == "vendor" else theme.ours
