"""Pictures of rows as inline SVG: series over logarithmic axes, and bars cut into shares."""

import io
import re
from collections.abc import Sequence
from html import escape
from math import ceil, isfinite
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

from mixpert_py.errors import visible
from samples.papers.exhibit import Bars, Lines, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_LINES = 8  # in one panel
MARKERS, DASHES = "osD^", ("-", "--", ":", "-.")
MAX_TICKS = 8
WIDTH = 7.2  # inches
METADATA = ("Creator", "Date", "Format", "Type")
SETTINGS: Any = {
    "svg.fonttype": "none",  # text stays text, in the page's own font
    "svg.hashsalt": "mixpert",  # the same picture has the same bytes
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 10.0,
    "grid.color": "#d9dde3",
    "legend.framealpha": 0,
}


class Series(NamedTuple):
    """number: of its name among those of the picture, by which it has its colour and its shape."""

    name: str
    number: int
    places: list[tuple[float, float]]


def lines(rows: Sequence[Row], how: Lines) -> str:
    """Panels of series, in the order of the rows. What is no positive number has no place.

    The first of the keys that name a series does so in its panel, and the others name the panel.
    All panels have the same axes, and at most MAX_LINES series that are joined by lines.
    """
    import matplotlib

    panels = _panels(rows, how)
    if not panels:
        return ""
    places = [place for _, shown in panels for one in shown for place in one.places]
    across = sorted({x for x, _ in places})
    up = [y for _, y in places] + [value for _, value in how.marks]
    with matplotlib.rc_context(SETTINGS):
        figure, axes = _figure(len(panels), 3.0)
        for plot, (name, shown) in zip(axes, panels, strict=True):
            for one in shown:
                dash = DASHES[one.number // 10 % len(DASHES)] if how.joined else "none"
                look = f"{MARKERS[one.number % len(MARKERS)]}C{one.number % 10}"
                x, y = zip(*one.places, strict=True)
                plot.plot(x, y, look, linestyle=dash, markersize=4, label=one.name)
            for mark, value in how.marks:
                plot.axhline(value, color="firebrick", linestyle="--", linewidth=1)
                plot.text(min(across), value, f"{mark}: {value:g}", color="firebrick", va="bottom")
            plot.set(xscale="log", yscale="log", title=name)
            plot.set(ylim=(min(up) / 1.5, max(up) * 1.5))
            plot.set(xlim=(min(across) / 1.1, max(across) * 1.1))
            if how.joined and len(across) <= MAX_TICKS:
                plot.set_xticks(across, [f"{x:g}" for x in across])
            plot.minorticks_off()
            plot.set(xlabel=how.x.heading, ylabel=how.y.heading)
            plot.legend(fontsize=7)
        return _svg(figure, f"{how.y.heading} over {how.x.heading}")


def bars(rows: Sequence[Row], how: Bars) -> str:
    """A bar a row, as long as all others: what counts is the shares."""
    import matplotlib

    with matplotlib.rc_context(SETTINGS):
        figure, (axes,) = _figure(1, 0.8 + 0.25 * len(rows))
        left = [0.0] * len(rows)
        names = [named(row, how.by) for row in rows]
        totals = [sum(row[part.key] for part in how.parts) for row in rows]
        for part in how.parts:
            widths = [row[part.key] / total for row, total in zip(rows, totals, strict=True)]
            axes.barh(names, widths, left=left, label=part.heading)
            left = [start + width for start, width in zip(left, widths, strict=True)]
        axes.invert_yaxis()
        axes.set_xlim(0, 1)
        axes.legend(ncols=len(how.parts), loc="lower left", bbox_to_anchor=(0, 1))
        return _svg(figure, "shares of " + ", ".join(part.heading for part in how.parts))


def named(row: Row, by: Sequence[str]) -> str:
    """The name of a row: sizes as such, all else as it is."""
    return ", ".join(f"N = {row[key]}" if key == "n" else str(row[key]) for key in by)


def _panels(rows: Sequence[Row], how: Lines) -> list[tuple[str, list[Series]]]:
    """The name and the series of every panel."""
    panels: dict[str, dict[str, Series]] = {}
    numbers: dict[str, int] = {}
    for row in rows:
        x, y = (_number(row.get(c.key), c.factor) for c in (how.x, how.y))
        if x and y:
            name, panel = named(row, how.by[:1]), named(row, how.by[1:])
            number = numbers.setdefault(name, len(numbers))
            series = panels.setdefault(panel, {})
            series.setdefault(name, Series(name, number, [])).places.append((x, y))
    most = MAX_LINES if how.joined else len(numbers)
    found = ((name, list(series.values())) for name, series in panels.items())
    return [(name, part) for name, series in found for part in _parts(series, most)]


def _parts(series: list[Series], most: int) -> list[list[Series]]:
    """The series in as few parts of like length as hold at most so many each."""
    each = ceil(len(series) / ceil(len(series) / most))
    return [series[at : at + each] for at in range(0, len(series), each)]


def _number(value: object, factor: float) -> float | None:
    """A positive finite number, or None."""
    if not isinstance(value, (int, float)) or not isfinite(value) or value <= 0:
        return None
    return value * factor


def _figure(count: int, height: float) -> "tuple[Figure, Sequence[Axes]]":
    """A figure with so many axes, two in a row where there are several. height: of one, inches."""
    from matplotlib.figure import Figure

    rows, across = (1, 1) if count == 1 else (-(-count // 2), 2)
    figure = Figure(figsize=(WIDTH, height * rows), layout="constrained")
    return figure, [figure.add_subplot(rows, across, at + 1) for at in range(count)]


def _svg(figure: "Figure", title: str) -> str:
    """The figure as markup, with a title for those who do not see it."""
    written = io.StringIO()
    figure.savefig(written, format="svg", transparent=True, metadata=dict.fromkeys(METADATA))
    text = visible(written.getvalue())
    # Several pictures stand in one page, and ids are the page's.
    own = f"{crc32(text.encode()):08x}"
    text = re.sub(r'(id="|url\(#|href="#)', rf"\g<1>p{own}", text)
    label = escape(visible(title))
    return (
        f'<div class="picture" role="img" aria-label="{label}">{text[text.index("<svg") :]}</div>'
    )
