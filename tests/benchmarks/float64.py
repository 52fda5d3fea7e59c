"""Schemes of float64 beside cuBLAS FP64 on a GPU."""

from functools import partial
from statistics import median
from typing import Any

import click
import numpy as np

import mixpert_py
from mixpert_py.cli import main
from mixpert_py.runtime.probes.gpu import LEAD, EventClock, in_turn
from tests.benchmarks import contenders, machine
from tests.benchmarks.machine import table
from tests.benchmarks.timing import summary

SIZES = (1024, 2048, 4096, 8192, 16384, 32768)
SCHEMES = ("crt", "crt16", "crt14", "crt12", "crt9", "crt7", "int8x10")
NATIVE = "cuBLAS FP64"
LINES = 64  # rows and columns whose elements are compared with exact ones
ROUNDS, LONG_ROUNDS = 7, 3
LONG = 16384  # such products need no rounds before them

Record = dict[str, Any]


def measure(cupy: Any) -> list[Record]:
    """A row for each size and contender: seconds, TFLOP/s, over cuBLAS FP64's, and the error."""
    clock, rows = EventClock(cupy), []
    for n in SIZES:
        rng = cupy.random.default_rng(n)
        a, b = rng.standard_normal((n, n)), rng.standard_normal((n, n))
        wanted = exact(cupy, a, b)
        calls = {NATIVE: contenders.of_vendor(contenders.MODES[NATIVE]).prepare(a, b).whole}
        calls |= {
            name: partial(mixpert_py.matmul, a, b, scheme=name, backend="cuda") for name in SCHEMES
        }
        errors = {name: relative(call(), *wanted) for name, call in calls.items()}
        if n < LONG:
            samples = in_turn(clock, calls, ROUNDS)
        else:
            turns = [
                {name: clock.sample(call, 1, LEAD) for name, call in calls.items()}
                for _ in range(LONG_ROUNDS)
            ]
            samples = {name: [turn[name] for turn in turns] for name in calls}
        native = median(one.device for one in samples[NATIVE])
        for name, found in samples.items():
            seconds = summary([one.device for one in found])
            rate, ratio = 2e-12 * n**3 / seconds["median"], native / seconds["median"]
            row: Record = {"n": n, "name": name, "seconds": seconds, "tflops": rate}
            row |= {"over_native": ratio, "error": errors[name]}
            rows.append(row)
            click.echo(
                f"{n:6} {name:12} {1e3 * seconds['median']:9.3f} ms {rate:6.1f} TFLOP/s "
                f"{ratio:5.2f}× error {errors[name]:.1e}"
            )
        del a, b, calls
        cupy.get_default_memory_pool().free_all_blocks()
    return rows


def exact(cupy: Any, a: Any, b: Any) -> tuple[Any, Any, Any]:
    """Some rows and columns, and the elements where they meet, in long double."""
    some = cupy.asarray(np.linspace(0, len(a) - 1, LINES).astype(int))
    x, y = (_wide(z) for z in (a[some], b[:, some]))
    found = np.stack([(x * y[:, j]).sum(axis=1) for j in range(LINES)], axis=1)
    return some, some, found


def relative(product: Any, rows: Any, columns: Any, wanted: Any) -> float:
    """The Frobenius error of those elements."""
    found = _wide(product[rows][:, columns])
    return float(np.sqrt((abs(found - wanted) ** 2).sum() / (abs(wanted) ** 2).sum()))


def _wide(x: Any) -> Any:
    """An array of the device, or of NumPy, in long double."""
    x = x.get() if hasattr(x, "get") else x
    return x.astype(np.result_type(x.dtype, np.longdouble))


def markdown(result: Record) -> str:
    """TFLOP/s and times cuBLAS FP64's, by size; a row for each contender."""
    rows = result["rows"]
    sizes = sorted({row["n"] for row in rows})
    lines = []
    for name in dict.fromkeys(row["name"] for row in rows):
        of_name = {row["n"]: row for row in rows if row["name"] == name}
        cells = [_cell(of_name[n]) if n in of_name else "" for n in sizes]
        lines.append([name, *cells, f"{max(row['error'] for row in of_name.values()):.1e}"])
    facts = result["machine"]
    return (
        f"{table(['', *(f'{n}³' for n in sizes), 'error'], lines)}\n\n"
        "TFLOP/s of float64 products of normal numbers, and how many times as fast as cuBLAS FP64; "
        f"the largest error of a size. {machine.text(facts)}\n"
    )


def _cell(row: Record) -> str:
    return f"{row['tflops']:.0f} ({row['over_native']:.2f}×)"


@click.command()
@machine.save_option
def command(save: bool) -> None:
    """Schemes of float64 beside cuBLAS FP64."""
    facts, cupy = machine.facts_of_gpu(), machine.gpu()
    result = {"machine": facts, "rows": measure(cupy)}
    machine.finish("float64", result, save, markdown)


if __name__ == "__main__":
    main(command, "python -m tests.benchmarks.float64")
