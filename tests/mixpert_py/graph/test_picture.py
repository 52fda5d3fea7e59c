"""`mixpert graph --format svg`: a picture in which nothing overlaps."""

import re
from itertools import combinations
from typing import NamedTuple
from xml.etree import ElementTree

import pytest

from mixpert_py.errors import SourceError
from mixpert_py.graph.formats import text
from mixpert_py.graph.graph import shown
from mixpert_py.graph.svg import svg
from tests.mixpert_py.graph.graphs import GRAPHS, SVG, everything, graph, hard_to_write, of_fifty


def boxes(group: ElementTree.Element) -> dict[str, tuple[float, float, float, float]]:
    """Left, top, right, bottom of each operator's box."""
    found = {}
    for node in group.iter(f"{SVG}g"):
        if "operator" in node.get("class", "").split():
            box = node.find(f"{SVG}rect")
            assert box is not None
            x, y, width, height = (float(box.attrib[k]) for k in ("x", "y", "width", "height"))
            found[node.attrib["id"]] = (x, y, x + width, y + height)
    return found


def pieces(path: str) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """The ends of each line and curve of a path."""
    x = y = 0.0
    ends = []
    for command, rest in re.findall(r"([MVC])([^MVC]*)", path):
        values = [float(number) for number in rest.split()]
        end = (x, values[0]) if command == "V" else (values[-2], values[-1])
        if command != "M":
            ends.append(((x, y), end))
        x, y = end
    return ends


TEXT_HEIGHT = 12.0


class Label(NamedTuple):
    """A line of text in a box, as wide as the widest of usual monospace fonts makes it."""

    box: tuple[float, float, float, float]
    left: float
    right: float
    bottom: float


def labels(root: ElementTree.Element) -> list[Label]:
    placed = boxes(root)
    found = []
    for node in root.iter(f"{SVG}g"):
        for line in node.findall(f"{SVG}text") if node.get("id") else ():
            x, y = float(line.attrib["x"]), float(line.attrib["y"])
            wide = sum(2 if c in "漢字" else 1 for c in line.text or "")
            found.append(Label(placed[node.attrib["id"]], x, x + 7.25 * wide, y))
    return found


def wires(root: ElementTree.Element) -> list[tuple[str, str, str, str]]:
    """Producer, consumer, class and path of each edge, those from an operator to itself apart."""
    found = [
        tuple(path.get(key, "") for key in ("data-producer", "data-consumer", "class", "d"))
        for path in root.iter(f"{SVG}path")
    ]
    return [(one, other, kind, path) for one, other, kind, path in found if one != other]


def test_svg_has_every_operator_and_edge() -> None:
    root = ElementTree.fromstring(svg(GRAPHS))
    for file, one in enumerate(GRAPHS, 1):
        groups = [
            node for node in root.iter(f"{SVG}g") if node.get("id", "").startswith(f"{file}-")
        ]
        assert [node.attrib["id"] for node in groups] == [
            f"{file}-{at + 1}" for at in range(len(one.operators))
        ]
        for node, operator in zip(groups, one.operators, strict=True):
            place, expression, identity, *_ = (node.findtext(f"{SVG}title") or "").split("\n")
            assert place.endswith(f"{operator.function}:{operator.line}:{operator.column}")
            assert (expression, identity) == (operator.expression, operator.id)
            said = [part.text for part in node.findall(f"{SVG}text")]
            assert said[1] == shown(operator.expression)
        edges = [
            (path.attrib["data-producer"], path.attrib["data-consumer"])
            for path in root.iter(f"{SVG}path")
            if path.get("data-producer", "").startswith(f"{file}-")
        ]
        assert edges == [(f"{file}-{p + 1}", f"{file}-{s + 1}") for p, s in one.edges]


PICTURES = {f"fifty-{seed}": of_fifty(seed) for seed in range(4)} | {
    "wide": graph("c = a @ b\n" + "c @ a\n" * 49),
    "apart": graph("a @ b\n" * 50),
    "everything": everything(20),
    "wide-letters": graph("".join(f"{'漢字' * n} @ x\n" for n in range(1, 9))),
}


@pytest.mark.parametrize("name", PICTURES)
def test_boxes_and_wires_keep_apart(name: str) -> None:
    """No two boxes overlap, nothing leaves the picture, and no wire runs behind a box."""
    root = ElementTree.fromstring(svg([PICTURES[name]]))
    placed = boxes(root)
    assert len(placed) == len(PICTURES[name].operators)
    for one, other in combinations(placed.values(), 2):
        beside = one[2] < other[0] or other[2] < one[0]
        assert beside or one[3] < other[1] or other[3] < one[1]
    assert min(box[0] for box in placed.values()) >= 0
    assert max(box[2] for box in placed.values()) <= float(root.attrib["width"]) - 48
    assert max(box[3] for box in placed.values()) <= float(root.attrib["height"]) - 52
    for one in labels(root):
        assert one.left >= one.box[0]
        assert one.right <= one.box[2]
        assert one.box[1] < one.bottom - TEXT_HEIGHT
        assert one.bottom < one.box[3]
    for one, other in combinations(labels(root), 2):
        assert one.bottom != other.bottom or one.right <= other.left or other.right <= one.left
    for producer, consumer, _, path in wires(root):
        for (x, y), (to_x, to_y) in pieces(path):
            # Vertical at both ends, a curve stays within the rectangle between them.
            for left, top, right, bottom in placed.values():
                beside = max(x, to_x) <= left or min(x, to_x) >= right
                apart = max(y, to_y) <= top or min(y, to_y) >= bottom
                assert beside or apart, (producer, consumer)


def test_edges_join_their_operators() -> None:
    root = ElementTree.fromstring(svg([of_fifty(0)]))
    placed = boxes(root)
    kinds = set()
    for producer, consumer, kind, path in wires(root):
        is_upward = "upward" in kind.split()
        kinds.add(is_upward)
        one, other = placed[producer], placed[consumer]
        ends = pieces(path)
        (x, y), (to_x, to_y) = ends[0][0], ends[-1][1]
        leaves, enters = (1, 3) if is_upward else (3, 1)
        assert (y, to_y) == (one[leaves], other[enters])
        if is_upward:  # and against the order of the source
            assert to_y < y
            assert int(producer.partition("-")[2]) > int(consumer.partition("-")[2])
        else:
            assert to_y > y
        assert one[0] < x < one[2]
        assert other[0] < to_x < other[2]
    assert kinds == {True, False}


def test_edges_into_one_operator_come_in_side_by_side() -> None:
    root = ElementTree.fromstring(svg([everything(12)]))
    entries: dict[tuple[str, bool], list[float]] = {}
    for _, consumer, kind, path in wires(root):
        entries.setdefault((consumer, "upward" in kind), []).append(pieces(path)[-1][1][0])
    assert max(map(len, entries.values())) == 11
    assert all(len(set(places)) == len(places) for places in entries.values())


def test_cycles_can_be_told_apart() -> None:
    twice = "while x:\n    y = x @ w\n    x = y @ w\nz = x @ w\nwhile z:\n    z = z @ w\n"
    root = ElementTree.fromstring(svg([graph(twice)]))
    cycles = {}
    for node in root.iter(f"{SVG}g"):
        if node.get("id"):
            aside = [line.text for line in node.findall(f"{SVG}text")][2:]
            is_cyclic = "cyclic" in node.attrib["class"].split()
            cycles[node.attrib["id"]] = (is_cyclic, aside)
    assert cycles == {
        "1-1": (True, ["↻1"]),
        "1-2": (True, ["↻1"]),
        "1-3": (False, []),
        "1-4": (True, ["↻2"]),
    }
    heavy = {
        (path.attrib["data-producer"][2:], path.attrib["data-consumer"][2:])
        for path in root.iter(f"{SVG}path")
        if "cycle" in path.get("class", "").split()
    }
    assert heavy == {("1", "2"), ("2", "1"), ("4", "4")}


def test_light_and_dark_without_scripts_or_other_files() -> None:
    picture = svg([hard_to_write(), *GRAPHS])
    root = ElementTree.fromstring(picture)
    assert {node.tag.removeprefix(SVG) for node in root.iter()} == {
        *("svg", "style", "defs", "marker", "rect", "g", "text", "title", "path")
    }
    style = root.findtext(f"{SVG}style") or ""
    light, dark = style.split("@media (prefers-color-scheme: dark)")
    for kind in (".page", "text", ".place", ".box", ".c0", ".a7", ".share"):
        assert re.search(rf"{re.escape(kind)} {{[^}}]*(fill|stroke): #\w{{6}}", light)
        assert re.search(rf"{re.escape(kind)} {{[^}}]*(fill|stroke): #\w{{6}}", dark)
    for node in root.iter():  # nothing is coloured but by the style
        assert not {"fill", "stroke", "style", "href", "onclick"} & set(node.attrib)
    assert re.findall(r"(?:https?|data|file):[^\"]*", picture) == ["http://www.w3.org/2000/svg"]
    assert set(re.findall(r"url\((.)", picture)) == {"#"}
    assert "@import" not in picture


def test_a_graph_that_no_picture_shows_is_refused() -> None:
    with pytest.raises(SourceError, match=r"^p\.py: 200 products and 40000 edges are too many"):
        svg([everything(200)])
    assert text([everything(200)]).endswith("200 products, 40000 edges, 1 cycle\n")


def test_no_operators_is_a_picture_too() -> None:
    assert "no products" in "".join(ElementTree.fromstring(svg([graph("")])).itertext())
