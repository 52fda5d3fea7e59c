"""Pictures of rows, in SVG: series over logarithmic axes, and bars cut into shares."""

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Any, NamedTuple

from mixpert_py.tuner.report.scale import LogScale, tick_text
from samples.papers.exhibit import Bars, Column, Lines, Row
from samples.papers.html import EMPTY, Html, el

WIDTH, HEIGHT = 760, 360
LEFT, RIGHT, TOP, BOTTOM = 64, 540, 36, 312
LEGEND, LINE = 560, 17  # where the legend begins, and the height of its lines
COLORS = 7  # level-0 … level-6 of the page's styles
DASHES = (None, "5 3", "1.5 2.5", "8 3 1.5 3")
BAR, GAP, BAR_LEFT = 18, 8, 200

MOST_TICKS = 8

# Beside those of the report's page, whose classes these pictures share.
STYLE = """
.plane .series { fill: none; stroke: var(--level); stroke-width: 1.6 }
.plane .dot { fill: var(--level); stroke: var(--ground); stroke-width: .8 }
.plane .hollow { fill: var(--ground); stroke: var(--level); stroke-width: 1.6 }
.plane .mark { stroke: var(--over); stroke-width: 1.3; stroke-dasharray: 6 4 }
.plane .mark-name { fill: var(--over) }
.bars rect { fill: var(--level) }
"""


class Series(NamedTuple):
    """color, dash: numbers of what its first key, and the others, say."""

    name: str
    color: int
    dash: int
    places: list[tuple[float, float]]


def lines(rows: Sequence[Row], how: Lines) -> Html:
    """The series, in the order of the rows. What is no positive number has no place.

    The first of the keys that name a series gives it its colour, the others its dashes.
    """
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
    if not series:
        return EMPTY
    places = [place for some in series.values() for place in some.places]
    across = LogScale.of((x for x, _ in places), LEFT, RIGHT)
    values = [y for _, y in places] + [value for _, value in how.marks]
    up = LogScale.of(values, BOTTOM, TOP)
    at = sorted({x for x, _ in places})
    ticks = at if how.joined and len(at) <= MOST_TICKS else across.ticks()
    body = [*_grid(across, up, ticks), *_names(how.x, how.y), *_marks(how, up)]
    for number, one in enumerate(series.values()):
        body.append(_series(number, one, across, up, how))
    height = max(HEIGHT, TOP + LINE * len(series) + 8)
    title = el("title", f"{how.y.heading} over {how.x.heading}")
    return el("svg", title, *body, class_="plane", viewBox=f"0 0 {WIDTH} {height}", role="img")


def bars(rows: Sequence[Row], how: Bars) -> Html:
    """A bar a row, as long as all others: what counts is the shares."""
    body: list[Html] = []
    for number, part in enumerate(how.parts):
        left = BAR_LEFT + 110 * number
        body.append(el("rect", x=left, y=4, width=12, height=12, class_=_color(number + 1)))
        body.append(el("text", part.heading, x=left + 18, y=14))
    y = 28
    for row in rows:
        body.append(el("text", named(row, how.by), x=BAR_LEFT - 8, y=y + 13, text_anchor="end"))
        total = sum(row[part.key] for part in how.parts)
        x = float(BAR_LEFT)
        for number, part in enumerate(how.parts):
            share = row[part.key] / total
            width = share * (WIDTH - BAR_LEFT - 8)
            tooltip = el("title", f"{named(row, how.by)}: {part.heading} {share:.1%}")
            box = el("rect", x=x, y=y, width=width, height=BAR, class_=_color(number + 1))
            body.append(el("g", tooltip, box))
            x += width
        y += BAR + GAP
    return el("svg", *body, class_="bars", viewBox=f"0 0 {WIDTH} {y}", role="img")


def named(row: Row, by: Sequence[str]) -> str:
    """The name of a row: sizes as such, all else as it is."""
    return ", ".join(f"N = {row[key]}" if key == "n" else str(row[key]) for key in by)


def _number(value: object, factor: float) -> float | None:
    """A positive finite number, or None."""
    if not isinstance(value, (int, float)) or not isfinite(value) or value <= 0:
        return None
    return value * factor


def _color(number: int) -> str:
    return f"level-{number % COLORS}"


def _series(number: int, one: Series, across: LogScale, up: LogScale, how: Lines) -> Html:
    parts: list[Html] = []
    dash = DASHES[one.dash % len(DASHES)]
    dot = "dot hollow" if one.color // COLORS % 2 else "dot"
    if how.joined:
        path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in one.places)
        parts.append(el("polyline", class_="series", points=path, stroke_dasharray=dash))
    for x, y in one.places:
        coordinates = (
            f"{c.heading} {tick_text(float(f'{v:.3g}'))}" for c, v in ((how.x, x), (how.y, y))
        )
        title = el("title", f"{one.name}: {', '.join(coordinates)}")
        parts.append(el("circle", title, class_=dot, cx=across(x), cy=up(y), r=3.5))
    y = TOP + LINE * number
    if how.joined:
        ends = {"x1": LEGEND, "x2": LEGEND + 22, "y1": y, "y2": y}
        parts.append(el("line", class_="series", stroke_dasharray=dash, **ends))
    parts.append(el("circle", class_=dot, cx=LEGEND + 11, cy=y, r=3.5))
    parts.append(el("text", one.name, x=LEGEND + 30, y=y + 4))
    return el("g", *parts, class_=_color(one.color))


def _grid(across: LogScale, up: LogScale, ticks: Sequence[float]) -> Iterator[Html]:
    for tick in ticks:
        x = across(tick)
        yield el("line", class_="grid", x1=x, x2=x, y1=TOP, y2=BOTTOM)
        yield el("text", tick_text(tick), x=x, y=BOTTOM + 18, text_anchor="middle")
    for tick in up.ticks():
        y = up(tick)
        yield el("line", class_="grid", x1=LEFT, x2=RIGHT, y1=y, y2=y)
        yield el("text", tick_text(tick), x=LEFT - 8, y=y + 4, text_anchor="end")
    yield el("path", class_="axis", d=f"M{LEFT} {TOP}V{BOTTOM}H{RIGHT}")


def _names(x: Column, y: Column) -> Iterator[Html]:
    yield el("text", y.heading, class_="name", x=12, y=20)
    yield el("text", x.heading, class_="name", x=RIGHT, y=HEIGHT - 10, text_anchor="end")


def _marks(how: Lines, up: LogScale) -> Iterator[Html]:
    for name, value in how.marks:
        y = up(value)
        yield el("line", class_="mark", x1=LEFT, x2=RIGHT, y1=y, y2=y)
        text = f"{name}: {value:g}"
        yield el("text", text, class_="mark-name", x=RIGHT - 4, y=y - 5, text_anchor="end")
