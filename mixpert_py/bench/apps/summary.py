"""Speed-ups of the applications, their geometric means, and the targets."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from mixpert_py.bench.apps import modes
from mixpert_py.bench.apps.app import APPS

Record = dict[str, Any]

# What is wanted of the geometric means, and of each application by itself.
AT_FP32_ERROR, AT_BUDGET, ON_HOST = 2.5, 3.5, 8.0
NO_SLOWER = 0.98  # two measurements of the same thing differ by that
REFINED, RESIDUAL = "hpl-ai", 16.0  # the benchmark passes below


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
    """Each target: what, measured, wanted, at_most, met; failed: the applications that did, which
    miss it; who: the one that decided it; count, of: how many applications of how many were run.

    `faithful` counts where its error is no larger than FP32's; elsewhere the native run does.
    """
    rows = []
    if records:
        exact, tuned = _factors(records, _at_fp32_error), _factors(records, _within_budget)
        slowest = _factors(records, _slowest)
        rows = [
            _mean("faithful, error no larger than FP32's, geometric mean", exact, AT_FP32_ERROR),
            _mean("tuned, within its budget, geometric mean", tuned, AT_BUDGET),
            _least("the slowest application, faithful or tuned", slowest, NO_SLOWER),
        ]
        for row in rows:
            row |= {"count": len(records), "of": len(APPS)}
        rows += [_residual(record) for record in records if record["name"] == REFINED]
    if hosts:
        speeds = _factors(hosts, lambda record: record.get("speedup"))
        row = _least("NumPy programs, the slowest", speeds, ON_HOST)
        on_host = sum(bool(app.host) for app in APPS.values())
        rows.append({**row, "count": len(hosts), "of": on_host})
    return rows


Factors = dict[str, float | None]  # application → how many times as fast; None where that failed


def _factors(records: Sequence[Record], find: Callable[[Record], float | None]) -> Factors:
    return {record["name"]: find(record) for record in records}


def _at_fp32_error(record: Record) -> float | None:
    """The speed-up at an error no larger than FP32's: 1 where only the native run has it."""
    found, factor = modes_of(record), speedup(record, modes.FAITHFUL)
    if factor is None:
        return None
    allowed = max(found[modes.FP32]["error"], record["alike_below"])
    exact = found[modes.FAITHFUL]["error"] <= allowed
    return factor if exact else 1.0


def _within_budget(record: Record) -> float | None:
    """The speed-up of the tuned plan: 1 where the measured run is over the budget after all."""
    factor = speedup(record, modes.TUNED)
    if factor is None:
        return None
    holds = modes_of(record)[modes.TUNED]["error"] <= record["tuned"]["budget"]
    return factor if holds else 1.0


def _slowest(record: Record) -> float | None:
    found = [speedup(record, mode) for mode in (modes.FAITHFUL, modes.TUNED)]
    known = [factor for factor in found if factor is not None]
    return min(known) if len(known) == len(found) else None


def _mean(what: str, factors: Factors, wanted: float) -> Record:
    known = [factor for factor in factors.values() if factor is not None]
    return _row(what, factors, geometric_mean(known), wanted)


def _least(what: str, factors: Factors, wanted: float) -> Record:
    known = {name: factor for name, factor in factors.items() if factor is not None}
    who = min(known, key=lambda name: known[name], default="")
    return {**_row(what, factors, known.get(who, math.nan), wanted), "who": who}


def _row(what: str, factors: Factors, measured: float, wanted: float) -> Record:
    failed = [name for name, factor in factors.items() if factor is None]
    met = measured >= wanted and not failed
    figures = {"measured": measured, "wanted": wanted, "at_most": False, "met": met}
    return {"what": what, **figures, "failed": failed, "who": ""}


def _residual(record: Record) -> Record:
    """The program's own figure in its worst mode; NaN is worse than any."""
    found = [float(mode["figure"]) for mode in modes_of(record).values()]
    worst = max(found, key=lambda x: (math.isnan(x), x), default=math.nan)
    figures = {"measured": worst, "wanted": RESIDUAL, "at_most": True, "met": worst < RESIDUAL}
    failed = [] if found else [record["name"]]
    what = "HPL-AI, largest scaled residual of all modes"
    return {"what": what, **figures, "failed": failed, "who": "", "count": 1, "of": 1}
