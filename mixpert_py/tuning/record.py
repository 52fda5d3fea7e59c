"""The results of a tuning: the entries of its plan file, and the record for its report.

The record is kept as JSON in the trials file; `mixpert report` shows it.
"""

import hashlib
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from math import inf, isfinite, isnan
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from mixpert_py import __version__, config
from mixpert_py.launch.launcher import Program
from mixpert_py.plan import Criterion, Provenance, Site
from mixpert_py.tuner.records import Verdict
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

SHAPES = 8  # of a site, that the plan file lists


def criteria(
    limits: Limits,
    reference: str,
    errors: Mapping[str, float],
    hold_out: Mapping[str, float] = {},
) -> list[Criterion]:
    """An entry for every value that is judged. hold_out: errors there, where there is one.

    A value that could not be compared has an infinite error.
    """

    def comparable(error: float | None) -> float | None:
        return inf if error is not None and isnan(error) else error

    return [
        Criterion(
            name,
            limits.of(name).metric,
            limits.of(name).budget,
            inf if isnan(error) else error,
            reference,
            comparable(hold_out.get(name)),
        )
        for name, error in errors.items()
    ]


def site_entry(verdict: Verdict, blocks: Mapping[str, int | None], predicted: bool) -> Site:
    """The entry of an operator that was called, of a native one too.

    predicted: whether the search's times are costs; the plan keeps measured milliseconds only.
    """
    operator = verdict.operator
    unknown = predicted or operator.elsewhere
    error = verdict.local_error or 0.0
    return Site(
        id=operator.id,
        expression=operator.expression,
        scheme=verdict.after,
        block=blocks.get(operator.id),
        locked=operator.locked,
        shapes=[list(shape) for shape in operator.shapes[:SHAPES]],
        calls=operator.calls,
        error=error if isfinite(error) else 0.0,
        native_ms=None if unknown else round(verdict.seconds_before * 1e3, 3),
        ms=None if unknown else round(verdict.seconds_after * 1e3, 3),
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


def record(result: "TuningResult", path: str = "") -> Record:
    """The record of a tuning. path: of its plan file."""
    search = report_record.record(
        result.outcome, result.limits.metric, result.predicted, result.device
    )
    held, found = result.hold_out, result.verification
    verification = VerificationEntry(
        error=finite(found.error),
        worst=found.worst,
        native_seconds=finite(found.native_seconds),
        spread=finite(found.spread),
        native_lowered=finite(found.native_lowered),
        lowered=finite(found.lowered),
        least=finite(found.ratio.least),
        most=finite(found.ratio.most),
    )
    inputs = held.inputs if held else ()
    return msgspec.structs.replace(
        search,
        plan_file=path,
        schemes=result.plan.schemes(),
        values=value_entries(result.plan.criterion),
        verification=None if result.reverted else verification,
        gain=result.gain,
        reverted=result.reverted,
        unclear=result.unclear,
        hold_out=finite(held.error) if held else None,
        hold_outs=[InputEntry(arguments=words, error=finite(e)) for words, e in inputs],
        hold_out_rate=held.rate if held else None,
        provenance=result.plan.provenance,
        notes=list(result.notes),
    )
