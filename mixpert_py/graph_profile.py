"""Shares of time: what `mixpert run --json` wrote of a run, on the operators of its program."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mixpert_py.errors import SourceError
from mixpert_py.graph import Graph
from mixpert_py.launcher import read_source


def with_shares(graphs: Sequence[Graph], path: str) -> list[Graph]:
    """The graphs, each operator with its share of the time of all products in the profile.

    An operator that was not called has the share 0. Raises SourceError if the file cannot be read,
    is no such profile, or has no product of these graphs.
    """
    seconds = _seconds(path)
    total = sum(seconds.values()) or 1.0
    sites = {operator.id for graph in graphs for operator in graph.operators}
    if sites.isdisjoint(seconds):
        raise SourceError(f"{path}: has no product of these programs; was it another that ran?")
    return [
        replace(
            graph,
            operators=tuple(
                replace(operator, share=seconds.get(operator.id, 0.0) / total)
                for operator in graph.operators
            ),
        )
        for graph in graphs
    ]


def _seconds(path: str) -> Mapping[str, float]:
    """Site id → seconds of its calls."""
    try:
        records: Any = json.loads(read_source(Path(path)))
        seconds = {str(record["id"]): float(record["seconds"]) for record in records}
    except (ValueError, TypeError, KeyError, RecursionError):
        raise SourceError(f"{path}: not a profile as `mixpert run --json` writes it") from None
    if not all(0 <= its < float("inf") for its in seconds.values()):
        raise SourceError(f"{path}: has times that are none")
    return seconds
