"""Complex products beside cuBLAS: complex128 by residues, and complex64 by `faithful`."""

from functools import partial
from statistics import median
from typing import Any

import click
import numpy as np

import mixpert_py
from mixpert_py.cli import main
from mixpert_py.runtime.probes.gpu import EventClock, SampleClock, in_turn
from tests.benchmarks import float64, machine
from tests.benchmarks.arrays import parts
from tests.benchmarks.machine import table
from tests.benchmarks.timing import summary

SIZES = (2048, 4096, 8192, 16384)
SCHEMES = {"complex128": ("crt16", "crt14"), "complex64": ("faithful",)}
NATIVE = "cuBLAS"
ROUNDS = 7

Record = dict[str, Any]


def measure(
    xp: Any, clock: SampleClock, sizes: tuple[int, ...], backend: str = "cuda"
) -> list[Record]:
    """A row for each type, size and contender: seconds, over cuBLAS's, and the Frobenius error."""
    rows = []
    for (dtype, schemes), n in ((kind, n) for kind in SCHEMES.items() for n in sizes):
        a, b = (normal(xp, (n, n), dtype, seed) for seed in (0, 1))
        wanted = float64.exact(xp, a, b)
        calls = {NATIVE: partial(xp.matmul, a, b)}
        calls |= {
            name: partial(mixpert_py.matmul, a, b, scheme=name, backend=backend) for name in schemes
        }
        errors = {name: float64.relative(call(), *wanted) for name, call in calls.items()}
        samples = in_turn(clock, calls, ROUNDS if n < 16384 else 2)
        native = median(one.device for one in samples[NATIVE])
        for name, found in samples.items():
            seconds = summary([one.device for one in found])
            row: Record = {"dtype": dtype, "n": n, "name": name, "seconds": seconds}
            row |= {"over_native": native / seconds["median"], "error": errors[name]}
            rows.append(row)
            click.echo(
                f"{dtype:10} {n:6} {name:8} {1e3 * seconds['median']:9.3f} ms "
                f"{row['over_native']:5.2f}× error {errors[name]:.1e}"
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


def markdown(result: Record) -> str:
    """Milliseconds of cuBLAS and how many times as fast each scheme is, by size; and errors."""
    rows = result["rows"]
    sizes = sorted({row["n"] for row in rows})
    lines = []
    for dtype, name in dict.fromkeys((row["dtype"], row["name"]) for row in rows):
        its = {row["n"]: row for row in rows if (row["dtype"], row["name"]) == (dtype, name)}
        cells = [_cell(its[n]) if n in its else "" for n in sizes]
        lines.append([dtype, name, *cells, f"{max(row['error'] for row in its.values()):.1e}"])
    facts = result["machine"]
    return (
        f"{table(['', '', *(f'{n}³' for n in sizes), 'error'], lines)}\n\n"
        "Of normal numbers: milliseconds, and how many times as fast as cuBLAS; "
        f"the largest error of a size. {machine.text(facts)}\n"
    )


def _cell(row: Record) -> str:
    milliseconds = f"{1e3 * row['seconds']['median']:.2f}"
    return milliseconds if row["name"] == NATIVE else f"{milliseconds} ({row['over_native']:.2f}×)"


@click.command()
@machine.save_option
def command(save: bool) -> None:
    """Complex products beside cuBLAS."""
    facts, cupy = machine.facts_of_gpu(), machine.gpu()
    result = {"machine": facts, "rows": measure(cupy, EventClock(cupy), SIZES)}
    machine.finish("complex-products", result, save, markdown)


if __name__ == "__main__":
    main(command, "python -m tests.benchmarks.complex_products")
