"""Writes graphs as text, as JSON, for Graphviz and for Mermaid."""

import io
import json
import os
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mixpert_py import files
from mixpert_py.errors import SourceError, writing
from mixpert_py.graph.graph import Edge, Graph, Operator, percent, printable, shown

# Wide enough that rich never folds a line: an operator is one line, whatever the terminal.
WIDTH = 100_000
BAR = 10  # characters that stand for all of the time
HUE = "0.090"  # orange, for Graphviz


def text(graphs: Sequence[Graph]) -> str:
    """For each file with operators a table with a line for each operator, and their number."""
    stream = io.StringIO()
    console = Console(file=stream, width=WIDTH, color_system=None)
    for graph in graphs:
        if graph.operators:
            console.print(Text(printable(graph.path)))
            console.print(_table(graph))
            console.print()
    numbers = (
        _counted(sum(len(graph.operators) for graph in graphs), "product"),
        _counted(sum(len(graph.edges) for graph in graphs), "edge"),
        _counted(sum(len(graph.cycles) for graph in graphs), "cycle"),
    )
    console.print(Text(", ".join(numbers)))
    return "".join(f"{line.rstrip()}\n" for line in stream.getvalue().splitlines())


def as_json(graphs: Sequence[Graph]) -> str:
    """Operators and edges; a site id is unique within its path.

    cell: None but in a notebook. share, seen: None without a profile. static: whether the source
    shows the edge.
    """
    operators = [
        {
            "id": operator.id,
            "path": graph.path,
            "cell": operator.cell,
            "line": operator.line,
            "column": operator.column,
            "function": operator.function,
            "expression": operator.expression,
            "share": operator.share,
        }
        for graph in graphs
        for operator in graph.operators
    ]
    edges = [
        {
            "path": graph.path,
            "producer": graph.operators[producer].id,
            "consumer": graph.operators[consumer].id,
            "static": (producer, consumer) not in graph.extra,
            "seen": None if graph.seen is None else (producer, consumer) in graph.seen,
        }
        for graph in graphs
        for producer, consumer in graph.edges
    ]
    return json.dumps({"operators": operators, "edges": edges}, indent=2) + "\n"


def dot(graphs: Sequence[Graph]) -> str:
    """Graphviz text: a cluster for each file, a box for each operator, deeper in colour the longer.

    Its tooltip has its id and the whole expression. Edges that a profile has not seen are dashed.
    """
    lines = ["digraph products {", '  node [shape=box, fontname="monospace"];']
    names = count(1)
    for cluster, graph in enumerate(graphs):
        if not graph.operators:
            continue
        lines += [f"  subgraph cluster_{cluster} {{", f"    label={_quoted(graph.path)};"]
        name = [f"n{next(names)}" for _ in graph.operators]
        for node, operator in zip(name, graph.operators, strict=True):
            label = f"{_escaped(_place(operator))}\\n"
            label += _escaped(shown(operator.expression))
            fill = ""
            if operator.share is not None:
                label += f"\\n{percent(operator.share)}"
                fill = f', style=filled, fillcolor="{HUE} {operator.share:.3f} 1.000"'
            tooltip = _quoted(f"{operator.id}: {operator.expression}")
            lines.append(f'    {node} [label="{label}", tooltip={tooltip}{fill}];')
        lines.append("  }")
        for edge in graph.edges:
            producer, consumer = (name[at] for at in edge)
            lines.append(f"  {producer} -> {consumer}{_line_style(graph, edge)};")
    return "\n".join([*lines, "}", ""])


def mermaid(graphs: Sequence[Graph]) -> str:
    """A Mermaid flowchart: a subgraph for each file, a box for each operator with its share.

    Edges that a profile has not seen are dotted.
    """
    lines = ["flowchart TD"]
    names = count(1)
    for number, graph in enumerate(graphs):
        if not graph.operators:
            continue
        lines.append(f'  subgraph file{number}["{_entities(graph.path)}"]')
        name = [f"n{next(names)}" for _ in graph.operators]
        for node, operator in zip(name, graph.operators, strict=True):
            parts = [_place(operator), shown(operator.expression)]
            parts += [] if operator.share is None else [percent(operator.share)]
            lines.append(f'    {node}["{"<br/>".join(map(_entities, parts))}"]')
        lines.append("  end")
        for edge in graph.edges:
            producer, consumer = (name[at] for at in edge)
            lines.append(f"  {producer} {_arrow(graph, edge)} {consumer}")
    return "\n".join([*lines, ""])


FORMATS: dict[str, Callable[[Sequence[Graph]], str]] = {
    "text": text,
    "dot": dot,
    "mermaid": mermaid,
    "json": as_json,
}
ENDINGS = {"mmd": "mermaid"}


def rendered(graphs: Sequence[Graph], form: str | None, output: str | None) -> str:
    """The graphs in a format; None means the one that OUT's ending names, else text."""
    ending = Path(output or "").suffix.removeprefix(".")
    named = ENDINGS.get(ending, ending)
    return FORMATS[form or (named if named in FORMATS else "text")](graphs)


def write(path: str, content: str, graphs: Sequence[Graph]) -> None:
    """Write to a file. Raises SourceError if that fails, or if the file is one of the programs."""
    if os.path.realpath(path) in {os.path.realpath(graph.path) for graph in graphs}:
        raise SourceError(f"{path}: is the program itself; give -o another name")
    with writing(path):
        files.replace(Path(path), content.encode())


def _line_style(graph: Graph, edge: Edge) -> str:
    """An edge's attributes for Graphviz."""
    if edge in graph.extra:
        return ' [label="in the run"]'
    return " [style=dashed]" if graph.seen is not None and edge not in graph.seen else ""


def _arrow(graph: Graph, edge: Edge) -> str:
    """An edge for Mermaid."""
    if edge in graph.extra:
        return '-- "in the run" -->'
    return "-.->" if graph.seen is not None and edge not in graph.seen else "-->"


def _entities(value: str) -> str:
    """Escape a text for Mermaid: all characters except ASCII letters, digits and blanks become
    entities.
    """
    return "".join(c if c.isalnum() or c in " .,:_/" else f"#{ord(c)};" for c in printable(value))


def _table(graph: Graph) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("", justify="right")
    timed = any(operator.share is not None for operator in graph.operators)
    followed = graph.seen is not None
    names = ["line", "function", "expression", *["time"] * timed]
    for name in (*names, "feeds", *["seen to feed"] * followed, "cycle"):
        table.add_column(name)
    seen = graph.seen or frozenset()
    cycle = {member: members for members in graph.cycles for member in members}
    for at, operator in enumerate(graph.operators):
        table.add_row(
            str(at + 1),
            f"{operator.place}:{operator.column}",
            Text(shown(operator.function)),
            Text(shown(operator.expression)),
            *([_bar(operator.share or 0.0)] * timed),
            _numbers([to for to in graph.successors[at] if (at, to) not in graph.extra]),
            *([_numbers([to for to in graph.successors[at] if (at, to) in seen])] * followed),
            _numbers(cycle.get(at, ())),
        )
    return table


def _bar(share: float) -> str:
    """A share as a number and a bar: ` 31.2 % ███`."""
    return f"{percent(share):>7} {'█' * round(BAR * share)}".rstrip()


def _numbers(positions: Sequence[int]) -> str:
    """Sorted positions as the table's numbers, from 1: `1, 2, 4–6`."""
    runs: list[list[int]] = []
    for at in positions:
        if runs and at == runs[-1][-1] + 1:
            runs[-1].append(at)
        else:
            runs.append([at])
    parts: list[str] = []
    for run in runs:
        if len(run) > 2:
            parts.append(f"{run[0] + 1}–{run[-1] + 1}")
        else:
            parts += [str(at + 1) for at in run]
    return ", ".join(parts)


def _counted(number: int, word: str) -> str:
    return f"{number} {word}{'s' * (number != 1)}"


def _place(operator: Operator) -> str:
    return f"{shown(operator.function)}:{operator.place}"


def _quoted(value: str) -> str:
    return f'"{_escaped(printable(value))}"'


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')
