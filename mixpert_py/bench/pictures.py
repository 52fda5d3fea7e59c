"""The shared part of the pictures of results: light and dark forms, and labels that keep clear."""

import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from math import ceil, floor, log10
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from mixpert_py.errors import MixPertError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

# The text stays text: small files, and the reader's own font. The same result, the same bytes.
SETTINGS: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "mixpert",
    "font.size": 12.0,
    "figure.constrained_layout.w_pad": 0.1,
    "figure.constrained_layout.h_pad": 0.06,
}
WIDTH = 525.0  # points, which browsers show as 700 pixels
LEFT = 0.015  # where titles begin, as a part of the width
SMALL = 11.0  # points: the smallest text; 8 pixels where the picture is shown 400 pixels wide
GAP = 8.0  # points between a point and its name
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True, slots=True)
class Theme:
    """The colours of a picture's light or dark form, and what its file's name ends in.

    page: the ground; quiet: what is beaten, or only compared with. Blue and orange can be told
    apart with every common kind of colour blindness, and `ours` from `tuned` by how light it is.
    """

    suffix: str
    page: str
    text: str
    grid: str
    quiet: str
    vendor: str
    ours: str
    tuned: str
    tint: str  # what lies below a staircase


LIGHT = Theme(
    "", "#ffffff", "#1f1f1f", "#e4e7eb", "#6b6b6b", "#b34700", "#1a6fb8", "#0a2f6b",
    "#dceafa",
)  # fmt: skip
DARK = Theme(
    "-dark", "#0d1117", "#e6e6e6", "#2b323b", "#9aa3ad", "#f2994a", "#5aa9f0", "#b9dcff",
    "#16304d",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Label:
    """A point, in the units of the axes, and the name that stands beside it."""

    x: float
    y: float
    text: str
    color: str
    weight: str = "normal"


def embedded(name: str, alternative: str, folder: str) -> str:
    """Markdown of a picture that follows the reader's light or dark setting.

    alternative: what the picture says, for those who do not see it: it stands in its place where a
    page's relative links lead nowhere, as on a package index.
    """
    return (
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="{folder}/{name}-dark.svg">'
        f'<img alt="{escape(alternative)}" src="{folder}/{name}.svg"></picture>\n'
    )


def draw(makers: Mapping[str, Callable[[Theme], "Axes"]], folder: Path) -> list[Path]:
    """Draw each picture, by its name, in its light and its dark form into a folder.

    Raises MixPertError without matplotlib.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise MixPertError("pictures need matplotlib: pip install 'mixpert-py[report]'")
    import matplotlib

    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    for name, make in makers.items():
        for theme in (LIGHT, DARK):
            with matplotlib.rc_context({**SETTINGS, **_colors(theme)}):
                drawn.append(folder / f"{name}{theme.suffix}.svg")
                _figure(make(theme)).savefig(drawn[-1], format="svg", metadata={"Date": None})
    return drawn


def axes(theme: Theme, height: float, title: str, subtitle: str) -> "Axes":
    """Empty axes under a title and a subtitle, in a figure of its own. height: in points."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.transforms import blended_transform_factory

    figure = Figure(figsize=(WIDTH / 72, height / 72), dpi=72, layout="constrained")
    FigureCanvasAgg(figure)  # measures texts
    found = figure.add_subplot()
    found.spines[["top", "right"]].set_visible(False)
    found.grid(color=theme.grid, linewidth=0.8)
    found.set_axisbelow(True)
    figure.suptitle(title, x=LEFT, ha="left", fontsize=15.0, weight="bold")
    line = found.set_title(subtitle, x=LEFT, ha="left", fontsize=SMALL, color=theme.quiet, pad=9.0)
    # Below the title, at the edge of the picture and not of its axes.
    across = blended_transform_factory(figure.transFigure, line.get_transform())
    line.set_transform(across)
    return found


def show_errors(axes: "Axes", axis: str, least: float, most: float, every: int = 1) -> None:
    """Make an axis, "x" or "y", one of errors from least to most, with every so many powers of ten
    as people write them: 10⁻⁷.
    """
    marked = range(ceil(log10(least)), floor(log10(most)) + 1, every)
    names = [f"10{str(power).translate(SUPERSCRIPTS)}" for power in marked]
    settings = {"scale": "log", "lim": (least, most), "ticks": [10.0**power for power in marked]}
    axes.set(**{f"{axis}{name}": value for name, value in settings.items()})
    axes.set(**{f"{axis}ticklabels": names})
    axes.minorticks_off()


def name_points(
    axes: "Axes",
    labels: Sequence[Label],
    path: Sequence[tuple[float, float]] = (),
    at_right: bool = False,
) -> None:
    """Write the name of each point beside it, inside the axes, where it covers no other name, no
    point and no part of the path; where there is no such place, where it covers the fewest.

    path: the corners of a line along the axes. at_right: names stand on the right of their points.
    What has the least room is named first.
    """
    from matplotlib.transforms import Bbox

    _figure(axes).draw_without_rendering()  # or the limits, and with them the places, would change
    _figure(axes).set_layout_engine("none")
    to_pixels = axes.transData.transform
    points = [to_pixels((label.x, label.y)) for label in labels]
    taken = [Bbox([to_pixels(one), to_pixels(other)]).padded(1.0) for one, other in pairwise(path)]
    taken += [Bbox.from_bounds(x - 5, y - 5, 10, 10) for x, y in points]
    rooms = []
    for label, (x, y) in zip(labels, points, strict=True):
        text = axes.text(
            label.x,
            label.y,
            label.text,
            color=label.color,
            fontsize=SMALL,
            weight=label.weight,
            va="bottom",
        )
        width, height = text.get_window_extent().size
        places = [
            Bbox.from_bounds(x + right, y + up, width, height)
            for right, up in _offsets(width, height, at_right)
        ]
        inside = [place for place in places if _is_inside(place, axes.bbox)] or places
        free = sum(not place.count_overlaps(taken) for place in inside)
        rooms.append((free, text, inside))
    for _, text, room in sorted(rooms, key=lambda it: it[0]):
        place = min(room, key=lambda it: it.count_overlaps(taken))
        x, y = axes.transData.inverted().transform(place.min)
        text.set_position((x, y))
        taken.append(place)


def _offsets(width: float, height: float, at_right: bool) -> Iterator[tuple[float, float]]:
    """How far right of its point, and above it, a name may begin: the best place first."""
    aside = (GAP,) if at_right else (GAP, -GAP - width)
    for lines in (0.0, 0.5, -0.5, 1.0, -1.0):
        yield from ((right, (lines - 0.5) * height) for right in aside)
    for up in () if at_right else (5.0, -5.0 - height):
        yield from (((part / 8 - 1) * width, up) for part in (4, 5, 3, 6, 2, 7, 1, 8, 0))


def _is_inside(box: "Bbox", outer: "Bbox") -> bool:
    return bool(outer.x0 < box.x0 and box.x1 < outer.x1 and outer.y0 < box.y0 and box.y1 < outer.y1)


def _figure(axes: "Axes") -> "Figure":
    return cast("Figure", axes.figure)


def _colors(theme: Theme) -> Any:
    """matplotlib's settings for a page of these colours."""
    written = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    filled = ("figure.facecolor", "axes.facecolor", "savefig.facecolor")
    return dict.fromkeys(written, theme.text) | dict.fromkeys(filled, theme.page)
