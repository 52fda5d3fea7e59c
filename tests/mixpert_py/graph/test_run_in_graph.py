"""`mixpert graph --profile`: what a run has shown of times and edges, in every format."""

import json
import re
from pathlib import Path

import pytest

from mixpert_py.errors import SourceError
from mixpert_py.graph.formats import as_json, dot, mermaid, text
from mixpert_py.graph.graph import Graph, Operator, with_profile, with_seen
from tests.mixpert_py.command import Mixpert

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
    assert "<br/>75.0 #37;" in mermaid(graphs)


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
    drawn = [line.strip() for line in mermaid(graphs).splitlines() if line.startswith("  n")]
    assert drawn == ["n1 --> n2", "n1 -.-> n3", 'n3 -- "in the run" --> n1']


def test_a_profile_without_buffers_says_nothing_of_edges(tmp_path: Path) -> None:
    (one,) = profiled(tmp_path, PROFILE)
    assert one.seen is None
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
