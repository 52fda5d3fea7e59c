"""Graphs as one SVG picture: a drawing for each file, one below the other."""

import unicodedata
from collections.abc import Iterator, Sequence
from html import escape

from mixpert_py.errors import SourceError
from mixpert_py.graph import Graph, Operator, printable, shown
from mixpert_py.graph_layout import BOX_HEIGHT, Layout, Point, TooLargeError, layout

MARGIN = 24.0
HEADING = 28.0
LOOP = 18.0  # how far the arrow from an operator to itself stands out
CHARACTER = 7.3  # the width of a monospace character at the size below
# Dark enough on white for a line of one pixel and a half; neighbours in the source differ.
COLORS = ("#1f4e9c", "#b3471d", "#2b7a3d", "#7a3b9a", "#8a6a00", "#0f7680", "#a82a5c", "#555555")

STYLE = """\
text { font: 12px monospace; fill: #1a1a1a }
.place { fill: #666666 }
.operator rect { fill: #f6f7f9; stroke: #8a8f98 }
.edge { fill: none; stroke-width: 1.5 }
.upward { stroke-dasharray: 5 3 }"""


def svg(graphs: Sequence[Graph]) -> str:
    """Operators as boxes, edges as arrows in their producer's colour, dashed where they lead back.

    Hovering over an operator shows its site id, over an edge the two operators' numbers. Equal
    graphs give equal pictures. Raises SourceError if a graph is too large to be drawn.
    """
    body: list[str] = []
    width, height = _text_width("no operators"), MARGIN
    for file, graph in enumerate(graphs, 1):
        if graph.operators:
            placed = _layout(graph)
            body += _drawing(graph, placed, file, height)
            height += HEADING + placed.height + MARGIN
            width = max(width, placed.width + LOOP, _text_width(printable(graph.path)))
    if not body:
        body.append(_text(MARGIN, height + 12, "no operators"))
        height += HEADING
    width += 2 * MARGIN
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
            f'width="{width:.0f}" height="{height:.0f}">',
            f"<style>\n{STYLE}\n</style>",
            "<defs>",
            *(_arrow(at, color) for at, color in enumerate(COLORS)),
            "</defs>",
            '<rect width="100%" height="100%" fill="white"/>',
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
            f"{graph.path}: {len(graph.operators)} operators and {len(graph.edges)} edges are too "
            "many to draw; --format text, dot or json shows them"
        ) from None


def _widths(graph: Graph) -> list[float]:
    """The width of each operator's box: that of the longer of its two lines."""
    return [
        max(map(_text_width, _label(at, operator))) + 2 * CHARACTER
        for at, operator in enumerate(graph.operators)
    ]


def _drawing(graph: Graph, placed: Layout, file: int, top: float) -> Iterator[str]:
    widths = _widths(graph)
    yield _text(MARGIN, top + 12, printable(graph.path))
    yield f'<g transform="translate({MARGIN:.0f} {top + HEADING:.1f})">'
    for edge in graph.edges:
        producer, consumer = edge
        points = placed.wires.get(edge)
        path = _curve(points) if points else _loop(placed.corners[producer], widths[producer])
        against = edge in placed.upward or producer == consumer
        color = producer % len(COLORS)
        yield (
            f'<path class="{"edge upward" if against else "edge"}" '
            f'data-producer="{file}-{producer + 1}" data-consumer="{file}-{consumer + 1}" '
            f'stroke="{COLORS[color]}" marker-end="url(#arrow{color})" d="{path}">'
            f"<title>{producer + 1} → {consumer + 1}</title></path>"
        )
    for at, (operator, (x, y), width) in enumerate(
        zip(graph.operators, placed.corners, widths, strict=True)
    ):
        place, expression = _label(at, operator)
        yield f'<g class="operator" id="{file}-{at + 1}"><title>{_escaped(operator.id)}</title>'
        yield f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{BOX_HEIGHT}" rx="4"/>'
        yield _text(x + CHARACTER, y + 16, place, "place")
        yield f"{_text(x + CHARACTER, y + 32, expression)}</g>"
    yield "</g>"


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


def _arrow(at: int, color: str) -> str:
    return (
        f'<marker id="arrow{at}" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="6" '
        f'markerHeight="6" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="{color}"/></marker>'
    )


def _label(at: int, operator: Operator) -> tuple[str, str]:
    return f"{at + 1} {shown(operator.function)}:{operator.line}", operator.expression


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    styled = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{styled}>{_escaped(text)}</text>'


def _text_width(text: str) -> float:
    return CHARACTER * sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _escaped(text: str) -> str:
    return escape(printable(text))
