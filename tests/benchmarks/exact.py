"""Products of integers and booleans beside NumPy's own, with the same bits."""

import operator
import os
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import click
import numpy as np

from mixpert_py.cli import main
from mixpert_py.runtime.api import matmul
from mixpert_py.runtime.products.einsum import einsum
from tests.benchmarks import machine
from tests.benchmarks.machine import table
from tests.benchmarks.timing import in_turn, summary

SIZES = (128, 256, 512)
ROUNDS = 3
MULTIPLIED = "ij,jk->ik"

Record = dict[str, Any]


class Row(NamedTuple):
    """Operands: their type, and the integers that they have entries below."""

    name: str
    dtype: str
    below: int
    is_einsum: bool = False


ROWS = (
    Row("int64 below 100", "int64", 100),
    Row("int64, all bits", "int64", 2**63 - 1),
    Row("int32, all bits", "int32", 2**31 - 1),
    Row("uint8", "uint8", 2**8 - 1),
    Row("bool, 1 % true", "bool", 1),
    Row("`einsum` of int64", "int64", 100, is_einsum=True),
)


def operands(row: Row, n: int) -> tuple[Any, Any]:
    """Two square matrices of the row's entries."""
    rng = np.random.default_rng(n)
    if row.dtype == "bool":
        return rng.random((n, n)) < 0.01, rng.random((n, n)) < 0.01
    low = -row.below if row.dtype.startswith("int") else 0
    a, b = (rng.integers(low, row.below, (n, n), row.dtype, endpoint=True) for _ in range(2))
    return a, b


def measure(sizes: tuple[int, ...], say: Callable[[str], None]) -> list[Record]:
    """A row for each kind and size: the median seconds of NumPy, and how often ours fit in them."""
    found = []
    for row in ROWS:
        for n in sizes:
            a, b = operands(row, n)
            calls: dict[str, Callable[[], Any]] = {
                "NumPy": partial(operator.matmul, a, b),
                "exact": partial(matmul, a, b, site="exact"),
            }
            if row.is_einsum:
                calls = {
                    "NumPy": partial(np.einsum, MULTIPLIED, a, b),
                    "exact": partial(einsum, MULTIPLIED, a, b, site="exact"),
                }
            same = np.array_equal(calls["NumPy"](), calls["exact"]())
            times = in_turn(calls, ROUNDS)
            native, ours = (summary(times[name])["median"] for name in calls)
            found.append(
                {"name": row.name, "n": n, "numpy": native, "gain": native / ours, "same": same}
            )
            say(f"{row.name:26} {n:5} {1e3 * native:10.2f} ms {native / ours:7.2f}× {same}")
    return found


def markdown(result: Record) -> str:
    """Times as fast as NumPy, by size; a row for each kind of operands."""
    rows = result["rows"]
    sizes = sorted({row["n"] for row in rows})
    gains = {(row["name"], row["n"]): row["gain"] for row in rows}
    lines = [[row.name, *(f"{gains[row.name, n]:.3g}×" for n in sizes)] for row in ROWS]
    facts = result["machine"]
    return (
        f"{table(['', *(f'{n}³' for n in sizes)], lines)}\n\n"
        f"BLAS threads: {result['threads']}. {facts['cpu']}, {facts['date']}.\n"
    )


@click.command()
@machine.save_option
def command(save: bool) -> None:
    """Products of integers and booleans beside NumPy's own."""
    threads = os.environ.get("OPENBLAS_NUM_THREADS", "all")
    result = {"machine": machine.machine(), "threads": threads, "rows": measure(SIZES, click.echo)}
    machine.finish("exact", result, save, markdown)


if __name__ == "__main__":
    main(command, "python -m tests.benchmarks.exact")
