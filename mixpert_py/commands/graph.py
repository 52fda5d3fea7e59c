"""The command that shows which products feed which: `mixpert graph`.

A graph has the matrix products (operators) of a file, with edges along which values flow. Values
are followed within a file, so a program of several files has one graph for each.
"""

import io
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from mixpert_py import config, sources
from mixpert_py.commands import FILE, say
from mixpert_py.errors import MixPertError, counted, named, visible
from mixpert_py.passes.dataflow.graph import dependencies
from mixpert_py.passes.finder import CallSite
from mixpert_py.passes.pipeline import analyze
from mixpert_py.sources import notebook_file
from mixpert_py.tuner.report import Column, fitted

MAX_TEXT = 40
# Wide enough that rich never folds a line: an operator is one line, whatever the terminal.
WIDTH = 100_000

OPERATOR = ("id", "function", "line", "column", "expression", "cell")  # of a call site, in JSON


@dataclass(frozen=True, slots=True)
class FileGraph:
    """The graph of a file, or the `problem` why there is none.

    operators: in source order, a product after those in its operands. edges: sorted pairs (p, s): a
    value computed from the result of operators[p] can reach an operand of operators[s].
    """

    path: str
    operators: tuple[CallSite, ...] = ()
    edges: tuple[tuple[int, int], ...] = ()
    problem: str | None = None


def of_source(source: bytes, path: str, module: str) -> FileGraph:
    """The graph of a source text or notebook. Raises SourceError, naming `path`, on bad syntax."""
    with named(path, module):
        if path.endswith(sources.NOTEBOOK):
            source, sites = notebook_file.placed_sites(source, module)
        else:
            sites = analyze(source, module)
        edges = dependencies(source, module).edges
    operators = [
        replace(it, expression=visible(it.expression, kept="")) for it in sites if it.reason is None
    ]
    operators.sort(key=lambda it: (it.span[1], -it.span[0]))  # `a @ b` before `a @ b @ c`
    position = {operator.id: at for at, operator in enumerate(operators)}
    pairs = sorted((position[one], position[other]) for one, other in edges)
    return FileGraph(path, tuple(operators), tuple(pairs))


def of_file(path: str) -> FileGraph:
    """The graph of a file. A file that cannot be read has a `problem`."""
    try:
        return of_source(sources.read(path), path, config.module_name(Path(path)))
    except MixPertError as error:
        return FileGraph(path, problem=str(error))


def shown(text: str) -> str:
    """A text for display, with unprintable characters escaped, cut to MAX_TEXT characters."""
    text = visible(text, kept="")
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"


def text(graphs: Sequence[FileGraph]) -> str:
    """For each file with operators a table with a line for each operator, and their number."""
    stream = io.StringIO()
    console = Console(file=stream, width=WIDTH, color_system=None, markup=False, emoji=False)
    for graph in graphs:
        if graph.operators:
            console.print(visible(graph.path, kept=""))
            console.print(_table(graph))
            console.print()
    products = counted(sum(len(graph.operators) for graph in graphs), "product")
    edges = counted(sum(len(graph.edges) for graph in graphs), "edge")
    console.print(f"{products}, {edges}")
    return "".join(f"{line.rstrip()}\n" for line in stream.getvalue().splitlines())


def as_json(graphs: Sequence[FileGraph]) -> str:
    """Operators and edges; a site id is unique within its path."""
    operators = [
        {"path": graph.path} | {name: getattr(operator, name) for name in OPERATOR}
        for graph in graphs
        for operator in graph.operators
    ]
    edges = [
        {
            "path": graph.path,
            "producer": graph.operators[producer].id,
            "consumer": graph.operators[consumer].id,
        }
        for graph in graphs
        for producer, consumer in graph.edges
    ]
    return json.dumps({"operators": operators, "edges": edges}, indent=2) + "\n"


def dot(graphs: Sequence[FileGraph]) -> str:
    """Graphviz text: a cluster a file, a box an operator, with id and expression as tooltip."""

    def box(name: str, operator: CallSite) -> str:
        label = f"{_escaped(_place(operator))}\\n{_escaped(shown(operator.expression))}"
        tooltip = _quoted(f"{operator.id}: {operator.expression}")
        return f'    {name} [label="{label}", tooltip={tooltip}];'

    lines = ["digraph products {", '  node [shape=box, fontname="monospace"];']
    for number, graph, name in _named(graphs):
        lines += [f"  subgraph cluster_{number} {{", f"    label={_quoted(graph.path)};"]
        lines += [*map(box, name, graph.operators), "  }"]
        lines += [f"  {name[producer]} -> {name[consumer]};" for producer, consumer in graph.edges]
    return "\n".join([*lines, "}", ""])


def mermaid(graphs: Sequence[FileGraph]) -> str:
    """A Mermaid flowchart: a subgraph for each file, a box for each operator."""

    def box(name: str, operator: CallSite) -> str:
        parts = (_place(operator), shown(operator.expression))
        return f'    {name}["{"<br/>".join(map(_entities, parts))}"]'

    lines = ["flowchart TD"]
    for number, graph, name in _named(graphs):
        lines.append(f'  subgraph file{number}["{_entities(graph.path)}"]')
        lines += [*map(box, name, graph.operators), "  end"]
        lines += [f"  {name[producer]} --> {name[consumer]}" for producer, consumer in graph.edges]
    return "\n".join([*lines, ""])


def _named(graphs: Sequence[FileGraph]) -> Iterator[tuple[int, FileGraph, list[str]]]:
    """The graphs with operators, each with its number and the names of its operators."""
    names = count(1)
    for number, graph in enumerate(graphs):
        if graph.operators:
            yield number, graph, [f"n{next(names)}" for _ in graph.operators]


FORMATS: dict[str, Callable[[Sequence[FileGraph]], str]] = {
    "text": text,
    "dot": dot,
    "mermaid": mermaid,
    "json": as_json,
}


def _entities(value: str) -> str:
    """A text for Mermaid: all but ASCII letters, digits and blanks become entities."""
    return "".join(
        c if c.isalnum() or c in " .,:_/" else f"#{ord(c)};" for c in visible(value, kept="")
    )


def _table(graph: FileGraph) -> Table:
    columns = [Column("", right=True)]
    columns += [Column(name) for name in ("line", "function", "expression", "feeds")]
    rows = [
        (
            str(at + 1),
            f"{_line(operator)}:{operator.column}",
            shown(operator.function),
            shown(operator.expression),
            ", ".join(str(consumer + 1) for producer, consumer in graph.edges if producer == at),
        )
        for at, operator in enumerate(graph.operators)
    ]
    return fitted(columns, rows, WIDTH)


def _line(operator: CallSite) -> str:
    """The operator's line: `7`, and in a notebook `cell_3:7`."""
    return f"{operator.line}" if operator.cell is None else f"cell_{operator.cell}:{operator.line}"


def _place(operator: CallSite) -> str:
    return f"{shown(operator.function)}:{_line(operator)}"


def _quoted(value: str) -> str:
    return f'"{_escaped(visible(value, kept=""))}"'


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH…|-", type=FILE)
@click.option("--format", "form", type=click.Choice([*FORMATS]), default="text", show_default=True)
def graph(paths: tuple[str, ...], form: str) -> int:
    """Show which products' results can reach which others.

    `-` reads a program from standard input.
    """
    if paths == ("-",):
        graphs = [of_source(sys.stdin.buffer.read(), "-", "stdin")]
    else:
        graphs = [of_file(path) for path in dict.fromkeys(sources.files_of_projects(paths, ()))]
    problems = [one.problem for one in graphs if one.problem is not None]
    for problem in problems:
        say(problem)
    click.echo(FORMATS[form](graphs), nl=False)
    return 2 if problems else 0
