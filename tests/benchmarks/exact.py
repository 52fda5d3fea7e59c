"""Products of integers and booleans beside NumPy's own, or CuPy's, with the same bits."""

import operator
import os
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import click
import numpy as np

from mixpert_py.cli import main
from mixpert_py.runtime.api import matmul
from mixpert_py.runtime.products.einsum import einsum
from tests.benchmarks import exact_bits, machine
from tests.benchmarks.machine import table
from tests.benchmarks.timing import in_turn, repeated, summary

SIZES, ON_GPU_SIZES = (128, 256, 512), (512, 1024, 2048, 4096)
BURST = 10  # calls on a GPU, after which the host waits
ROUNDS = 3
SHORT = 20e-6  # seconds of NumPy's product, below which a sweep does not judge
MOST_WORK = 1 << 28  # multiplications of a random product
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
ON_GPU = (
    Row("int32 in ±1000", "int32", 1000),
    Row("int32, all bits", "int32", 2**31 - 1),
    Row("int64 in ±1000", "int64", 1000),
    Row("int64, all bits", "int64", 2**63 - 1),
    Row("int16", "int16", 2**15 - 1),
    Row("uint8", "uint8", 2**8 - 1),
)


def operands(row: Row, n: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(n)
    if row.dtype == "bool":
        return rng.random((n, n)) < 0.01, rng.random((n, n)) < 0.01
    low = -row.below if row.dtype.startswith("int") else 0
    a, b = (rng.integers(low, row.below, (n, n), row.dtype, endpoint=True) for _ in range(2))
    return a, b


def measure(cupy: Any = None) -> list[Record]:
    """A row for each kind and size: the median seconds of NumPy, or CuPy, and how often ours fit in
    them.
    """
    found = []
    for row in ROWS if cupy is None else ON_GPU:
        for n in SIZES if cupy is None else ON_GPU_SIZES:
            a, b = operands(row, n) if cupy is None else map(cupy.asarray, operands(row, n))
            calls: dict[str, Callable[[], Any]] = {
                "native": partial(operator.matmul, a, b),
                "exact": partial(matmul, a, b, site="exact"),
            }
            if row.is_einsum:
                calls = {
                    "native": partial(np.einsum, MULTIPLIED, a, b),
                    "exact": partial(einsum, MULTIPLIED, a, b, site="exact"),
                }
            same = bool((calls["native"]() == calls["exact"]()).all())
            if cupy is not None:
                wait = cupy.cuda.runtime.deviceSynchronize
                calls = {name: repeated(call, BURST, wait) for name, call in calls.items()}
            times = in_turn(calls, ROUNDS)
            native, ours = (summary(times[name])["median"] for name in calls)
            gain = native / ours
            native /= 1 if cupy is None else BURST
            found.append({"name": row.name, "n": n, "native": native, "gain": gain, "same": same})
            click.echo(f"{row.name:26} {n:5} {1e3 * native:10.2f} ms {gain:7.2f}× {same}")
    return found


def markdown(result: Record) -> str:
    """Times as fast as NumPy, or CuPy, by size; a row for each kind of operands."""
    rows = result["rows"]
    sizes = sorted({row["n"] for row in rows})
    gains = {(row["name"], row["n"]): row["gain"] for row in rows}
    names = dict.fromkeys(row["name"] for row in rows)
    lines = [[name, *(f"{gains[name, n]:.3g}×" for n in sizes)] for name in names]
    facts, threads = result["machine"], result["threads"]
    where = f"BLAS threads: {threads}. {facts['cpu']}, {facts['date']}."
    where = machine.text(facts) if "device" in facts else where
    return f"{table(['', *(f'{n}³' for n in sizes)], lines)}\n\n{where}\n"


def drawn(rng: np.random.Generator) -> tuple[Any, Any]:
    """Two matrices, thin ones, or stacks, of any types and ranges, of 1 to 2,000 a side."""
    m, k, n = (int(2000 ** rng.random()) for _ in range(3))
    while m * k * n > MOST_WORK:
        m, k, n = (max(1, size * 2 // 3) for size in (m, k, n))
    stack = (
        (int(rng.integers(2, 40)),) if m * k * n < MOST_WORK // 40 and rng.random() < 0.2 else ()
    )
    found = []
    for shape in ((*stack, m, k), (*stack, k, n)):
        dtype = np.dtype(rng.choice(["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8"]))
        if dtype.kind == "b":
            x = rng.random(shape) < rng.random() ** 3
        else:
            most = min(int(2 ** (63 * rng.random())), np.iinfo(dtype).max)
            x = rng.integers(-most if dtype.kind == "i" else 0, most, shape, dtype, endpoint=True)
        found.append(x if rng.random() < 0.7 else np.asfortranarray(x))
    return found[0], found[1]


def sweep(count: int) -> None:
    """Random products: in how many ours take longer, and the worst of those above SHORT seconds.

    Ratios are medians of pairs in turn. Below 0.95 a product is measured again, and the better
    median counts.
    """
    rng, found = np.random.default_rng(count), []
    for turn in range(count):
        a, b = drawn(rng)
        calls: dict[str, Callable[[], Any]] = {
            "NumPy": partial(operator.matmul, a, b),
            "exact": partial(matmul, a, b, site=f"sweep {turn}"),
        }
        if not np.array_equal(calls["NumPy"](), calls["exact"]()):
            raise click.ClickException(f"other bits: {a.shape} {a.dtype} {b.shape} {b.dtype}")
        ratio = 0.0
        for rounds in (5, 25):
            times = in_turn(calls, rounds)
            pairs = zip(times["NumPy"], times["exact"], strict=True)
            ratio = max(ratio, median(native / ours for native, ours in pairs))
            if ratio >= 0.95:
                break
        found.append((ratio, median(times["NumPy"]), f"{a.shape} {a.dtype} · {b.shape} {b.dtype}"))
    long = sorted(it for it in found if it[1] >= SHORT)
    ratios = [it[0] for it in long]
    slow = sum(it < 0.95 for it in ratios)
    click.echo(f"{len(long)} of {count} products take NumPy {1e6 * SHORT:.0f} µs and more.")
    click.echo(f"Worst {ratios[0]:.2f}×, median {median(ratios):.2f}×; below 0.95×: {slow}.")
    for ratio, seconds, operands in long[:20]:
        click.echo(f"{ratio:5.2f}× {1e6 * seconds:9.0f} µs {operands}")


@click.command()
@click.option("--sweep", "count", type=int, metavar="N", help="N random products instead.")
@click.option("--gpu", is_flag=True, help="CuPy's integers instead.")
@click.option("--bits", type=int, metavar="N", help="Check the bits of N random products instead.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the products of --bits.")
@click.option("--jobs", type=int, default=2, show_default=True, help="Processes for --bits.")
@machine.save_option
def command(
    count: int | None, gpu: bool, bits: int | None, seed: int, jobs: int, save: bool
) -> None:
    """Products of integers and booleans beside NumPy's own."""
    if count:
        sweep(count)
    elif bits:
        for found in exact_bits.check(bits, seed, jobs):
            machine.finish("exact-bits", found, save, exact_bits.sentence)
    else:
        threads = os.environ.get("OPENBLAS_NUM_THREADS", "all")
        facts = machine.facts_of_gpu() if gpu else machine.machine()
        rows = measure(machine.gpu() if gpu else None)
        result = {"machine": facts, "threads": threads, "rows": rows}
        machine.finish("exact-gpu" if gpu else "exact", result, save, markdown)


if __name__ == "__main__":
    main(command, "python -m tests.benchmarks.exact")
