"""Symmetric products on a GPU: of an array with its own transpose, and as steps of an iteration."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from statistics import median
from typing import Any

import click

import mixpert_py
from mixpert_py.cli import main
from mixpert_py.runtime.probes.gpu import EventClock, in_turn
from tests.benchmarks import machine
from tests.benchmarks.float64 import normal

SIZES = (4096, 8192)
GRAM = 65536, 4096
SCHEMES = {"float32": ("faithful", "int8x6"), "float64": ("crt14",), "complex128": ("crt14",)}
STEPS = 10
COEFFICIENTS = 3.4445, -4.775, 2.0315  # of Newton and Schulz's iteration, as Muon has them
ROUNDS = 3
WAYS = "native", "two arrays", "one array"
SITE = "bench:<module>/matmul~0000#0"

Product = Callable[[Any, Any], Any]
Record = dict[str, Any]


def newton_schulz(product: Product, x: Any) -> Any:
    """The orthogonal factor of x, nearly: three products in a step, two of which are symmetric."""
    one, three, five = COEFFICIENTS
    for _ in range(STEPS):
        gram = product(x, x.T)
        x = one * x + product(three * gram + five * product(gram, gram), x)
    return x


def cases(cupy: Any, dtype: str) -> Iterator[tuple[str, str, dict[str, Callable[[], Any]]]]:
    """What is multiplied, by which scheme, and the ways to do it."""
    is_complex, ours = dtype == "complex128", partial(mixpert_py.matmul, site=SITE)
    own = "x @ x.conj().T" if is_complex else "x @ x.T"
    kinds = [(own, n, n, scheme) for scheme in SCHEMES[dtype] for n in SIZES]
    gram = () if is_complex else (("x.T @ x", *GRAM, None),)
    for what, m, k, scheme in (*kinds, *gram):
        x, y = (normal(cupy, (m, k), dtype, seed) for seed in (0, 1))
        a, b = (x.T, x) if what == "x.T @ x" else (x, x.conj().T)
        other = y if what == "x.T @ x" else y.T
        product = partial(ours, scheme=scheme)
        calls = partial(cupy.matmul, a, b), partial(product, a, other), partial(product, a, b)
        shape = f"{m}²" if m == k else f"{m} × {k}"
        yield f"`{what}`, {shape}", scheme or "default", dict(zip(WAYS, calls, strict=True))
    if is_complex:
        return
    x = normal(cupy, (SIZES[-1],) * 2, dtype)
    x /= cupy.linalg.norm(x)
    native, made = (partial(newton_schulz, f, x) for f in (cupy.matmul, ours))
    yield f"Newton–Schulz, {len(x)}²", "default", {"native": native, "one array": made}


def measure(cupy: Any, dtypes: Iterable[str]) -> Iterator[Record]:
    """A row for each case, with the seconds of each way."""
    clock = EventClock(cupy)
    for dtype in dtypes:
        for what, scheme, calls in cases(cupy, dtype):
            samples = in_turn(clock, calls, ROUNDS)
            seconds = {way: median(one.device for one in found) for way, found in samples.items()}
            yield {"what": what, "dtype": dtype, "scheme": scheme, "seconds": seconds}


def markdown(result: Record) -> str:
    """A row for each case: milliseconds, and how many times as fast one array is."""
    columns = ["", "", *(f"{way}, ms" for way in WAYS)]
    lines = []
    for row in result["rows"]:
        times = [row["seconds"].get(way) for way in WAYS]
        shown = ["–" if t is None else f"{1e3 * t:.3g} ({t / times[2]:.2f}×)" for t in times[:2]]
        lines.append(
            [row["what"], f"{row['dtype']}, {row['scheme']}", *shown, f"{1e3 * times[2]:.3g}"]
        )
    return f"{machine.table(columns, lines)}\n\n{machine.text(result['machine'])}\n"


@click.command()
@click.option("--only", type=click.Choice(list(SCHEMES)), help="Others stay as they were kept.")
@machine.save_option
def command(only: str | None, save: bool) -> None:
    """Symmetric products beside those of two arrays, and natively."""
    facts, cupy = machine.facts_of_gpu(), machine.gpu()
    before = machine.load("symmetric") if only else None
    rows = [row for row in before["rows"] if row["dtype"] != only] if before else []
    result: Record = {"machine": facts, "rows": rows}
    for row in measure(cupy, [only] if only else SCHEMES):
        result["rows"].append(row)
        if save:
            machine.save("symmetric", result)
    click.echo(markdown(result))


if __name__ == "__main__":
    main(command, "python -m tests.benchmarks.symmetric")
