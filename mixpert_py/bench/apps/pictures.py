"""Results of `mixpert bench apps` as two pictures with a row for each application: how many times
as fast as cuBLAS FP32 it is in each mode, and the error of its results.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import count
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mixpert_py.bench import pictures
from mixpert_py.bench.apps import modes
from mixpert_py.bench.apps.summary import geometric_mean, modes_of, speedup, summary
from mixpert_py.bench.pictures import Theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Record = dict[str, Any]
Rows = Mapping[str, Mapping[str, float | None]]  # a row's name → mode → its value

SPEED, ACCURACY = "apps-speed", "apps-accuracy"
LEAST_ERROR = 1e-16  # what is exact is drawn there
MARKERS = {modes.FP32: "s", modes.TF32: "D", modes.FAITHFUL: "o", modes.TUNED: "o"}
SIZES = {modes.FP32: 5.0, modes.TF32: 6.0, modes.FAITHFUL: 7.0, modes.TUNED: 11.0}
ROW = 19.0  # points: the height of a row
REST = 118.0  # points: the height of titles, legend and axis


def draw(records: Sequence[Record], device: str, folder: Path) -> list[Path]:
    """Draw both pictures into a folder. Raises MixPertError without matplotlib."""
    makers = {SPEED: _speed, ACCURACY: _accuracy}
    return pictures.draw(
        {name: partial(make, records, device) for name, make in makers.items()}, folder
    )


def speed_alternative(records: Sequence[Record], device: str) -> str:
    """The message of the picture of speeds, as a sentence for its alternative text."""
    means = summary(records)
    said = [
        f"{means[mode]['mean']:.1f} times as fast {how}"
        for mode, how in ((modes.FAITHFUL, "without a plan"), (modes.TUNED, "under tuned plans"))
    ]
    return f"Applications on one {device} are {' and '.join(said)} as in cuBLAS FP32, on average."


def accuracy_alternative(records: Sequence[Record]) -> str:
    """The message of the picture of errors, as a sentence for its alternative text."""
    found = [modes_of(record) for record in records]
    better = sum(_error(it, modes.FAITHFUL) <= _error(it, modes.FP32) < inf for it in found)
    within = sum(
        _error(it, modes.TUNED) <= r["budget"] for it, r in zip(found, records, strict=True)
    )
    return (
        f"Of {len(records)} applications, {better} are at least as accurate without a plan as in "
        f"cuBLAS FP32, and {within} stay within the budget of {records[0]['budget']:g} when tuned."
    )


def _error(found: Mapping[str, Record], mode: str) -> float:
    return float(found[mode]["error"]) if mode in found else inf


def _speed(records: Sequence[Record], device: str, theme: Theme) -> "Axes":
    shown = (modes.TF32, modes.FAITHFUL, modes.TUNED)
    rows = {r["name"]: {mode: speedup(r, mode) for mode in shown} for r in records}
    rows["geometric mean"] = {
        mode: geometric_mean(speed for row in rows.values() if (speed := row[mode]) is not None)
        for mode in shown
    }
    axes = _rows(rows, theme, "Speed of whole applications", f"GPU time on one {device}")
    axes.axvline(1.0, color=theme.quiet, linewidth=1.2)
    axes.set_xlim(left=0.0)
    axes.xaxis.set_major_formatter("{x:g}×")
    axes.set_xlabel("times as fast as cuBLAS FP32")
    return axes


def _accuracy(records: Sequence[Record], device: str, theme: Theme) -> "Axes":
    rows = {
        record["name"]: {
            name: max(float(mode["error"]), LEAST_ERROR) for name, mode in modes_of(record).items()
        }
        for record in records
    }
    axes = _rows(rows, theme, "Accuracy of whole applications", f"on one {device}")
    errors = [error for row in rows.values() for error in row.values()] or [1.0]
    pictures.show_errors(axes, "x", min(errors) / 3, max(errors) * 3, every=2)
    axes.axvline(records[0]["budget"], color=theme.quiet, linewidth=1.2, linestyle="--")
    axes.set_xlabel("relative Frobenius error  (← more accurate; dashed: budget)")
    return axes


def _rows(rows: Rows, theme: Theme, title: str, subtitle: str) -> "Axes":
    """A row for each application, with a marker for each mode."""
    axes = pictures.axes(theme, REST + ROW * len(rows), title, subtitle)
    colors = {
        modes.FP32: theme.quiet,
        modes.TF32: theme.vendor,
        modes.FAITHFUL: theme.ours,
        modes.TUNED: theme.tuned,
    }
    for mode, marker in MARKERS.items():
        found = [
            (value, place)
            for place, row in zip(count(), rows.values())
            if (value := row.get(mode)) is not None
        ]
        if found:
            axes.plot(
                *zip(*found, strict=True),
                linestyle="",
                label=mode,
                marker=marker,
                markersize=SIZES[mode],
                color=colors[mode],
                # A ring, so that what lies inside is seen.
                markerfacecolor="none" if mode == modes.TUNED else colors[mode],
                markeredgewidth=1.8 if mode == modes.TUNED else 1.0,
                clip_on=False,
            )
    axes.set_yticks(range(len(rows)), list(rows))
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.figure.legend(
        loc="outside lower center", ncols=4, frameon=False, fontsize=pictures.SMALL,
        handletextpad=0.2, columnspacing=1.4,
    )  # fmt: skip
    return axes
