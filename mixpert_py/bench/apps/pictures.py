"""Results of `mixpert bench apps` as pictures: bars of speed-ups, and accuracy against speed.

Each is drawn twice, for light and for dark pages.
"""

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mixpert_py.bench.apps import modes
from mixpert_py.bench.apps.summary import geometric_mean, modes_of, speedup
from mixpert_py.bench.gemm.pictures import SETTINGS
from mixpert_py.errors import MixPertError

Record = dict[str, Any]

BARS, PLANE = "apps-speed", "apps-accuracy"
LEAST_ERROR = 1e-16  # what is exact is drawn there
MARKERS = {modes.FP32: "s", modes.TF32: "D", modes.FAITHFUL: "o", modes.TUNED: "^"}
COLORS = {
    "": {modes.FP32: "#6b6b6b", modes.TF32: "#b03a2e", modes.FAITHFUL: "#0b6e4f"}
    | {modes.TUNED: "#1f4e9c", "text": "#1f1f1f", "grid": "#e6e6e6", "page": "#ffffff"},
    "-dark": {modes.FP32: "#a6a6a6", modes.TF32: "#e8796b", modes.FAITHFUL: "#4cc79a"}
    | {modes.TUNED: "#79a8ff", "text": "#e6e6e6", "grid": "#30363d", "page": "#0d1117"},
}


def markdown(name: str, alternative: str, folder: str) -> str:
    """Markdown of a picture that follows the reader's light or dark setting."""
    return (
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="{folder}/{name}-dark.svg">'
        f'<img alt="{alternative}" src="{folder}/{name}.svg"></picture>\n'
    )


def draw(records: Sequence[Record], device: str, folder: Path) -> list[Path]:
    """Draw both pictures into a folder. Raises MixPertError without matplotlib."""
    if importlib.util.find_spec("matplotlib") is None:
        raise MixPertError("pictures need matplotlib: pip install 'mixpert-py[report]'")
    import matplotlib

    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    for suffix, colors in COLORS.items():
        with matplotlib.rc_context({**SETTINGS, **_page(colors)}):
            for name, make in ((BARS, _bars), (PLANE, _plane)):
                path = folder / f"{name}{suffix}.svg"
                make(records, device, colors).savefig(
                    path, format="svg", metadata={"Date": None}, bbox_inches="tight"
                )
                drawn.append(path)
    return drawn


def _bars(records: Sequence[Record], device: str, colors: Mapping[str, str]) -> Any:
    axes = _axes(colors)
    shown = (modes.TF32, modes.FAITHFUL, modes.TUNED)
    names = [record["name"] for record in records]
    for i, mode in enumerate(shown):
        factors = [speedup(record, mode) for record in records]
        mean = geometric_mean(factor for factor in factors if factor is not None)
        places = [x + 0.27 * (i - 1) for x in range(len(names) + 1)]
        heights = [factor or 0.0 for factor in (*factors, mean)]
        axes.bar(places, heights, width=0.25, color=colors[mode], label=mode)
    axes.axhline(1.0, color=colors[modes.FP32], linewidth=0.8)
    axes.set_xticks(range(len(names) + 1), [*names, "geometric mean"], rotation=40, ha="right")
    axes.set_ylabel("times as fast as cuBLAS FP32")
    axes.set_title(f"Whole applications on one {device}")
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return axes.figure


def _plane(records: Sequence[Record], device: str, colors: Mapping[str, str]) -> Any:
    axes = _axes(colors)
    for mode, marker in MARKERS.items():
        points = [
            (speedup(record, mode), max(float(modes_of(record)[mode]["error"]), LEAST_ERROR))
            for record in records
            if speedup(record, mode) is not None
        ]
        if points:
            axes.scatter(
                *zip(*points, strict=True), marker=marker, s=26, color=colors[mode], label=mode
            )
    for record in records:
        factor = speedup(record, modes.TUNED)
        if factor is not None:
            error = max(float(modes_of(record)[modes.TUNED]["error"]), LEAST_ERROR)
            axes.annotate(
                record["name"],
                (factor, error),
                xytext=(5, 3),
                textcoords="offset points",
                fontsize=7.0,
                color=colors[modes.TUNED],
            )
    axes.set_yscale("log")
    axes.invert_yaxis()
    axes.set_xlabel("times as fast as cuBLAS FP32 → faster")
    axes.set_ylabel("relative Frobenius error of the results → more accurate")
    axes.set_title(f"Applications on one {device}: accuracy against speed")
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return axes.figure


def _axes(colors: Mapping[str, str]) -> Any:
    from matplotlib.figure import Figure

    axes = Figure(figsize=(7.5, 4.2), dpi=72).add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color=colors["grid"], linewidth=0.6)
    axes.set_axisbelow(True)
    return axes


def _page(colors: Mapping[str, str]) -> Any:
    """matplotlib's settings for a page of these colours."""
    written = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    filled = ("figure.facecolor", "axes.facecolor", "savefig.facecolor")
    return dict.fromkeys(written, colors["text"]) | dict.fromkeys(filled, colors["page"])
