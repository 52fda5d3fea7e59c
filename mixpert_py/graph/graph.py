"""The graph of a file's matrix products (operators), with edges along which values flow.

Values are followed within a file, so a program of several files has one graph for each. The profile
of a run adds each operator's share of the time, and the edges that the run has shown.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from mixpert_py import config
from mixpert_py.errors import MixPertError, SourceError, named
from mixpert_py.passes.call_site import CallSite
from mixpert_py.passes.dataflow.graph import Dependencies, dependencies
from mixpert_py.passes.pipeline import analyze, require_syntax
from mixpert_py.sources import notebook_file, source_files
from mixpert_py.sources.source_files import SourceFile

MAX_TEXT = 40

# Producer and consumer, as positions among the operators.
Edge = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Operator:
    """A rewritten matrix product as a node of the graph.

    function: its qualified name, `<module>` outside functions. line, column: 1-based; in a notebook
    the line is counted in the code cell with number `cell`. expression: the source text in
    printable characters. share: its part of the time of all products in a run, 0 … 1; None without
    a profile.
    """

    id: str
    function: str
    line: int
    column: int
    expression: str
    share: float | None = None
    cell: int | None = None

    @property
    def place(self) -> str:
        """The operator's line: `7`, and in a notebook `cell_3:7`."""
        return f"{self.line}" if self.cell is None else f"cell_{self.cell}:{self.line}"


@dataclass(frozen=True)
class Graph:
    """The graph of a file, or the `problem` why there is none.

    operators: in source order, a product after those in its operands. edges: sorted pairs (p, s): a
    value computed from the result of operators[p] can reach an operand of operators[s]. seen: edges
    that a run has shown, because a result was itself an operand; None without a profile. extra:
    edges in `seen` that the source does not show.
    """

    path: str
    operators: tuple[Operator, ...] = ()
    edges: tuple[Edge, ...] = ()
    problem: str | None = None
    seen: frozenset[Edge] | None = None
    extra: frozenset[Edge] = frozenset()

    @cached_property
    def successors(self) -> tuple[tuple[int, ...], ...]:
        """Return, for each operator, the operators that it feeds, in source order."""
        after: list[list[int]] = [[] for _ in self.operators]
        for producer, consumer in self.edges:
            after[producer].append(consumer)
        return tuple(map(tuple, after))

    @cached_property
    def cycles(self) -> tuple[tuple[int, ...], ...]:
        """Operators that feed one another, or themselves, in a loop. No two cycles overlap."""
        import networkx  # a quarter of a second

        whole: Any = networkx.DiGraph(self.edges)
        return tuple(
            sorted(
                tuple(sorted(members))
                for members in networkx.strongly_connected_components(whole)
                if len(members) > 1 or whole.has_edge(*members, *members)
            )
        )


def of_source(source: bytes, path: str, module: str, is_named: bool = True) -> Graph:
    """The graph of a source text, or of a notebook if `path` is one. is_named: as in `SourceFile`.

    Raises SourceError, naming `path`, if it does not parse.
    """
    with named(path, module):
        if path.endswith(source_files.NOTEBOOK):
            source, placed = notebook_file.placed_sites(source, module)
            return _graph(path, placed, dependencies(source, module))
        sites = [(site, None) for site in analyze(source, module)]
        if is_named and not sites:
            require_syntax(source, module)
        return _graph(path, sites, dependencies(source, module))


def of_files(files: Iterable[SourceFile]) -> list[Graph]:
    """The graph of each file, in order and once. A file that cannot be read has a `problem`."""
    return [_of_file(file) for file in {file.path: file for file in files}.values()]


def with_profile(graphs: Sequence[Graph], path: str) -> list[Graph]:
    """The graphs, each operator with its share of the time of all products in a profile that
    `mixpert run --json` wrote, and the edges that it saw.

    An operator that was not called has the share 0. Raises SourceError if the file cannot be read,
    is no such profile, or has no product of these graphs.
    """
    profile = _profile(path)
    seconds = {record.id: record.seconds for record in profile}
    seen = {(before, record.id) for record in profile for before in record.fed_by or ()}
    total = sum(seconds.values()) or 1.0
    sites = {operator.id for graph in graphs for operator in graph.operators}
    if sites.isdisjoint(seconds):
        raise SourceError(f"{path}: has no product of these programs; was it another that ran?")
    shared = [
        replace(
            graph,
            operators=tuple(
                replace(operator, share=seconds.get(operator.id, 0.0) / total)
                for operator in graph.operators
            ),
        )
        for graph in graphs
    ]
    followed = any(record.fed_by is not None for record in profile)
    return [with_seen(graph, seen) for graph in shared] if followed else shared


def with_seen(graph: Graph, seen: Iterable[tuple[str, str]]) -> Graph:
    """The graph with the edges that a run has shown, given as site ids; missing ones are added."""
    position = {operator.id: at for at, operator in enumerate(graph.operators)}
    edges = frozenset(
        (position[producer], position[consumer])
        for producer, consumer in seen
        if producer in position and consumer in position
    )
    extra = edges.difference(graph.edges)
    return replace(graph, edges=tuple(sorted(extra.union(graph.edges))), seen=edges, extra=extra)


class _Record(msgspec.Struct, frozen=True):
    """The fields of a profile's record that are used here. fed_by: None in older versions."""

    id: str
    seconds: float
    fed_by: dict[str, int] | None = None


def _profile(path: str) -> list[_Record]:
    try:
        profile = msgspec.convert(json.loads(source_files.read_whole(path)), list[_Record])
    except (ValueError, RecursionError, msgspec.ValidationError):
        raise SourceError(f"{path}: not a profile as `mixpert run --json` writes it") from None
    if not all(0 <= record.seconds < float("inf") for record in profile):
        raise SourceError(f"{path}: has times that are none")
    return profile


def shown(text: str) -> str:
    """A text for display, with unprintable characters escaped, cut to MAX_TEXT characters."""
    text = printable(text)
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"


def percent(share: float) -> str:
    """A share as a percentage with one decimal."""
    return f"{100 * share:.1f} %"


def printable(text: str) -> str:
    """A text with its unprintable characters escaped; XML and terminals take the rest as it is."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _of_file(file: SourceFile) -> Graph:
    path = file.path
    try:
        module = config.module_name(Path(path))
        return of_source(source_files.read(path), path, module, file.is_named)
    except MixPertError as error:
        return Graph(path, problem=str(error))


def _graph(path: str, sites: Sequence[tuple[CallSite, int | None]], flow: Dependencies) -> Graph:
    """The graph of sites, each with its cell in a notebook."""
    rewritten = [(site, cell) for site, cell in sites if site.reason is None]
    # `a @ b` before `a @ b @ c`
    rewritten.sort(key=lambda placed: (placed[0].span[1], -placed[0].span[0]))
    position = {site.id: at for at, (site, _) in enumerate(rewritten)}
    operators = tuple(
        Operator(
            site.id,
            _function(site.id),
            site.line,
            site.column,
            printable(site.expression),
            cell=cell,
        )
        for site, cell in rewritten
    )
    return Graph(path, operators, tuple(sorted((position[p], position[s]) for p, s in flow.edges)))


def _function(site: str) -> str:
    """The qualified name in a site id, `module:qualname/kind~hash#n`."""
    return site.partition(":")[2].rpartition("/")[0]
