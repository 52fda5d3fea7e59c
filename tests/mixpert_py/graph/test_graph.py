"""`mixpert graph`: the same graph as a table, as JSON and for Graphviz."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from mixpert_py.commands.graph import (
    MAX_TEXT,
    FileGraph,
    as_json,
    dot,
    mermaid,
    of_source,
    shown,
    text,
)
from mixpert_py.passes.finder import CallSite
from tests.mixpert_py.command import ROOT, Mixpert, called


def graph(source: str) -> FileGraph:
    return of_source(f"import numpy as np\n{source}".encode(), "p.py", "p")


def hard_to_write() -> FileGraph:
    """Names and texts that every format has to escape somehow."""
    return of_source(
        'x = {"a\\"<&>\'\x01\\\\": 1}\ndef größe(x):\n'
        '    y = x["a\\"<&>\'\x01\\\\"] @ x["]]>", "漢字"]\n    return y @ y\n'.encode(),
        'a "b" <&>\n\udcff\\.py',
        "p",
    )


LOOPS = """\
def f(a, b):
    x = a @ b
    for _ in range(9):
        y = x @ (a + bbbbbbbbbbbbbbbbbbbbbbbbbbbbbb)
        for _ in range(9):
            x = (y @ x) @ (x @ b)
    return x.dot(y)
"""

# Files of different names, so that a path tells which graph something is of.
GRAPHS = [hard_to_write(), graph("print()\n"), graph(LOOPS)]


SAMPLE = """\
samples/knn_digits.py
   line   function           expression                feeds
────────────────────────────────────────────────────────────
1  28:15  shift_metric       moved.T @ moved           3, 4
2  35:13  squared_distances  np.dot(rows, columns.T)
3  61:35  <module>           np.matmul(asked, metric)  2
4  61:61  <module>           np.matmul(known, metric)  2

4 products, 4 edges
"""


def test_the_table_of_a_sample() -> None:
    path = "samples/knn_digits.py"
    assert text([of_source((ROOT / path).read_bytes(), path, "knn_digits")]) == SAMPLE


def test_what_is_not_printable_is_escaped_and_long_texts_are_cut() -> None:
    said = text([hard_to_write()])
    assert said.startswith('a "b" <&>\\n\\udcff\\.py\n')
    assert r"\x01" in said
    assert all(line.isprintable() for line in said.splitlines())
    long = graph(f"a @ {'b' * 50}\n")
    assert long.operators[0].expression == f"a @ {'b' * 50}"
    for form in (text, dot):
        assert f"a @ {'b' * (MAX_TEXT - 5)}…" in form([long])
    assert "b" * 50 not in text([long])


def test_texts_are_no_markup() -> None:
    operator = CallSite("p:f/matmul~0#0", "matmul", 100, 5, "a[b] @ c", None, (0, 0), cell=3)
    said = text([FileGraph("[red].ipynb", (operator,))])
    assert said.startswith("[red].ipynb\n")
    lines = [line.split() for line in said.splitlines()]
    assert ["1", "cell_3:100:5", "f", "a[b]", "@", "c"] in lines


def test_json_has_every_operator_and_edge() -> None:
    written = json.loads(as_json(GRAPHS))
    operators = [
        (one.path, it.id, it.function, it.line, it.column, it.expression, it.cell)
        for one in GRAPHS
        for it in one.operators
    ]
    assert [tuple(entry.values()) for entry in written["operators"]] == operators
    edges = [
        (one.path, one.operators[producer].id, one.operators[consumer].id)
        for one in GRAPHS
        for producer, consumer in one.edges
    ]
    assert [tuple(entry.values()) for entry in written["edges"]] == edges
    assert set(written["edges"][0]) == {"path", "producer", "consumer"}


QUOTED = r'"((?:[^"\\]|\\.)*)"'
# Of a format: what writes it, its nodes (name, text), its arrows, the number of other lines, and
# how the inside of a quoted text is meant.
FORMS = {
    "dot": (
        dot,
        rf"^    (n\d+) \[label={QUOTED}, tooltip={QUOTED}\];$",
        r"^  (n\d+) -> (n\d+);$",
        3 + 2 * 3,
        lambda text: re.sub(r"\\(.)", r"\1", text.split(r"\n", 1)[1]),
    ),
    "mermaid": (
        mermaid,
        r'^ *(n\d+)\["([^"<>]*<br/>[^"<>]*)"\]()$',
        r"^ *(n\d+) --> (n\d+)$",
        1 + 2 * 2,
        lambda text: re.sub(
            r"#(\d+);", lambda match: chr(int(match[1])), text.split("<br/>", 1)[1]
        ),
    ),
}


@pytest.mark.parametrize(("write", "node", "arrow", "others", "meant"), FORMS.values(), ids=FORMS)
def test_every_operator_and_edge_is_written(
    write: Any, node: str, arrow: str, others: int, meant: Any
) -> None:
    written = write(GRAPHS)
    nodes, arrows = (re.findall(one, written, re.M) for one in (node, arrow))
    assert len(written.splitlines()) == others + len(nodes) + len(arrows)  # nothing else is there
    operators = [operator for one in GRAPHS for operator in one.operators]
    assert [meant(label) for _, label, _ in nodes] == [shown(one.expression) for one in operators]
    tooltips = [re.sub(r"\\(.)", r"\1", tooltip) for _, _, tooltip in nodes]
    assert tooltips == [f"{one.id}: {one.expression}" * (write is dot) for one in operators]
    number = {name: at for at, (name, _, _) in enumerate(nodes)}
    first = {one.path: at for one, at in zip(GRAPHS, (0, 2, 2), strict=True)}
    assert [(number[producer], number[consumer]) for producer, consumer in arrows] == [
        (first[one.path] + producer, first[one.path] + consumer)
        for one in GRAPHS
        for producer, consumer in one.edges
    ]


def test_a_product_comes_behind_those_in_it() -> None:
    said = [one.expression for one in graph("a @ (b @ c) @ d.dot(e @ f)\n").operators]
    assert said == ["b @ c", "a @ (b @ c)", "e @ f", "d.dot(e @ f)", "a @ (b @ c) @ d.dot(e @ f)"]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "p.py"
    path.write_text("while x:\n    y = x @ w, x @ v, w @ v\n    x = (y[0] @ y[1]).dot(y[2])\n")
    return path


EVERY_FORM = """\
from mixpert_py.cli import cli
for form in ("text", "json", "dot", "mermaid"):
    cli(["graph", "p.py", "--format", form], standalone_mode=False)
"""


def test_the_same_bytes_every_time(program: Path, tmp_path: Path) -> None:
    """Whatever an interpreter's hashes are."""
    (tmp_path / "forms.py").write_text(EVERY_FORM)
    said = called("forms.py", folder=tmp_path, PYTHONHASHSEED="1")
    one = of_source(program.read_bytes(), "p.py", "p")
    assert said.out == "".join(write([one]) for write in (text, as_json, dot, mermaid))
    assert (said.code, said.err) == (0, "")


def test_a_program_from_standard_input(program: Path, mixpert: Mixpert) -> None:
    shown = mixpert("graph", "p.py").out
    assert mixpert("graph", "-", stdin=program.read_text()).out == shown.replace("p.py", "-")
    (program.parent / "bad.py").write_text("x = (a @\n")
    said = mixpert("graph", "bad.py", "p.py")
    assert "bad.py: line 1: " in said.one_clear_line()
    assert said.out == shown
    said = mixpert("graph", "-", stdin="x = (a @\n")
    assert said.one_clear_line().startswith("mixpert: -: line 1")


def test_files_of_a_folder_each_once(program: Path, mixpert: Mixpert) -> None:
    (program.parent / "q.py").write_text("a @ b\n")
    said = mixpert("graph", "./q.py", ".", "--format", "json")
    paths = [one["path"] for one in json.loads(said.out)["operators"]]
    assert paths == ["./q.py"] + ["./p.py"] * 5
