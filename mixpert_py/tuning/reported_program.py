"""What a report shows of the program that was tuned, as it is today."""

import hashlib
from pathlib import Path

from mixpert_py import config
from mixpert_py.errors import MixPertError, named
from mixpert_py.graph import svg
from mixpert_py.graph.graph import Graph, of_source
from mixpert_py.graph.run_profile import with_seen
from mixpert_py.passes.pipeline import analyze
from mixpert_py.passes.source import decode
from mixpert_py.plan import Plan
from mixpert_py.sources import source_files
from mixpert_py.tuner.report.record import Record
from mixpert_py.tuner.report.summary import Program


def reported_program(record: Record, plan: Plan, script: Path) -> Program:
    """The program's source, products and graph, with notes on what does not fit the record.

    script: where the program is; it need not be there, nor be as it was.
    """
    notes = []
    if record.schemes != plan.schemes():
        notes.append("The plan file has changed since: this is what the tuning found.")
    origin = record.provenance
    name = origin.source or script.name
    try:
        raw = source_files.read(str(script))
        module = config.module_name(script)
        with named(name, module):
            spans = {site.id: site.span for site in analyze(raw, module) if site.reason is None}
            text = decode(raw, module).text
        graph = of_source(raw, name, module)
    except MixPertError as problem:
        return Program(name, notes=(*notes, f"The source is not shown. {problem}"))
    missing = sum(entry.id not in spans for entry in record.operators)
    if hashlib.sha256(raw).hexdigest() != origin.sha256 or missing:
        total = len(record.operators)
        notes.append(
            f"{name} has changed since it was tuned: {total - missing} of its {total} products "
            "are still found, and are shown where they stand today."
        )
    seen = {(before, entry.id) for entry in record.operators for before in entry.fed_by or ()}
    if any(entry.fed_by is not None for entry in record.operators):
        graph = with_seen(graph, seen)
    picture, said = _picture(graph)
    return Program(
        name,
        text,
        spans,
        {operator.id: at for at, operator in enumerate(graph.operators, 1)},
        picture,
        (*notes, *said),
    )


def _picture(graph: Graph) -> tuple[str, list[str]]:
    """The graph as SVG, or why it is not drawn."""
    try:
        return svg.svg([graph]), []
    except MixPertError as problem:
        return "", [f"The graph is not shown. {problem}"]
