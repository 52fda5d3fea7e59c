"""What the applications come to: speed-ups, their geometric means, and the targets."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from mixpert_py.bench.apps import modes

Record = dict[str, Any]

# What is wanted of the geometric means, and of each application by itself.
AT_FP32_ERROR, AT_BUDGET, ON_HOST = 2.5, 3.5, 8.0
NO_SLOWER = 0.98  # two measurements of the same thing differ by that


def modes_of(record: Record) -> dict[str, Record]:
    """The modes of an application that did not fail, by name."""
    return {m["name"]: m for m in record.get("modes", []) if "failed" not in m and "device" in m}


def speedup(record: Record, mode: str, clock: str = "device") -> float | None:
    """How many times as fast as cuBLAS FP32 an application is; None where either failed."""
    found = modes_of(record)
    if mode not in found or modes.FP32 not in found:
        return None
    return float(found[modes.FP32][clock]["median"] / found[mode][clock]["median"])


def geometric_mean(values: Iterable[float]) -> float:
    """NaN of nothing."""
    logarithms = [math.log(value) for value in values]
    return math.exp(sum(logarithms) / len(logarithms)) if logarithms else math.nan


def summary(records: Sequence[Record], clock: str = "device") -> Record:
    """Mode → its geometric mean over the applications where it was measured, and over how many."""
    found = {}
    for mode in (modes.TF32, modes.FAITHFUL, modes.TUNED):
        factors = [f for record in records if (f := speedup(record, mode, clock)) is not None]
        found[mode] = {"mean": geometric_mean(factors), "applications": len(factors)}
    return found


def targets(records: Sequence[Record], hosts: Sequence[Record]) -> list[Record]:
    """Each target: what, measured, wanted, met. An application that failed misses all of its own.

    `faithful` counts where its error is no larger than FP32's; elsewhere the native run does.
    """
    if not records and not hosts:
        return []
    rows = []
    if records:
        equal = [_at_fp32_error(record) for record in records]
        tuned = [_within_budget(record) for record in records]
        slowest = min(
            (speedup(record, mode) or 0.0 for record in records for mode in OURS), default=0.0
        )
        rows = [
            _row("faithful, error no larger than FP32's, geometric mean", equal, AT_FP32_ERROR),
            _row("tuned, within its budget, geometric mean", tuned, AT_BUDGET),
            _row("the slowest application, faithful or tuned", [slowest], NO_SLOWER),
        ]
    if hosts:
        factors = [float(record.get("speedup", 0.0)) for record in hosts]
        rows.append(_row("NumPy programs, the slowest", [min(factors)], ON_HOST))
    return rows


OURS = (modes.FAITHFUL, modes.TUNED)


def _at_fp32_error(record: Record) -> float:
    """The speed-up at an error no larger than FP32's: 1 where only the native run has it."""
    found, factor = modes_of(record), speedup(record, modes.FAITHFUL)
    if factor is None:
        return 0.0
    allowed = max(found[modes.FP32]["error"], record["alike_below"])
    exact = found[modes.FAITHFUL]["error"] <= allowed
    return factor if exact else 1.0


def _within_budget(record: Record) -> float:
    """The speed-up of the tuned plan: 1 where the measured run is over the budget after all."""
    factor = speedup(record, modes.TUNED)
    if factor is None:
        return 0.0
    holds = modes_of(record)[modes.TUNED]["error"] <= record["tuned"]["budget"]
    return factor if holds else 1.0


def _row(what: str, factors: Sequence[float], wanted: float) -> Record:
    whole = all(factor > 0 for factor in factors)
    measured = geometric_mean(factors) if whole else 0.0
    return {"what": what, "measured": measured, "wanted": wanted, "met": measured >= wanted}
