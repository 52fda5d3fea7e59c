"""Speed-ups of whole applications, as `tests.benchmarks.apps` saves them."""

from collections.abc import Sequence
from statistics import geometric_mean

from samples.papers.columns import Measure
from samples.papers.exhibit import Column, Found, Lines, Missing, Row
from samples.papers.place import Place
from tests.benchmarks import machine
from tests.benchmarks.app_runs import FAITHFUL, TUNED
from tests.benchmarks.apps import NAME, modes_of, speedup

TIMES, ERROR = Column("times", "× cuBLAS FP32", ".2f"), Column("error", "error against FP64", ".1e")
COLUMNS = (
    Column("app", "application"),
    Column("name", "run as"),
    Column("seconds", "GPU time, ms", ".2f", 1e3),
    TIMES,
    ERROR,
)
FEW = 4  # applications, from which on they are counted, not named
PICTURE = Lines(TIMES, ERROR, joined=False)


def applications(*names: str) -> Measure:
    """A row for every mode of these applications; of all where none is named."""

    def measure(place: Place) -> Found | Missing:
        result = machine.load(NAME)
        records = result["apps"] if result else []
        rows: list[Row] = []
        for record in records:
            if not names or record["name"] in names:
                for mode, found in modes_of(record).items():
                    shared = {"app": record["name"], "name": mode, "error": found["error"]}
                    spent, times = found["device"]["median"], speedup(record, mode)
                    rows.append({**shared, "seconds": spent, "times": times})
        if not result or not rows:
            return Missing("`python -m tests.benchmarks.apps --save` makes these rows")
        return Found(rows, machine.text(result["machine"]))

    return measure


def headline(rows: Sequence[Row]) -> str:
    """Geometric means, and over which applications."""
    apps = list(dict.fromkeys(row["app"] for row in rows))
    over = ", ".join(apps) if len(apps) < FEW else f"{len(apps)} applications"
    parts = []
    for mode in (FAITHFUL, TUNED):
        times = [row["times"] for row in rows if row["name"] == mode and row["times"]]
        if times:
            parts.append(f"{mode} {geometric_mean(times):.2f}×")
    return f"{', '.join(parts)} cuBLAS FP32 (geometric mean, {over})"
