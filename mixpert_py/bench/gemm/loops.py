"""`x = a @ x` in a loop: what products cost a program that makes one after another.

By wall clock, the host's time included, without a plan: the native product, and the program as
`mixpert run` has it. The loop waits for the device at its end only.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import mixpert_py
from mixpert_py.bench.gemm.tables import DEFAULT, Record, Rows
from mixpert_py.bench.timing import in_turn, summary

SECTION = "loops"
SIZES = (64, 128, 256, 512, 768, 1024, 1536, 2048, 4096, 8192)
ROUNDS = 15
SITE = "bench:<module>/matmul~0000#0"
MULTIPLICATIONS = 1e11  # of a loop, which has no fewer steps than FEWEST, and no more than MOST
FEWEST, MOST = 8, 2000
COLUMNS = ("`x = a @ x`, n × n", "native, µs", "MixPert-Py, µs", "native over MixPert-Py")
ROW = f"{DEFAULT}, called in a loop"


def measure(cupy: Any, sizes: Sequence[int] = SIZES, rounds: int = ROUNDS) -> list[Record]:
    """A row for each size: microseconds of a step, natively and as the default."""
    return [_loop(cupy, n, rounds) for n in sizes]


def _loop(cupy: Any, n: int, rounds: int) -> Record:
    a = cupy.random.default_rng(0).standard_normal((n, n), "float32") / np.float32(n**0.5)
    start = cupy.random.default_rng(1).standard_normal((n, n), "float32")
    steps = max(FEWEST, min(MOST, round(MULTIPLICATIONS / n**3)))

    def native() -> None:
        x = start
        for _ in range(steps):
            x = a @ x
        cupy.cuda.Device().synchronize()

    def ours() -> None:
        x = start
        for _ in range(steps):
            x = mixpert_py.matmul(a, x, site=SITE)
        cupy.cuda.Device().synchronize()

    ours()
    times = in_turn({"native": native, "ours": ours}, rounds)
    row = {name: summary([1e6 * t / steps for t in found]) for name, found in times.items()}
    return {"n": n, **row, "ratio": row["native"]["median"] / row["ours"]["median"]}


def table(rows: Sequence[Record]) -> Rows:
    """The rows of COLUMNS."""
    lines = []
    for row in rows:
        digits = 1 if row["n"] < 1024 else 0
        times = (f"{row[name]['median']:.{digits}f}" for name in ("native", "ours"))
        lines.append([str(row["n"]), *times, f"{row['ratio']:.2f}×"])
    return lines


def cells(rows: Sequence[Record]) -> Mapping[int, str]:
    """Size → TFLOP/s in the loop, and how many times the native loop's."""
    return {
        row["n"]: f"{2e-6 * row['n'] ** 3 / row['ours']['median']:.0f} ({row['ratio']:.1f}×)"
        for row in rows
    }
