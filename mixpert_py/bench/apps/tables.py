"""Results of `mixpert bench apps` as tables, for a terminal and for the pages."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from mixpert_py.bench.apps import modes
from mixpert_py.bench.apps.app import APPS
from mixpert_py.bench.apps.summary import geometric_mean, modes_of, speedup, targets
from mixpert_py.bench.gemm.tables import Rows

Record = dict[str, Any]

COLUMNS = (
    "",
    "FP32, ms",
    "TF32",
    "faithful",
    "tuned",
    *("error FP32", "TF32", "faithful", "tuned"),
)
HOST = (
    *("", "NumPy, s", "rewritten, s", "in products, s", "speed-up", "error"),
    *("figure of merit, NumPy", "rewritten"),
)
TARGETS = ("target", "measured", "wanted", "")
OTHERS = (modes.TF32, modes.FAITHFUL, modes.TUNED)


def rows(records: Sequence[Record]) -> Rows:
    """A row for each application: milliseconds on the device, speed-ups, errors."""
    table = []
    for record in records:
        found = modes_of(record)
        if modes.FP32 not in found:
            table.append([record["name"], _why(record, modes.FP32)])
            continue
        table.append(
            [
                record["name"],
                f"{1e3 * found[modes.FP32]['device']['median']:.3g}",
                *(_times(record, mode) for mode in OTHERS),
                *(_error(found.get(mode)) for mode in (modes.FP32, *OTHERS)),
            ]
        )
    means = [_mean(records, mode) for mode in OTHERS]
    return [*table, ["geometric mean", "", *means]] if table else []


def host_rows(records: Sequence[Record]) -> Rows:
    """A row for each NumPy program; all but its products stays in NumPy."""
    return [
        [record["name"], record["failed"]]
        if "failed" in record
        else [
            record["name"],
            f"{record['native']:.1f}",
            f"{record['rewritten']:.2f}",
            f"{sum(site['seconds'] for site in record['sites']):.2f}",
            f"{record['speedup']:.1f}×",
            f"{record['error']:.1e}",
            *(f"{record[name]:.4g}" for name in ("native_figure", "figure")),
        ]
        for record in records
    ]


def target_rows(result: Mapping[str, Any]) -> Rows:
    """A row for every target that something was measured for."""
    rows = []
    for row in targets(result["apps"], result["host"]):
        sign, unit, spec = ("<", "", ".3g") if row["at_most"] else ("≥", " ×", ".2f")
        measured = "–" if math.isnan(row["measured"]) else f"{row['measured']:{spec}}{unit}"
        who = f" ({row['who']})" if row["who"] else ""
        wanted = f"{sign} {row['wanted']:g}{unit}"
        rows.append([row["what"], measured + who, wanted, _verdict(row)])
    return rows


def _verdict(row: Record) -> str:
    if row["failed"]:
        return f"missed: {', '.join(row['failed'])} failed"
    if row["count"] == row["of"]:
        return "met" if row["met"] else "missed"
    verdict = "met so far" if row["met"] else "missed"
    return f"{verdict}, {row['count']} of {row['of']} measured"


def left_out(result: Mapping[str, Any]) -> str:
    """A sentence that names the applications that were not run; empty where there are none."""
    has = {kind: {record["name"] for record in result[kind]} for kind in ("apps", "host")}
    missing = {
        "Applications": [name for name in APPS if name not in has["apps"]],
        "NumPy programs": [n for n, app in APPS.items() if app.host and n not in has["host"]],
    }
    lines = [f"{what} not measured yet: {', '.join(x)}." for what, x in missing.items() if x]
    return " ".join(lines)


def failures(result: Mapping[str, Any]) -> list[str]:
    """A line for everything that failed."""
    lines = []
    for record in (*result["apps"], *result["host"]):
        parts = [record, record.get("tuned", {}), *record.get("modes", [])]
        names = ["", "tuning", *(mode["name"] for mode in record.get("modes", []))]
        for name, part in zip(names, parts, strict=True):
            if "failed" in part:
                lines.append(": ".join(filter(None, (record["name"], name, part["failed"]))))
    return lines


def _times(record: Record, mode: str) -> str:
    factor = speedup(record, mode)
    return "failed" if factor is None else f"{factor:.2f}×"


def _mean(records: Sequence[Record], mode: str) -> str:
    mean = geometric_mean(f for record in records if (f := speedup(record, mode)) is not None)
    return "–" if math.isnan(mean) else f"{mean:.2f}×"


def _error(mode: Record | None) -> str:
    return "–" if mode is None else f"{mode['error']:.1e}"


def _why(record: Record, mode: str) -> str:
    failures = [m.get("failed") for m in record.get("modes", []) if m["name"] == mode]
    return str(record.get("failed") or next(iter(failures), "not measured"))
