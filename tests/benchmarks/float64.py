"""Schemes of float64, or of complex numbers, beside cuBLAS on a GPU."""

from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import click
import numpy as np

import mixpert_py
from mixpert_py.cli import main
from mixpert_py.runtime.probes.gpu import LEAD, EventClock, SampleClock, in_turn
from tests.benchmarks import gemm, machine
from tests.benchmarks.families import parts
from tests.benchmarks.machine import table
from tests.benchmarks.timing import summary

SIZES = (1024, 2048, 4096, 8192, 16384, 32768)
SCHEMES = {"float64": ("crt", "crt16", "crt14", "crt12", "crt9", "crt7", "int8x10")}
COMPLEX = {"complex128": ("crt16", "crt14"), "complex64": ("faithful",)}
COMPLEX_SIZES = (2048, 4096, 8192, 16384)
FP64, NATIVE = "cuBLAS FP64", "cuBLAS"
LINES = 64  # rows and columns whose elements are compared with exact ones
ROUNDS, LONG_ROUNDS = 7, 3
LONG = 16384  # such products need no rounds before them

Record = dict[str, Any]


def measure(
    xp: Any,
    clock: SampleClock,
    sizes: tuple[int, ...],
    kinds: dict[str, tuple[str, ...]],
    backend: str = "cuda",
) -> list[Record]:
    """A row for each type, size and contender: seconds, TFLOP/s, over cuBLAS's, and the error."""
    rows = []
    for (dtype, schemes), n in ((kind, n) for kind in kinds.items() for n in sizes):
        a, b = (normal(xp, (n, n), dtype, seed) for seed in (0, 1))
        wanted = exact(xp, a, b)
        native = FP64 if dtype == "float64" else NATIVE
        calls: dict[str, Callable[[], Any]] = {native: partial(xp.matmul, a, b)}
        if native == FP64:
            calls[native] = gemm.of_vendor(gemm.MODES[FP64]).prepare(a, b).whole
        calls |= {
            name: partial(mixpert_py.matmul, a, b, scheme=name, backend=backend) for name in schemes
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
        vendors = median(one.device for one in samples[native])
        work = (8e-12 if np.dtype(dtype).kind == "c" else 2e-12) * n**3
        for name, found in samples.items():
            seconds = summary([one.device for one in found])
            rate, ratio = work / seconds["median"], vendors / seconds["median"]
            row: Record = {"dtype": dtype, "n": n, "name": name, "seconds": seconds, "tflops": rate}
            rows.append(row | {"over_native": ratio, "error": errors[name]})
            click.echo(
                f"{dtype:10} {n:6} {name:12} {1e3 * seconds['median']:9.3f} ms {rate:6.1f} TFLOP/s "
                f"{ratio:5.2f}× error {errors[name]:.1e}"
            )
        del a, b, calls
        if xp is not np:
            xp.get_default_memory_pool().free_all_blocks()
    return rows


def normal(xp: Any, shape: tuple[int, int], dtype: str, seed: int = 0) -> Any:
    """A matrix of normal numbers, or of which both parts are."""
    rng, x = xp.random.default_rng(seed), xp.empty(shape, dtype)
    for part in parts(x):
        part[...] = rng.standard_normal(shape)
    return x


def exact(xp: Any, a: Any, b: Any) -> tuple[Any, Any, Any]:
    """Some rows and columns, and the elements where they meet, in long double."""
    some = xp.asarray(np.linspace(0, len(a) - 1, LINES).astype(int))
    x, y = (_wide(z) for z in (a[some], b[:, some]))
    found = np.stack([(x * y[:, j]).sum(axis=1) for j in range(LINES)], axis=1)
    return some, some, found


def relative(product: Any, rows: Any, columns: Any, wanted: Any) -> float:
    """The Frobenius error of those elements."""
    found = _wide(product[rows][:, columns])
    return float(np.sqrt((abs(found - wanted) ** 2).sum() / (abs(wanted) ** 2).sum()))


def _wide(x: Any) -> Any:
    x = x.get() if hasattr(x, "get") else x
    return x.astype(np.result_type(x.dtype, np.longdouble))


def _by_size(rows: list[Record], keys: tuple[str, ...], cell: Callable[[Record], str]) -> str:
    """A row for each contender, with a cell for each size, and its largest error."""
    sizes = sorted({row["n"] for row in rows})
    lines = []
    for key in dict.fromkeys(tuple(row[k] for k in keys) for row in rows):
        its = {row["n"]: row for row in rows if tuple(row[k] for k in keys) == key}
        cells = [cell(its[n]) if n in its else "" for n in sizes]
        lines.append([*key, *cells, f"{max(row['error'] for row in its.values()):.1e}"])
    return table([*[""] * len(keys), *(f"{n}³" for n in sizes), "error"], lines)


def markdown(result: Record) -> str:
    """TFLOP/s and times cuBLAS FP64's, by size; a row for each contender."""
    found = _by_size(
        result["rows"], ("name",), lambda row: f"{row['tflops']:.0f} ({row['over_native']:.2f}×)"
    )
    return (
        f"{found}\n\nTFLOP/s of float64 products of normal numbers, and how many times as fast as "
        f"cuBLAS FP64; the largest error of a size. {machine.text(result['machine'])}\n"
    )


def complex_markdown(result: Record) -> str:
    """Milliseconds of cuBLAS and how many times as fast each scheme is, by size; and errors."""

    def cell(row: Record) -> str:
        took, ratio = f"{1e3 * row['seconds']['median']:.2f}", row["over_native"]
        return took if row["name"] == NATIVE else f"{took} ({ratio:.2f}×)"

    return (
        f"{_by_size(result['rows'], ('dtype', 'name'), cell)}\n\n"
        "Of normal numbers: milliseconds, and how many times as fast as cuBLAS; "
        f"the largest error of a size. {machine.text(result['machine'])}\n"
    )


@click.command()
@click.option("--complex", "is_complex", is_flag=True, help="Of complex numbers instead.")
@machine.save_option
def command(is_complex: bool, save: bool) -> None:
    """Schemes of float64, or of complex numbers, beside cuBLAS."""
    facts, cupy = machine.facts_of_gpu(), machine.gpu()
    given = (COMPLEX_SIZES, COMPLEX) if is_complex else (SIZES, SCHEMES)
    result = {"machine": facts, "rows": measure(cupy, EventClock(cupy), *given)}
    name, written = ("complex-products", complex_markdown) if is_complex else ("float64", markdown)
    machine.finish(name, result, save, written)


if __name__ == "__main__":
    main(command, "python -m tests.benchmarks.float64")
