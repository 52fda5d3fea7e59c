"""Pictures of rows, in SVG: series over logarithmic axes, and bars cut into shares."""

from collections.abc import Sequence
from math import isfinite
from typing import Any, NamedTuple

from mixpert_py.tuner.report.scale import LogScale, tick_text
from samples.papers.exhibit import Bars, Lines, Row
from samples.papers.template import template

WIDTH, HEIGHT = 760, 360
LEFT, RIGHT, TOP, BOTTOM = 64, 540, 36, 312
LEGEND, LINE = 560, 17  # where the legend begins, and the height of its lines
COLORS = 7  # level-0 … level-6 of the page's styles
DASHES = (None, "5 3", "1.5 2.5", "8 3 1.5 3")
BAR, GAP, BAR_LEFT = 18, 8, 200
MOST_TICKS = 8
SIZES = {
    name: globals()[name]
    for name in ("WIDTH", "HEIGHT", "LEFT", "RIGHT", "TOP", "BOTTOM", "LEGEND", "LINE", "BAR_LEFT")
}

# Beside those of the report's page, whose classes these pictures share.
STYLE = """
.plane .series { fill: none; stroke: var(--level); stroke-width: 1.6 }
.plane .dot { fill: var(--level); stroke: var(--ground); stroke-width: .8 }
.plane .hollow { fill: var(--ground); stroke: var(--level); stroke-width: 1.6 }
.plane .mark { stroke: var(--over); stroke-width: 1.3; stroke-dasharray: 6 4 }
.plane .mark-name { fill: var(--over) }
.bars { display: block; width: 100%; min-width: 36rem; padding: .25rem }
.bars text { font: 12px system-ui, "DejaVu Sans", sans-serif; fill: var(--soft) }
.bars rect { fill: var(--level); stroke: var(--ground) }
@media print {
  .bars { min-width: 0; break-inside: avoid }
}
"""


class Series(NamedTuple):
    """color, dash: numbers of the first key of its name, and of the others."""

    name: str
    color: int
    dash: int
    places: list[tuple[float, float]]


def lines(rows: Sequence[Row], how: Lines) -> str:
    """The series, in the order of the rows. What is no positive number has no place.

    The first of the keys that name a series gives it its colour, the others its dashes.
    """
    series = _series(rows, how)
    if not series:
        return ""
    places = [place for one in series for place in one.places]
    across = LogScale.of((x for x, _ in places), LEFT, RIGHT)
    up = LogScale.of([y for _, y in places] + [value for _, value in how.marks], BOTTOM, TOP)
    at = sorted({x for x, _ in places})
    ticks = at if how.joined and len(at) <= MOST_TICKS else across.ticks()
    return _drawn(
        "lines",
        height=max(HEIGHT, TOP + LINE * len(series) + 8),
        x_name=how.x.heading,
        y_name=how.y.heading,
        joined=how.joined,
        across=[(across(tick), tick_text(tick)) for tick in ticks],
        up=[(up(tick), tick_text(tick)) for tick in up.ticks()],
        marks=[(up(value), f"{name}: {value:g}") for name, value in how.marks],
        series=[
            {
                "name": one.name,
                "color": _color(one.color),
                "dot": "dot hollow" if one.color // COLORS % 2 else "dot",
                "dash": DASHES[one.dash % len(DASHES)],
                "points": [(across(x), up(y), _tooltip(one, how, x, y)) for x, y in one.places],
            }
            for one in series
        ],
    )


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


def _series(rows: Sequence[Row], how: Lines) -> list[Series]:
    series: dict[str, Series] = {}
    kinds: tuple[dict[Any, int], dict[Any, int]] = ({}, {})
    for row in rows:
        x, y = (_number(row.get(c.key), c.factor) for c in (how.x, how.y))
        if x and y:
            first, *rest = (row[key] for key in how.by)
            color = kinds[0].setdefault(first, len(kinds[0]))
            dash = kinds[1].setdefault(tuple(rest), len(kinds[1]))
            name = named(row, how.by)
            series.setdefault(name, Series(name, color, dash, [])).places.append((x, y))
    return list(series.values())


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
