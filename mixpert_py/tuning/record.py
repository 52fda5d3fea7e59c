"""The results of a tuning: the entries of its plan file, and the record for its report.

The record is kept as JSON in the trials file; `mixpert report` shows it.
"""

import hashlib
import os
import platform
import sys
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from math import inf, isfinite, isnan
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from mixpert_py import __version__, config
from mixpert_py import plan as plan_file
from mixpert_py.errors import PlanError
from mixpert_py.launch.launcher import Program
from mixpert_py.plan import Criterion, Plan, Provenance, Site
from mixpert_py.tuner.records import Outcome, Verdict
from mixpert_py.tuner.report import record as report_record
from mixpert_py.tuner.report.record import (
    InputEntry,
    Record,
    VerificationEntry,
    finite,
    value_entries,
)
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


def provenance(program: Program, backend: str | None, command: str, gain: str = "") -> Provenance:
    """The origin of a plan that is made today. gain: see Provenance."""
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
        blas_threads=config.blas_threads(),
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


def record(result: "TuningResult", path: str = "") -> Record:
    """The record of a tuning. path: of its plan file."""
    search = report_record.record(
        result.outcome, result.limits.metric, result.predicted, result.device
    )
    held = result.hold_out
    return msgspec.structs.replace(
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


def _verification(found: "Verification") -> VerificationEntry:
    return VerificationEntry(
        error=finite(found.error),
        worst=found.worst,
        native_seconds=finite(found.native_seconds),
        spread=finite(found.spread),
        native_lowered=finite(found.native_lowered),
        lowered=finite(found.lowered),
        least=finite(found.ratio.least),
        most=finite(found.ratio.most),
    )
