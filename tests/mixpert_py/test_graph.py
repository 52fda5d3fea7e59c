"""`mixpert graph`: the same graph in four formats, and a picture in which nothing overlaps."""

import json
import random
import re
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import pytest

from mixpert_py.errors import SourceError
from mixpert_py.graph import MAX_TEXT, Graph, Operator, of_source
from mixpert_py.graph_formats import as_json, dot, text
from mixpert_py.graph_svg import svg
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
   line   function            expression                       feeds    cycle
─────────────────────────────────────────────────────────────────────────────
1  27:18  subspace_iteration  x @ basis                        2        1, 2
2  28:33  subspace_iteration  np.matmul(x.T, scores)           1, 3, 4  1, 2
3  45:17  <module>            features.dot(components)         4
4  47:15  <module>            np.dot(projected, components.T)

4 operators, 5 edges, 1 cycle
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
    (operator,) = graph(f"a @ {'b' * 50}\n").operators
    assert operator.expression == f"a @ {'b' * (MAX_TEXT - 5)}…"


# Files of different names, so that a path tells which graph something is of.
GRAPHS = [hard_to_write(), graph("print()\n"), of_fifty(0)]


def test_json_has_every_operator_and_edge() -> None:
    written = json.loads(as_json(GRAPHS))
    operators = [(one.path, operator) for one in GRAPHS for operator in one.operators]
    assert [(entry.pop("path"), Operator(**entry)) for entry in written["operators"]] == operators
    edges = [
        (one.path, one.operators[producer].id, one.operators[consumer].id)
        for one in GRAPHS
        for producer, consumer in one.edges
    ]
    assert [tuple(entry.values()) for entry in written["edges"]] == edges
    assert set(written["edges"][0]) == {"path", "producer", "consumer"}


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
    assert [unescaped(tooltip) for _, _, tooltip in nodes] == [one.id for one in operators]
    # The new line between place and expression is the only escape that is not a character.
    assert [unescaped(label.split(r"\n", 1)[1]) for _, label, _ in nodes] == [
        one.expression for one in operators
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
        if node.get("class") == "operator":
            (box,) = node.findall(f"{SVG}rect")
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
            node
            for node in root.iter(f"{SVG}g")
            if node.get("class") == "operator" and node.attrib["id"].startswith(f"{file}-")
        ]
        assert [node.attrib["id"] for node in groups] == [
            f"{file}-{at + 1}" for at in range(len(one.operators))
        ]
        for node, operator in zip(groups, one.operators, strict=True):
            assert node.findtext(f"{SVG}title") == operator.id
            assert [part.text for part in node.findall(f"{SVG}text")][1] == operator.expression
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
        kinds.add(kind)
        one, other = placed[producer], placed[consumer]
        ends = pieces(path)
        (x, y), (to_x, to_y) = ends[0][0], ends[-1][1]
        leaves, enters = (1, 3) if kind == "edge upward" else (3, 1)
        assert (y, to_y) == (one[leaves], other[enters])
        if kind == "edge upward":  # and against the order of the source
            assert to_y < y
            assert int(producer.partition("-")[2]) > int(consumer.partition("-")[2])
        else:
            assert to_y > y
        assert one[0] < x < one[2]
        assert other[0] < to_x < other[2]
    assert kinds == {"edge", "edge upward"}


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
