"""Results of `mixpert bench gemm` as two pictures: speed over size, and accuracy against speed."""

import importlib.util
from pathlib import Path
from typing import Any

from mixpert_py.bench.gemm.plane import Point, Sections, cubes, dominated, is_judged, points, sizes
from mixpert_py.errors import MixPertError

# The text stays text: small files, and the reader's own font. The same result, the same bytes.
SETTINGS: Any = {"svg.fonttype": "none", "svg.hashsalt": "mixpert", "font.size": 9.0}
SHOWN = (
    *("faithful", "int8x6", "int8x3", "fp16x3"),
    *("cuBLAS FP32", "cuBLAS TF32", "cuBLAS FP16", "cuBLAS FP64"),
)
RINGS = (0, 1, -1, 2, -2, 3, -3)  # lines up or down from the point, where a label is tried
OURS, VENDOR, QUIET = "#0b6e4f", "#b03a2e", "#9a9a9a"


def draw(sections: Sections, device: str, folder: Path) -> list[Path]:
    """gemm-speed.svg and, where errors were judged, gemm-accuracy.svg in a folder.

    Raises MixPertError without matplotlib.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise MixPertError("pictures need matplotlib: pip install 'mixpert-py[report]'")
    import matplotlib

    folder.mkdir(parents=True, exist_ok=True)
    makers = {"gemm-speed.svg": _speed}
    if is_judged(sections):
        makers["gemm-accuracy.svg"] = _plane
    with matplotlib.rc_context(SETTINGS):
        for name, make in makers.items():
            figure = make(sections, device)
            figure.savefig(
                folder / name, format="svg", metadata={"Date": None}, bbox_inches="tight"
            )
    return [folder / name for name in makers]


def _speed(sections: Sections, device: str) -> Any:
    figure, axes = _axes()
    found = sizes(sections)
    at: dict[str, list[tuple[int, float]]] = {}
    for size in found:
        for row in cubes(sections, "speed", size):
            at.setdefault(row["name"], []).append((size, row["tflops"]))
    for name in SHOWN:
        if name in at:
            vendor = name.startswith("cuBLAS")
            axes.plot(
                *zip(*at[name], strict=True),
                label=name,
                color=VENDOR if vendor else OURS,
                alpha=0.45 + 0.55 / (1 + SHOWN.index(name) % 4),
                linestyle="--" if vendor else "-",
                marker="os^D"[SHOWN.index(name) % 4],
                markersize=4,
            )
    axes.set_xscale("log", base=2)
    axes.set_xticks(found, [str(size) for size in found])
    axes.set_xlabel("n of an n × n × n product")
    axes.set_ylabel("TFLOP/s, packing and casts included")
    axes.set_ylim(bottom=0)
    axes.set_title(f"Speed on one {device}")
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def _plane(sections: Sections, device: str) -> Any:
    figure, axes = _axes()
    known = {size: points(sections, size) for size in sizes(sections)}
    size = max((size for size in known if known[size] and size <= 8192), default=0)
    found = sorted(known.get(size, []), key=lambda point: -point.tflops)
    beaten = dominated(found)
    front = [point for point in found if point.name not in beaten]
    axes.step(
        [point.tflops for point in front],
        [point.error for point in front],
        where="post",
        color=QUIET,
        linewidth=0.8,
        zorder=0,
    )
    for point in found:
        color = VENDOR if point.kind == "vendor" else OURS
        axes.plot(
            point.tflops,
            point.error,
            marker="s" if point.kind == "vendor" else "o",
            color=color,
            markerfacecolor="white" if point.name in beaten else color,
            markersize=6,
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.margins(x=0.12, y=0.08)
    axes.invert_yaxis()
    axes.set_xlabel("TFLOP/s, packing and casts included → faster")
    axes.set_ylabel("relative Frobenius error, normal data → more accurate")
    axes.set_title(f"{size}³ on one {device}: what is hollow is beaten in both")
    _name(axes, found, beaten)
    return figure


def _name(axes: Any, found: list[Point], beaten: dict[str, str]) -> None:
    """A label at every point, inside, where it covers neither another point nor another label."""
    axes.autoscale_view()  # or the limits, and with them the places, would still change
    found = sorted(found, key=lambda point: point.kind == "scheme")  # cuBLAS's have long labels
    places = [axes.transData.transform((point.tflops, point.error)) for point in found]
    taken = [(x - 4, y - 4, x + 4, y + 4) for x, y in places]
    for point, (x, y) in zip(found, places, strict=True):
        text = _label(point, beaten)
        width, height = 4.6 * len(text), 10.0
        offsets = [(side, 10.0 * step - 4) for step in RINGS for side in (7.0, -7.0 - width)]
        boxes = [(x + dx, y + dy, x + dx + width, y + dy + height) for dx, dy in offsets]
        free = [
            i
            for i, box in enumerate(boxes)
            if box[0] > axes.bbox.x0 and not any(_meet(box, other) for other in taken)
        ]
        place = free[0] if free else 0
        taken.append(boxes[place])
        axes.annotate(
            text,
            (point.tflops, point.error),
            xytext=(boxes[place][0] - x, boxes[place][1] - y + 2),
            textcoords="offset points",
            color=QUIET if point.name in beaten else VENDOR if point.kind == "vendor" else OURS,
            fontsize=7.5,
        )


def _meet(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _label(point: Point, beaten: dict[str, str]) -> str:
    by = beaten.get(point.name)
    return f"{point.name} (by {by})" if by and point.kind == "vendor" else point.name


def _axes() -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 4.8), dpi=72)  # a pixel is a point
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#e6e6e6", linewidth=0.6)
    axes.set_axisbelow(True)
    return figure, axes
