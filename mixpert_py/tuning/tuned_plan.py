"""The plan file of a search: what was chosen at every site, and what was measured for it."""

import hashlib
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from math import inf, isfinite, isnan
from pathlib import Path

import numpy as np

from mixpert_py import __version__
from mixpert_py.launch.launcher import Program
from mixpert_py.plan import Criterion, Provenance, Site
from mixpert_py.tuner.records import Outcome, Verdict
from mixpert_py.tuning.limits import Limits

SHAPES = 8  # of a site, that the plan file lists


def criteria(
    limits: Limits,
    reference: str,
    errors: Mapping[str, float],
    held: Mapping[str, float] | None = None,
) -> list[Criterion]:
    """An entry for every value that is judged. held: errors on the hold-out, where there is one."""
    held = held or {}
    return [
        Criterion(
            name,
            limits.of(name).metric,
            limits.of(name).budget,
            _comparable(error),
            reference,
            _comparable(held[name]) if name in held else None,
        )
        for name, error in errors.items()
    ]


def _comparable(error: float) -> float:
    """What could not be compared is as far off as can be."""
    return inf if isnan(error) else error


def sites(
    outcome: Outcome,
    schemes: Mapping[str, str],
    blocks: Mapping[str, int | None],
    predicted: bool,
) -> list[Site]:
    """Every operator that was called, the native ones too, with the schemes to be written.

    predicted: the search's times are costs; the plan keeps measured milliseconds only.
    """
    return [
        _site(verdict, schemes[verdict.operator.id], blocks, predicted)
        for verdict in outcome.verdicts
    ]


def _site(verdict: Verdict, scheme: str, blocks: Mapping[str, int | None], predicted: bool) -> Site:
    operator = verdict.operator
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
        native_ms=None if predicted else round(verdict.seconds_before * 1e3, 3),
        ms=None if predicted else round(seconds * 1e3, 3),
    )


def provenance(
    program: Program, backend: str | None, command: str, blas_threads: int
) -> Provenance:
    """Where and from what the plan was made, today. blas_threads: of its runs."""
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
    )
