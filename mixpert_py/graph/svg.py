"""Graphs as one SVG picture: a drawing for each file, one below the other."""

import unicodedata
from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files

from mixpert_py.errors import SourceError
from mixpert_py.graph.graph import Edge, Graph, percent, printable, shown
from mixpert_py.graph.layout import BOX_HEIGHT, Layout, Point, TooLargeError, layout

COLORS = 8  # of edges, in picture.css


def style() -> str:
    """The style sheet of a picture. `.c0` … are edges and `.a0` … their arrows, by producer."""
    return files("mixpert_py.graph").joinpath("picture.css").read_text("utf-8").rstrip("\n")


def focus(name: str) -> str:
    """A rule that fades all other edges while the operator of this id is hovered."""
    others = f'.edge:not([data-producer="{name}"]):not([data-consumer="{name}"])'
    return f'svg:has([id="{name}"]:hover) {others} {{ opacity: 0.08 }}'


MARGIN = 24.0
HEADING = 28.0
LOOP = 18.0  # how far the arrow from an operator to itself stands out
CHARACTER = 7.3  # the width of a monospace character at the size that the style gives
BAR = 4.0  # the height of a share of time


def svg(graphs: Sequence[Graph]) -> str:
    """Operators as boxes, edges as arrows in their producer's colour, dashed where they lead back,
    dotted where a profile has not seen them.

    Edges inside a cycle are heavier, and its operators say which one it is. Hovering over an
    operator or an edge shows all that is known of it, and leaves an operator's own edges only. The
    picture follows the light or dark setting, has no script and needs no other file. Equal graphs
    give equal pictures. Raises SourceError if a graph is too large to be drawn.
    """
    body: list[str] = []
    rules: list[str] = []
    width, height = _text_width("no products"), MARGIN
    for file, graph in enumerate(graphs, 1):
        if graph.operators:
            placed = _layout(graph)
            body += _drawing(graph, placed, file, height)
            rules += [focus(f"{file}-{at + 1}") for at in range(len(graph.operators))]
            height += HEADING + placed.height + MARGIN
            width = max(width, placed.width + LOOP, _text_width(printable(graph.path)))
    if not body:
        body.append(_text(MARGIN, height + 12, "no products"))
        height += HEADING
    width += 2 * MARGIN
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
            f'width="{width:.0f}" height="{height:.0f}">',
            "<style>",
            style(),
            *rules,
            "</style>",
            "<defs>",
            *map(_arrow, range(COLORS)),
            "</defs>",
            '<rect class="page" width="100%" height="100%"/>',
            *body,
            "</svg>",
            "",
        ]
    )


def _layout(graph: Graph) -> Layout:
    try:
        return layout(_widths(graph), graph.edges)
    except TooLargeError:
        raise SourceError(
            f"{graph.path}: {len(graph.operators)} products and {len(graph.edges)} edges are too "
            "many to draw; --format text, dot or json shows them"
        ) from None


def _widths(graph: Graph) -> list[float]:
    """The width of each operator's box: that of the longer of its two lines."""
    return [
        max(_text_width(f"{place}  {aside}"), _text_width(expression)) + 2 * CHARACTER
        for place, aside, expression in _labels(graph)
    ]


def _labels(graph: Graph) -> Iterator[tuple[str, str, str]]:
    """The three texts of each box: the operator's place, its cycle and share, its expression."""
    for at, operator in enumerate(graph.operators):
        place = f"{at + 1} {shown(operator.function)}:{operator.place}"
        aside = [f"↻{graph.cycle_of[at]}"] if at in graph.cycle_of else []
        aside += [] if operator.share is None else [percent(operator.share)]
        yield place, " ".join(aside), shown(operator.expression)


def _drawing(graph: Graph, placed: Layout, file: int, top: float) -> Iterator[str]:
    widths = _widths(graph)
    yield _text(MARGIN, top + 12, printable(graph.path))
    yield f'<g transform="translate({MARGIN:.0f} {top + HEADING:.1f})">'
    for edge in graph.edges:
        yield _edge(graph, edge, placed, widths, file)
    for at, label in enumerate(_labels(graph)):
        yield from _box(graph, at, label, placed.corners[at], widths[at], file)
    yield "</g>"


def _edge(graph: Graph, edge: Edge, placed: Layout, widths: Sequence[float], file: int) -> str:
    producer, consumer = edge
    cycle = graph.cycle_of
    points = placed.wires.get(edge)
    path = _curve(points) if points else _loop(placed.corners[producer], widths[producer])
    kinds = ["edge", f"c{producer % COLORS}"]
    if edge in placed.upward or producer == consumer:
        kinds.append("upward")
    if producer in cycle and cycle[producer] == cycle.get(consumer):
        kinds.append("cycle")
    note = ""
    if graph.seen is not None:
        kinds += ["unseen"] * (edge not in graph.seen)
        note = "\nseen in the run" if edge in graph.seen else "\nnot seen in the run"
        note += ", not in the source" * (edge in graph.extra)
    one, other = (f"{at + 1} {graph.operators[at].expression}" for at in edge)
    return (
        f'<path class="{" ".join(kinds)}" data-producer="{file}-{producer + 1}" '
        f'data-consumer="{file}-{consumer + 1}" '
        f'marker-end="url(#arrow{producer % COLORS})" d="{path}">'
        f"<title>{_escaped(one)} → {_escaped(other)}{note}</title></path>"
    )


def _box(
    graph: Graph, at: int, label: tuple[str, str, str], corner: Point, width: float, file: int
) -> Iterator[str]:
    operator = graph.operators[at]
    place, aside, expression = label
    x, y = corner
    kind = "operator cyclic" if at in graph.cycle_of else "operator"
    yield f'<g class="{kind}" id="{file}-{at + 1}"><title>{_escaped(_whole(graph, at))}</title>'
    yield (
        f'<rect class="box" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
        f'height="{BOX_HEIGHT}" rx="4"/>'
    )
    yield _text(x + CHARACTER, y + 16, place, "place")
    yield _text(x + CHARACTER, y + 33, expression, "expression")
    if aside:
        yield _text(x + width - CHARACTER - _text_width(aside), y + 16, aside, "aside")
    if operator.share is not None:
        inside = width - 2 * CHARACTER
        for name, part in (("track", 1.0), ("share", operator.share)):
            yield (
                f'<rect class="{name}" x="{x + CHARACTER:.1f}" y="{y + BOX_HEIGHT - BAR - 4:.1f}" '
                f'width="{inside * part:.1f}" height="{BAR}"/>'
            )
    yield "</g>"


def _whole(graph: Graph, at: int) -> str:
    """The tooltip of an operator: place, expression, id, share and cycle."""
    operator = graph.operators[at]
    lines = [
        f"{at + 1} {operator.function}:{operator.place}:{operator.column}",
        operator.expression,
        operator.id,
    ]
    if operator.share is not None:
        lines.append(f"{percent(operator.share)} of the time of all products")
    if number := graph.cycle_of.get(at):
        members = (str(one + 1) for one in graph.cycles[number - 1])
        lines.append(f"cycle {number}: {', '.join(members)}")
    return "\n".join(map(printable, lines))


def _curve(points: Sequence[Point]) -> str:
    """A path through the points that is vertical in each of them."""
    (x, y), *rest = points
    path = [f"M{x:.1f} {y:.1f}"]
    for to_x, to_y in rest:
        middle = (y + to_y) / 2
        if to_x == x:
            path.append(f"V{to_y:.1f}")
        else:
            path.append(f"C{x:.1f} {middle:.1f} {to_x:.1f} {middle:.1f} {to_x:.1f} {to_y:.1f}")
        x, y = to_x, to_y
    return " ".join(path)


def _loop(corner: Point, width: float) -> str:
    """A path out of the right side of a box and back into it."""
    x, y = corner[0] + width, corner[1] + BOX_HEIGHT / 2
    far = x + LOOP
    return (
        f"M{x:.1f} {y + 10:.1f} C{far:.1f} {y + 16:.1f} {far:.1f} {y - 16:.1f} {x:.1f} {y - 10:.1f}"
    )


def _arrow(color: int) -> str:
    # In pixels, not line widths: a heavier edge would have a head that hides its neighbours'.
    return (
        f'<marker id="arrow{color}" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="9" '
        'markerHeight="9" markerUnits="userSpaceOnUse" orient="auto">'
        f'<path class="a{color}" d="M0 0 L8 4 L0 8 z"/></marker>'
    )


def _text(x: float, y: float, text: str, kind: str = "heading") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{escape(text)}</text>'


def _text_width(text: str) -> float:
    return CHARACTER * sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _escaped(text: str) -> str:
    return escape(text)
