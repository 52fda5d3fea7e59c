"""Schemes of float64 beside cuBLAS FP64 on a GPU, and what the steps of residue schemes take."""

from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Any

import click
import numpy as np

import mixpert_py
from mixpert_py.bench import machine
from mixpert_py.bench.gemm import tables, vendor
from mixpert_py.bench.timing import summary
from mixpert_py.cli import main
from mixpert_py.runtime.gpu.event_clock import EventClock, in_turn
from mixpert_py.runtime.packing import by_columns, by_rows, pack_one
from mixpert_py.runtime.schemes import emulation_of

SIZES = (1024, 2048, 4096, 8192, 16384)
SCHEMES = ("crt16", "crt14", "crt12", "crt9", "crt7", "int8x10")
NATIVE = "cuBLAS FP64"
LINES = 64  # rows and columns whose elements are compared with exact ones
ROUNDS = 7

Record = dict[str, Any]


def measure(
    cupy: Any, sizes: Sequence[int], schemes: Sequence[str], say: Callable[[str], None]
) -> list[Record]:
    """A row for each size and contender: seconds, TFLOP/s, over cuBLAS FP64's, and the error."""
    clock, rows = EventClock(cupy), []
    for n in sizes:
        rng = cupy.random.default_rng(n)
        a, b = rng.standard_normal((n, n)), rng.standard_normal((n, n))
        wanted = exact(cupy, a, b)
        calls = {NATIVE: vendor.contender(vendor.MODES[NATIVE]).prepare(a, b).whole}
        calls |= {
            name: partial(mixpert_py.matmul, a, b, scheme=name, backend="cuda") for name in schemes
        }
        errors = {name: relative(cupy, call(), *wanted) for name, call in calls.items()}
        samples = in_turn(clock, calls, ROUNDS if n < 16384 else 3)
        native = median(one.device for one in samples[NATIVE])
        for name, found in samples.items():
            seconds = summary([one.device for one in found])
            rate, ratio = 2e-12 * n**3 / seconds["median"], native / seconds["median"]
            row: Record = {"n": n, "name": name, "seconds": seconds, "tflops": rate}
            row |= {"over_native": ratio, "error": errors[name]}
            row |= steps(cupy, clock, a, b, name)
            rows.append(row)
            parts = {key: round(1e3 * row[key], 3) for key in ("a", "b", "products") if key in row}
            say(
                f"{n:6} {name:12} {1e3 * seconds['median']:9.3f} ms {rate:6.1f} TFLOP/s "
                f"{ratio:5.2f}× error {errors[name]:.1e} {parts or ''}"
            )
        del a, b, calls
        cupy.get_default_memory_pool().free_all_blocks()
    return rows


def steps(cupy: Any, clock: EventClock, a: Any, b: Any, name: str) -> Record:
    """Seconds of packing A and B, and of the products with the remainder theorem; of no others."""
    if not name.startswith("crt"):
        return {}
    from mixpert_py.runtime.gpu.gemm import gemm

    scheme, out = emulation_of(name), cupy.empty((len(a), b.shape[1]))
    stream = cupy.cuda.get_current_stream().ptr
    x, y = by_rows(a), by_columns(b)
    left = pack_one(x, scheme, "left", "float64", stream=stream)
    right = pack_one(y, scheme, "right", "float64", stream=stream)
    calls = {
        "a": lambda: pack_one(x, scheme, "left", "float64", stream=stream),
        "b": lambda: pack_one(y, scheme, "right", "float64", stream=stream),
        "products": lambda: gemm(left, right, scheme, out, stream=stream),
    }
    return {
        name: median(one.device for one in found)
        for name, found in in_turn(clock, calls, 3).items()
    }


def exact(cupy: Any, a: Any, b: Any) -> tuple[Any, Any, Any]:
    """Some rows and columns, and the elements where they meet, in long double."""
    lines = np.linspace(0, len(a) - 1, LINES).astype(int)
    some = cupy.asarray(lines)
    x, y = (cupy.asnumpy(z).astype(np.longdouble) for z in (a[some], b[:, some]))
    found = np.stack([(x * y[:, j]).sum(axis=1) for j in range(LINES)], axis=1)
    return some, some, found


def relative(cupy: Any, product: Any, rows: Any, columns: Any, wanted: Any) -> float:
    """The Frobenius error of those elements."""
    found = cupy.asnumpy(product[rows][:, columns]).astype(np.longdouble)
    return float(np.sqrt(((found - wanted) ** 2).sum() / (wanted**2).sum()))


def table(rows: Sequence[Record], facts: Record) -> Record:
    """The table of docs/measured.md: TFLOP/s, and times cuBLAS FP64's, by size."""
    sizes = sorted({row["n"] for row in rows})
    names = list(dict.fromkeys(row["name"] for row in rows))
    lines = []
    for name in names:
        of_name = {row["n"]: row for row in rows if row["name"] == name}
        cells = [
            f"{of_name[n]['tflops']:.0f} ({of_name[n]['over_native']:.2f}×)" if n in of_name else ""
            for n in sizes
        ]
        errors = [row["error"] for row in of_name.values()]
        label = name if name == NATIVE else f"`{name}`"
        lines.append([label, *cells, f"{max(errors):.1e}"])
    text = (
        "TFLOP/s of float64 products of normal numbers, and how many times as fast as cuBLAS FP64; "
        f"the largest error of a size. One {facts['device']}, {facts['date']}: "
        "`python -m tests.measure.float64 --save`."
    )
    return {"columns": ["", *(f"{n}³" for n in sizes), "error"], "rows": lines, "text": text}


@click.command()
@click.option("--size", "sizes", multiple=True, type=int, default=SIZES, show_default=True)
@click.option("--scheme", "schemes", multiple=True, default=SCHEMES, show_default=True)
@click.option("--save", is_flag=True, help="Keep the result beside those of `mixpert bench`.")
def command(sizes: Sequence[int], schemes: Sequence[str], save: bool) -> int:
    """Schemes of float64 beside cuBLAS FP64."""
    cupy = machine.gpu()
    facts = {**machine.machine(), **machine.device(cupy)}
    rows = measure(cupy, sizes, schemes, click.echo)
    shown = table(rows, facts)
    machine.finish("float64", {"machine": facts, "rows": rows, "table": shown}, save)
    click.echo(f"{tables.markdown(shown['columns'], shown['rows'])}\n\n{shown['text']}")
    return 0


if __name__ == "__main__":
    main(command, "python -m tests.measure.float64")
