"""The results of a tuning: the entries of its plan file, and the record for its report.

The record is kept as JSON in the trials file; `mixpert report` shows it with the program as it is
today (`reported_program`).
"""

import hashlib
import os
import platform
import sys
import tempfile
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from math import inf, isfinite, isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from mixpert_py import __version__, config
from mixpert_py import plan as plan_file
from mixpert_py.errors import MixPertError, PlanError, named
from mixpert_py.launch.launcher import Program
from mixpert_py.passes.pipeline import analyze
from mixpert_py.passes.source import decode
from mixpert_py.plan import Criterion, Plan, Provenance, Site
from mixpert_py.sources import notebook_file, source_files
from mixpert_py.tuner.records import Outcome, Verdict
from mixpert_py.tuner.report import record as report_record
from mixpert_py.tuner.report.record import (
    InputEntry,
    Record,
    ValueEntry,
    VerificationEntry,
    finite,
)
from mixpert_py.tuner.report.summary import Program as ReportedProgram
from mixpert_py.tuning.options import Limits

if TYPE_CHECKING:
    from mixpert_py.tuning.search import TuningResult
    from mixpert_py.tuning.verify import Verification

SHAPES = 8  # of a site, that the plan file lists


def criteria(
    limits: Limits,
    reference: str,
    errors: Mapping[str, float],
    hold_out: Mapping[str, float] | None = None,
) -> list[Criterion]:
    """An entry for every value that is judged. hold_out: errors there, where there is one."""
    there = hold_out or {}
    return [
        Criterion(
            name,
            limits.of(name).metric,
            limits.of(name).budget,
            _comparable(error),
            reference,
            _comparable(there[name]) if name in there else None,
        )
        for name, error in errors.items()
    ]


def _comparable(error: float) -> float:
    """A value that could not be compared has an infinite error."""
    return inf if isnan(error) else error


def sites(
    outcome: Outcome,
    schemes: Mapping[str, str],
    blocks: Mapping[str, int | None],
    *,
    predicted: bool,
) -> list[Site]:
    """An entry for every operator that was called, the native ones too.

    schemes: those that are written. predicted: whether the search's times are costs; the plan keeps
    measured milliseconds only.
    """
    return [
        _site(verdict, schemes[verdict.operator.id], blocks, predicted)
        for verdict in outcome.verdicts
    ]


def _site(verdict: Verdict, scheme: str, blocks: Mapping[str, int | None], predicted: bool) -> Site:
    operator = verdict.operator
    unknown = predicted or operator.elsewhere
    error = operator.local_errors.get(scheme, 0.0)
    seconds = verdict.seconds_after if scheme == verdict.after else verdict.seconds_before
    return Site(
        id=operator.id,
        expression=operator.expression,
        scheme=scheme,
        block=blocks.get(operator.id),
        locked=operator.locked,
        shapes=[list(shape) for shape in operator.shapes[:SHAPES]],
        calls=operator.calls,
        error=error if isfinite(error) else 0.0,
        native_ms=None if unknown else round(verdict.seconds_before * 1e3, 3),
        ms=None if unknown else round(seconds * 1e3, 3),
    )


def provenance(
    program: Program, backend: str | None, command: str, blas_threads: int, gain: str = ""
) -> Provenance:
    """The origin of a plan that is made today. blas_threads: of its runs. gain: see Provenance."""
    return Provenance(
        source=Path(program.filename).name,
        sha256=hashlib.sha256(program.source).hexdigest(),
        device=platform.machine(),
        backend=backend or "native",
        versions={
            "mixpert-py": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
        },
        blas_threads=blas_threads,
        command=command,
        date=datetime.now(UTC).date().isoformat(),
        gain=gain,
    )


def save_elsewhere(plan: Plan, error: PlanError) -> PlanError:
    """Save a plan that could not be written to its place: hours of runs must not be lost with it.

    It goes to the temporary folder, else to stderr. Returns the error, with where it is now.
    """
    # Without the comments of the old plan, which may be what could not be read.
    content = plan_file.dumps(plan).encode()
    try:
        place = _written(content)
    except OSError:
        print(content.decode(), file=sys.stderr)
        return PlanError(f"{error}; the plan that was found is printed above")
    return PlanError(f"{error}; the plan that was found is in {place}")


def _written(content: bytes) -> str:
    """A new file of the temporary folder. Raises OSError, and leaves none, if it cannot be."""
    descriptor, place = tempfile.mkstemp(prefix="unsaved-", suffix=config.SUFFIX)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
    except OSError:
        Path(place).unlink()
        raise
    return place


def record(result: "TuningResult", path: str) -> dict[str, Any]:
    """The record of a tuning, for JSON; `tuner.report.record.read` reads it. path: the plan's."""
    search = report_record.record(
        result.outcome, result.limits.metric, result.predicted, result.device
    )
    held = result.hold_out
    entry: dict[str, Any] = msgspec.to_builtins(
        msgspec.structs.replace(
            search,
            plan_file=path,
            schemes=result.plan.schemes(),
            values=value_entries(result.plan.criterion),
            verification=None if result.reverted else _verification(result.verification),
            gain=result.gain,
            reverted=result.reverted,
            unclear=result.unclear,
            hold_out=finite(held.error) if held else None,
            hold_outs=[InputEntry(arguments=a, error=finite(e)) for a, e in held.inputs]
            if held
            else [],
            hold_out_rate=held.rate if held else None,
            provenance=result.plan.provenance,
            notes=list(result.notes),
        )
    )
    return entry


def value_entries(criteria: Iterable[Criterion]) -> list[ValueEntry]:
    """A plan's list of values, for JSON."""
    return [
        ValueEntry(
            name=value.name,
            criterion=value.metric,
            budget=finite(value.budget),
            error=finite(value.achieved),
        )
        for value in criteria
    ]


def _verification(found: "Verification") -> VerificationEntry:
    return VerificationEntry(
        error=finite(found.error),
        worst=found.worst,
        native_seconds=finite(found.native_seconds),
        spread=finite(found.spread),
        native_lowered=finite(found.native_lowered),
        lowered=finite(found.lowered),
    )


def reported_program(record: Record, plan: Plan | None, script: Path) -> ReportedProgram:
    """The program's source, products and graph today, with notes on what differs from the record.

    plan: the plan file as it is today; None where there is none. script: where the program is; it
    need not exist, nor be as it was.
    """
    from mixpert_py.graph import formats
    from mixpert_py.graph.graph import of_source, with_seen

    notes = list(record.notes)
    if plan is not None and record.schemes != plan.schemes():
        notes.append("The plan file has changed since: this is what the tuning found.")
    origin = record.provenance
    name = origin.source or script.name
    try:
        raw, shown = source_files.read(str(script)), name
        module = config.module_name(script)
        if name.endswith(source_files.NOTEBOOK):  # what has run are its cells
            raw, shown = notebook_file.notebook_text(raw), f"the cells of {script.stem}"
        with named(name, module):
            spans = {site.id: site.span for site in analyze(raw, module) if site.reason is None}
            text = decode(raw, module).text
        graph = of_source(raw, shown, module)
    except MixPertError as problem:
        return ReportedProgram(name, notes=(*notes, f"The source is not shown. {problem}"))
    own = [it.id for it in record.operators if plan_file.module_of(it.id) == module]
    missing, total = sum(site not in spans for site in own), len(own)
    if hashlib.sha256(raw).hexdigest() != origin.sha256 or missing:
        notes.append(
            f"{name} has changed since it was tuned: {total - missing} of its {total} products "
            "are still found, and are shown where they stand today."
        )
    seen = {(before, entry.id) for entry in record.operators for before in entry.fed_by or ()}
    if any(entry.fed_by is not None for entry in record.operators):
        graph = with_seen(graph, seen)
    return ReportedProgram(
        name,
        text,
        spans,
        {operator.id: at for at, operator in enumerate(graph.operators, 1)},
        formats.text([graph]),
        tuple(notes),
    )
