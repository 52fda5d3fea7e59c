"""`mixpert graph`: the same graph in four formats, and a picture in which nothing overlaps."""

import json
import random
import re
from itertools import combinations
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest

from mixpert_py.errors import SourceError
from mixpert_py.graph.formats import as_json, dot, text
from mixpert_py.graph.graph import MAX_TEXT, Graph, Operator, of_source, shown
from mixpert_py.graph.run_profile import with_profile, with_seen
from mixpert_py.graph.svg import svg
from tests.mixpert_py.command import ROOT, Mixpert

SVG = "{http://www.w3.org/2000/svg}"

# A program, and what its table says from the expression on.
PROGRAMS = {
    "chain": (
        "c = a @ b\nd = np.tanh(c) @ b\ne = np.dot(d, c)\n",
        ["a @ b 2, 3", "np.tanh(c) @ b 3", "np.dot(d, c)", "3 operators, 3 edges, 0 cycles"],
    ),
    "loop": (
        "while x.any():\n    y = x @ w\n    x = y.dot(w)\nz = x @ a\n",
        ["x @ w 2 1, 2", "y.dot(w) 1, 3 1, 2", "x @ a", "3 operators, 3 edges, 1 cycle"],
    ),
    "itself": (
        "for _ in range(3):\n    x = x @ w\n",
        ["x @ w 1 1", "1 operator, 1 edge, 1 cycle"],
    ),
    "branch": (
        "if a.any():\n    c = a @ b\nelse:\n    c = b @ a\nd = c @ c\n",
        ["a @ b 3", "b @ a 3", "c @ c", "3 operators, 2 edges, 0 cycles"],
    ),
    "two-functions": (
        "def f(x):\n    return x @ a\ndef g(x):\n    return f(x) @ b\ng(c)\n",
        ["x @ a 2", "f(x) @ b", "2 operators, 1 edge, 0 cycles"],
    ),
    "feeds-many": (
        "c = a @ b\nd = c @ a, c @ b, c @ d, c @ e, e @ a, c @ f, c @ g\n",
        ["a @ b 2–5, 7, 8"]
        + [f"{one} @ {other}" for one, other in zip("ccccecc", "abdeafg", strict=True)]
        + ["8 operators, 6 edges, 0 cycles"],
    ),
    "none": ("print(a + b)\n", ["0 operators, 0 edges, 0 cycles"]),
    "left-alone": ("print(f'{a @ b}')\n", ["0 operators, 0 edges, 0 cycles"]),
}


def graph(source: str) -> Graph:
    return of_source(f"import numpy as np\n{source}".encode(), "p.py", "p")


def hard_to_write() -> Graph:
    """Names and texts that every format has to escape somehow."""
    return of_source(
        'x = {"a\\"<&>\'\x01\\\\": 1}\ndef größe(x):\n'
        '    y = x["a\\"<&>\'\x01\\\\"] @ x["]]>", "漢字"]\n    return y @ y\n'.encode(),
        'a "b" <&>\n\udcff\\.py',
        "p",
    )


def of_fifty(seed: int) -> Graph:
    """Fifty products, forwards and around two loops."""
    chance = random.Random(seed)
    lines = ["def f(a):"]
    for at in range(50):
        one, other = chance.choices(["a", *(f"v{before}" for before in range(at))], k=2)
        within = 20 <= at < 26 or 35 <= at < 38
        if at in (20, 35):
            lines.append("    for _ in range(9):")
        one = f"v{at - 1}" if within else one
        wide = "b" * chance.randrange(30)
        lines.append(f"    {'    ' * within}v{at} = {one} @ ({other} + {wide}1)")
        if at in (25, 37):
            lines.append(f"        v{19 if at == 25 else 34} = v{at}")
    return graph("\n".join(lines))


def everything(count: int) -> Graph:
    """Every operator feeds every one, itself too."""
    operators = tuple(Operator(f"m:f/dot~1#{i}", "f", i, 1, "a @ b") for i in range(count))
    return Graph("p.py", operators, tuple((i, j) for i in range(count) for j in range(count)))


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_table(name: str) -> None:
    source, expected = PROGRAMS[name]
    lines = text([graph(source)]).splitlines()
    said = [line for line in lines if line and line[0].isdigit()]
    # number, line:column, function, and what is compared
    rows = [" ".join(line.split()[3:]) for line in said[:-1]]
    assert [*rows, said[-1]] == expected


SAMPLES = {
    "knn_digits": """\
samples/knn_digits.py
   line   function           expression                feeds  cycle
───────────────────────────────────────────────────────────────────
1  28:15  shift_metric       moved.T @ moved           3, 4
2  35:13  squared_distances  np.dot(rows, columns.T)
3  61:35  <module>           np.matmul(asked, metric)  2
4  61:61  <module>           np.matmul(known, metric)  2

4 operators, 4 edges, 0 cycles
""",
    "pca": """\
samples/pca.py
   line   function            expression                       feeds  cycle
───────────────────────────────────────────────────────────────────────────
1  35:12  random_features     (amounts * strength) @ turn      2–4
2  42:33  subspace_iteration  scatter @ basis                  2, 4   2
3  79:15  work                xp.matmul(features.T, features)  2
4  81:17  work                features.dot(components)

4 operators, 6 edges, 1 cycle
""",
}


@pytest.mark.parametrize("name", SAMPLES)
def test_the_table_of_a_sample(name: str) -> None:
    path = f"samples/{name}.py"
    assert text([of_source((ROOT / path).read_bytes(), path, name)]) == SAMPLES[name]


def test_what_is_not_printable_is_escaped_and_long_texts_are_cut() -> None:
    said = text([hard_to_write()])
    assert said.startswith('a "b" <&>\\n\\udcff\\.py\n')
    assert r"\x01" in said
    assert all(line.isprintable() for line in said.splitlines())
    long = graph(f"a @ {'b' * 50}\n")
    assert long.operators[0].expression == f"a @ {'b' * 50}"
    for form in (text, dot, svg):
        assert f"a @ {'b' * (MAX_TEXT - 5)}…" in form([long])
    assert "b" * 50 not in text([long])


# Files of different names, so that a path tells which graph something is of.
GRAPHS = [hard_to_write(), graph("print()\n"), of_fifty(0)]


def test_json_has_every_operator_and_edge() -> None:
    written = json.loads(as_json(GRAPHS))
    operators = [(one.path, operator) for one in GRAPHS for operator in one.operators]
    assert [(entry.pop("path"), Operator(**entry)) for entry in written["operators"]] == operators
    edges = [
        (one.path, one.operators[producer].id, one.operators[consumer].id, True, None)
        for one in GRAPHS
        for producer, consumer in one.edges
    ]
    assert [tuple(entry.values()) for entry in written["edges"]] == edges
    assert set(written["edges"][0]) == {"path", "producer", "consumer", "static", "seen"}


QUOTED = r'"((?:[^"\\]|\\.)*)"'


def unescaped(value: str) -> str:
    """What Graphviz makes of the inside of a quoted string, a new line apart."""
    return re.sub(r"\\(.)", r"\1", value)


def test_dot_has_every_operator_and_edge() -> None:
    lines = dot(GRAPHS).splitlines()
    assert (lines[0], lines[-1]) == ("digraph products {", "}")
    inside = "\n".join(lines)
    assert inside.count(" {\n") == inside.count("}\n") + 1 == 3  # two files have operators
    nodes = re.findall(rf"^    (n\d+) \[label={QUOTED}, tooltip={QUOTED}\];$", inside, re.M)
    arrows = re.findall(r"^  (n\d+) -> (n\d+);$", inside, re.M)
    assert len(lines) == 3 + 2 * 3 + len(nodes) + len(arrows)  # nothing else is there
    operators = [operator for one in GRAPHS for operator in one.operators]
    assert [unescaped(tooltip) for _, _, tooltip in nodes] == [
        f"{one.id}: {one.expression}" for one in operators
    ]
    # The new line between place and expression is the only escape that is not a character.
    assert [unescaped(label.split(r"\n", 1)[1]) for _, label, _ in nodes] == [
        shown(one.expression) for one in operators
    ]
    number = {name: at for at, (name, _, _) in enumerate(nodes)}
    first = {one.path: at for one, at in zip(GRAPHS, (0, 2, 2), strict=True)}
    assert [(number[producer], number[consumer]) for producer, consumer in arrows] == [
        (first[one.path] + producer, first[one.path] + consumer)
        for one in GRAPHS
        for producer, consumer in one.edges
    ]


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


def test_a_product_comes_behind_those_in_it() -> None:
    said = [one.expression for one in graph("a @ (b @ c) @ d.dot(e @ f)\n").operators]
    assert said == ["b @ c", "a @ (b @ c)", "e @ f", "d.dot(e @ f)", "a @ (b @ c) @ d.dot(e @ f)"]


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


PROFILE = [
    {"id": "p:<module>/matmul~1#0", "seconds": 3.0},
    {"id": "q:<module>/matmul~1#0", "seconds": 1.0},
]


def profiled(tmp_path: Path, records: object) -> list[Graph]:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(records))
    operators = tuple(
        Operator(f"p:<module>/matmul~1#{i}", "<module>", 1, 1, "a @ b") for i in range(2)
    )
    return with_profile([Graph("p.py", operators, ((0, 1),))], str(path))


def test_shares_of_time_in_every_format(tmp_path: Path) -> None:
    graphs = profiled(tmp_path, PROFILE)
    assert [one.share for one in graphs[0].operators] == [0.75, 0.0]
    assert [one["share"] for one in json.loads(as_json(graphs))["operators"]] == [0.75, 0.0]
    lines = text(graphs).splitlines()
    assert lines[1].split() == ["line", "function", "expression", "time", "feeds", "cycle"]
    assert "75.0 % ████████" in lines[3]
    assert "0.0 %" in lines[4]
    assert "█" not in lines[4]
    filled = re.findall(r'\\n([\d.]+ %)".*fillcolor="0.090 ([\d.]+) 1.000"', dot(graphs))
    assert filled == [("75.0 %", "0.750"), ("0.0 %", "0.000")]
    root = ElementTree.fromstring(svg(graphs))
    bars = {
        kind: [float(one.attrib["width"]) for one in root.iter() if one.get("class") == kind]
        for kind in ("track", "share")
    }
    assert bars["share"] == [pytest.approx(0.75 * bars["track"][0], abs=0.1), 0.0]
    asides = [one.text for one in root.iter(f"{SVG}text") if one.get("class") == "aside"]
    assert asides == ["75.0 %", "0.0 %"]


def followed() -> Graph:
    """Three operators, an edge seen, one that is not, one only seen, and one of another file."""
    operators = tuple(Operator(f"p:f/matmul~{i}#0", "f", i + 1, 1, "a @ b") for i in range(3))
    pairs = [("p:f/matmul~0#0", "p:f/matmul~1#0"), ("p:f/matmul~2#0", "p:f/matmul~0#0")]
    seen = [*pairs, ("q:f/matmul~0#0", "p:f/matmul~1#0")]
    return with_seen(Graph("p.py", operators, ((0, 1), (0, 2))), seen)


def test_edges_of_a_run() -> None:
    one = followed()
    assert one.edges == ((0, 1), (0, 2), (2, 0))
    assert one.seen == {(0, 1), (2, 0)}
    assert one.extra == {(2, 0)}
    assert with_seen(one, []).seen == frozenset()


def test_edges_of_a_run_in_every_format() -> None:
    graphs = [followed()]
    entries = json.loads(as_json(graphs))["edges"]
    assert [(one["static"], one["seen"]) for one in entries] == [
        (True, True),
        (True, False),
        (False, True),
    ]
    head, _, *lines, _, _ = text(graphs).splitlines()[1:]
    feeds, seen, cycle = (head.index(name) for name in ("feeds", "seen to feed", "cycle"))
    assert [(line[feeds:seen].strip(), line[seen:cycle].strip()) for line in lines] == [
        ("2, 3", "2"),
        ("", ""),
        ("", "1"),
    ]
    drawn = [line.strip() for line in dot(graphs).splitlines() if "->" in line]
    assert drawn == ["n1 -> n2;", "n1 -> n3 [style=dashed];", 'n3 -> n1 [label="in the run"];']
    root = ElementTree.fromstring(svg(graphs))
    kinds = {
        path.findtext(f"{SVG}title", "").partition("\n")[2]: "unseen" in path.attrib["class"]
        for path in root.iter(f"{SVG}path")
        if path.get("data-producer")
    }
    assert kinds == {
        "seen in the run": False,
        "not seen in the run": True,
        "seen in the run, not in the source": False,
    }
    style = root.findtext(f"{SVG}style") or ""
    assert style.index(".upward {") < style.index(".unseen {")  # which is to win


def test_a_profile_without_buffers_says_nothing_of_edges(tmp_path: Path) -> None:
    (one,) = profiled(tmp_path, PROFILE)
    assert one.seen is None
    assert "unseen" not in "".join(svg([one]).partition("</style>")[2:])
    assert "seen" not in text([one])
    fed = [{**PROFILE[0], "fed_by": {"p:<module>/matmul~1#1": 3}}, {**PROFILE[1], "fed_by": {}}]
    (one,) = profiled(tmp_path, fed)
    assert one.seen == one.extra == {(1, 0)}


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ([{"id": "p:<module>/matmul~1#0", "seconds": 1.0, "fed_by": [1]}], "not a profile"),
        ([{"id": "r:f/dot~1#0", "seconds": 1.0}], "has no product of these programs"),
        ([], "has no product of these programs"),
        ({"sites": 1}, "not a profile"),
        ([{"id": "p"}], "not a profile"),
        (7, "not a profile"),
        ([{"id": "p:<module>/matmul~1#0", "seconds": -1.0}], "times that are none"),
        ([{"id": "p:<module>/matmul~1#0", "seconds": float("nan")}], "times that are none"),
    ],
)
def test_what_is_no_profile_is_refused(tmp_path: Path, records: object, said: str) -> None:
    with pytest.raises(SourceError, match=said):
        profiled(tmp_path, records)


def test_the_profile_of_a_run(tmp_path: Path, mixpert: Mixpert) -> None:
    (tmp_path / "p.py").write_text(
        "import numpy as np\n"
        "big, small = np.ones((300, 300)), np.ones((2, 2))\n"
        "x = big @ big\ny = small @ small\nif y is None:\n    x @ x\nx.T @ x[:, :2]\n"
    )
    assert mixpert("run", "--json", "run.json", "p.py").code == 0
    said = mixpert("graph", "p.py", "--profile", "run.json", "--format", "json")
    assert (said.code, said.err) == (0, "")
    shares = {one["expression"]: one["share"] for one in json.loads(said.out)["operators"]}
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["big @ big"] > shares["small @ small"] > shares["x @ x"] == 0
    expressions = {one["id"]: one["expression"] for one in json.loads(said.out)["operators"]}
    edges = {expressions[one["consumer"]]: one["seen"] for one in json.loads(said.out)["edges"]}
    assert edges == {"x @ x": False, "x.T @ x[:, :2]": True}
    said = mixpert("graph", "p.py", "--profile", "none.json")
    assert (said.code, said.out) == (2, "")
    assert said.one_clear_line() == "mixpert: none.json: no such file or directory"


def test_a_graph_that_no_picture_shows_is_refused() -> None:
    with pytest.raises(SourceError, match=r"^p\.py: 200 operators and 40000 edges are too many"):
        svg([everything(200)])
    assert text([everything(200)]).endswith("200 operators, 40000 edges, 1 cycle\n")


def test_no_operators_is_a_picture_too() -> None:
    assert "no operators" in "".join(ElementTree.fromstring(svg([graph("")])).itertext())


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "p.py"
    path.write_text("while x:\n    y = x @ w, x @ v, w @ v\n    x = (y[0] @ y[1]).dot(y[2])\n")
    return path


@pytest.mark.parametrize("form", ["text", "json", "dot", "svg"])
def test_the_same_bytes_every_time(program: Path, mixpert: Mixpert, form: str) -> None:
    calls = [mixpert("graph", "p.py", "--format", form, PYTHONHASHSEED=s) for s in ("1", "2")]
    assert calls[0] == calls[1]
    assert (calls[0].code, calls[0].err) == (0, "")
    assert calls[0].out


def test_the_result_goes_to_a_file_of_that_kind(program: Path, mixpert: Mixpert) -> None:
    shown = {form: mixpert("graph", "p.py", "--format", form).out for form in ("text", "svg")}
    for arguments, form in (
        (["-o", "out.svg"], "svg"),
        (["-o", "out.txt"], "text"),
        (["-o", "out.svg", "--format", "text"], "text"),
    ):
        said = mixpert("graph", "p.py", *arguments)
        assert (said.code, said.out, said.err) == (0, "", "")
        assert program.with_name(arguments[1]).read_text("utf-8") == shown[form]
    assert mixpert("graph", "p.py", "-o", "-").out == shown["text"]
    source = program.read_text()
    assert mixpert("graph", "-", stdin=source).out == shown["text"].replace("p.py", "-")


def test_the_program_is_not_overwritten(program: Path, mixpert: Mixpert) -> None:
    before = program.read_text()
    said = mixpert("graph", "p.py", "-o", str(program))
    assert (said.code, said.out) == (2, "")
    assert "is the program itself" in said.one_clear_line()
    assert program.read_text() == before
    said = mixpert("graph", "p.py", "-o", "nowhere/out.svg")
    assert (said.code, said.out) == (2, "")
    assert (
        said.one_clear_line() == "mixpert: nowhere/out.svg: cannot write: no such file or directory"
    )


def test_files_with_errors(program: Path, mixpert: Mixpert) -> None:
    (program.parent / "bad.py").write_text("x = (a @\n")
    for path, word in (("bad.py", "bad.py: line 1: "), ("absent.py", "absent.py: no such file")):
        for arguments in ([path], [path, "p.py"], [path, "p.py", "-o", "out.txt"]):
            said = mixpert("graph", *arguments)
            assert said.code == 2
            assert word in said.one_clear_line()
            assert ("p.py" in said.out) == (arguments[1:] == ["p.py"])
        assert "p.py" in (program.parent / "out.txt").read_text("utf-8")
    assert mixpert("graph", "bad.py", "-o", "none.svg").code == 2
    assert not (program.parent / "none.svg").exists()
    assert (
        mixpert("graph", "-", stdin="x = (a @\n").one_clear_line().startswith("mixpert: -: line 1")
    )
    assert mixpert("graph", "p.py", "--format", "png").code == 2


def test_files_of_a_folder_each_once(program: Path, mixpert: Mixpert) -> None:
    (program.parent / "q.py").write_text("a @ b\n")
    said = mixpert("graph", "./q.py", ".", "--format", "json")
    paths = [one["path"] for one in json.loads(said.out)["operators"]]
    assert paths == ["./q.py"] + ["./p.py"] * 5
