"""What a run showed, on the graph of its program: shares of time, and edges that were seen."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from mixpert_py.errors import SourceError
from mixpert_py.graph.graph import Graph
from mixpert_py.launch.launcher import read_source


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
        profile = msgspec.convert(json.loads(read_source(Path(path))), list[_Record])
    except (ValueError, RecursionError, msgspec.ValidationError):
        raise SourceError(f"{path}: not a profile as `mixpert run --json` writes it") from None
    if not all(0 <= record.seconds < float("inf") for record in profile):
        raise SourceError(f"{path}: has times that are none")
    return profile
