"""Pictures of rows, in SVG: series over logarithmic axes, and bars cut into shares."""

from collections.abc import Sequence
from math import ceil, isfinite
from typing import Any, NamedTuple

from mixpert_py.tuner.report.scale import LogScale, apart, tick_text
from samples.papers.exhibit import Bars, Lines, Row
from samples.papers.template import template

WIDTH, HEIGHT = 540, 300  # narrow: twelve pixels are still eight where the page is 400 wide
LEFT, RIGHT, TOP, BOTTOM = 52, 372, 36, 252
LEGEND, LINE = 384, 17  # where the legend begins, and the height of its lines
MOST_LINES = 8  # in one panel
COLORS = 7  # level-0 … level-6 of the page's styles
SHAPES = 4  # of points: circle, square, diamond, triangle; with the colours, 28 pairs
DASHES = (None, "5 3", "1.5 2.5", "8 3 1.5 3", "10 4")  # with the colours, 35 pairs
BAR, GAP, BAR_LEFT = 18, 8, 150
MOST_TICKS = 8
LETTER = 6.8  # pixels: the width of a character of a text, about
SIZES = {
    name: globals()[name]
    for name in ("WIDTH", "HEIGHT", "LEFT", "RIGHT", "TOP", "BOTTOM", "LEGEND", "LINE", "BAR_LEFT")
}

# Beside those of the report's page, whose classes these pictures share.
STYLE = """
.panels {
  display: grid; gap: .75rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr));
}
.panels figure {
  margin: 0; max-width: 44rem; padding: .25rem; border: 1px solid var(--line); border-radius: 8px;
}
.panels figcaption { padding: .4rem .75rem 0; font-weight: 600 }
.bars text { font: 12px system-ui, "DejaVu Sans", sans-serif; fill: var(--soft) }
.panels + .scroll, .panels + details { margin-top: .75rem }
.plane .series { fill: none; stroke: var(--level); stroke-width: 1.6 }
.plane .dot { fill: var(--level); stroke: var(--ground); stroke-width: .8 }
.plane .mark { stroke: var(--over); stroke-width: 1.3; stroke-dasharray: 6 4 }
.plane .mark-name {
  fill: var(--over); paint-order: stroke; stroke: var(--ground); stroke-width: 4px;
}
.bars { display: block; width: 100% }
.bars rect { fill: var(--level); stroke: var(--ground) }
@media (max-width: 40rem) {
  .panels .plane text, .bars text { font-size: 13px }
}
@media print {
  .panels figure { break-inside: avoid }
}
"""


class Series(NamedTuple):
    """number: of its name among those of the picture, by which it has its colour and its shape."""

    name: str
    number: int
    places: list[tuple[float, float]]


def lines(rows: Sequence[Row], how: Lines) -> str:
    """Panels of series, in the order of the rows. What is no positive number has no place.

    The first of the keys that name a series does so in its panel, and the others name the panel.
    All panels have the same axes, and at most MOST_LINES series that are joined by lines.
    """
    panels = _panels(rows, how)
    if not panels:
        return ""
    places = [place for _, shown in panels for one in shown for place in one.places]
    across = LogScale.of((x for x, _ in places), LEFT, RIGHT)
    up = LogScale.of([y for _, y in places] + [value for _, value in how.marks], BOTTOM, TOP)
    at = sorted({x for x, _ in places})
    ticks = at if how.joined and len(at) <= MOST_TICKS else across.ticks()
    return _drawn(
        "lines",
        x_name=how.x.heading,
        y_name=how.y.heading,
        joined=how.joined,
        across=apart([(across(tick), tick_text(tick)) for tick in ticks], LETTER),
        up=[(up(tick), tick_text(tick)) for tick in up.ticks()],
        marks=[(up(value), f"{name}: {value:g}") for name, value in how.marks],
        panels=[(name, _shown(shown, how, across, up)) for name, shown in panels],
    )


def _shown(shown: Sequence[Series], how: Lines, across: LogScale, up: LogScale) -> list[Any]:
    """The series of a panel as its template takes them: a name stands at the end of its line."""
    ends = [up(max(one.places)[1]) if how.joined else TOP for one in shown]
    return [
        {
            "name": one.name,
            "color": _color(one.number),
            "shape": one.number % SHAPES,
            "dash": DASHES[one.number % len(DASHES)],
            "y": y,
            "points": [(across(x), up(y), _tooltip(one, how, x, y)) for x, y in one.places],
        }
        for one, y in zip(shown, _spread(ends), strict=True)
    ]


def _spread(wanted: Sequence[float]) -> list[float]:
    """Places of the legend's lines, near those that are wanted and LINE apart."""
    found = list(wanted)
    order = sorted(range(len(wanted)), key=lambda at: (wanted[at], at))
    least = float(TOP)
    for at in order:
        found[at] = least = max(found[at], least)
        least += LINE
    most = float(BOTTOM)
    for at in reversed(order):
        found[at] = most = min(found[at], most)
        most -= LINE
    return found


def bars(rows: Sequence[Row], how: Bars) -> str:
    """A bar a row, as long as all others: what counts is the shares."""
    shown = []
    for row in rows:
        total = sum(row[part.key] for part in how.parts)
        x, parts = float(BAR_LEFT), []
        for number, part in enumerate(how.parts):
            share = row[part.key] / total
            width = share * (WIDTH - BAR_LEFT - 8)
            tooltip = f"{named(row, how.by)}: {part.heading} {share:.1%}"
            parts.append({"x": x, "width": width, "color": _color(number + 1), "tooltip": tooltip})
            x += width
        shown.append((named(row, how.by), parts))
    return _drawn(
        "bars",
        height=28 + (BAR + GAP) * len(rows),
        legend=[(_color(number + 1), part.heading) for number, part in enumerate(how.parts)],
        bars=shown,
        BAR=BAR,
        STEP=BAR + GAP,
    )


def named(row: Row, by: Sequence[str]) -> str:
    """The name of a row: sizes as such, all else as it is."""
    return ", ".join(f"N = {row[key]}" if key == "n" else str(row[key]) for key in by)


def _drawn(macro: str, **values: Any) -> str:
    """The SVG that a macro of the template makes of these values, as markup."""
    found: str = getattr(template("chart.html.jinja").module, macro)({**SIZES, **values})
    return found


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
    most = MOST_LINES if how.joined else len(numbers)
    return [
        (name, part)
        for name, series in panels.items()
        for part in _parts(list(series.values()), most)
    ]


def _parts(series: list[Series], most: int) -> list[list[Series]]:
    """The series in as few parts of like length as hold at most so many each."""
    each = ceil(len(series) / ceil(len(series) / most))
    return [series[at : at + each] for at in range(0, len(series), each)]


def _tooltip(one: Series, how: Lines, x: float, y: float) -> str:
    parts = (f"{c.heading} {tick_text(float(f'{v:.3g}'))}" for c, v in ((how.x, x), (how.y, y)))
    return f"{one.name}: {', '.join(parts)}"


def _number(value: object, factor: float) -> float | None:
    """A positive finite number, or None."""
    if not isinstance(value, (int, float)) or not isfinite(value) or value <= 0:
        return None
    return value * factor


def _color(number: int) -> str:
    return f"level-{number % COLORS}"
