"""`crt` against cuBLAS FP64, or NumPy: milliseconds by the clock in loops that wait at the end."""

from functools import partial
from typing import Any

import click
import numpy as np

from mixpert_py.cli import main
from mixpert_py.runtime.api import matmul
from mixpert_py.runtime.gpu.device import state_of
from tests.benchmarks import machine
from tests.benchmarks.families import EVERYDAY, FAMILIES, Numbers
from tests.benchmarks.timing import in_turn, repeated

SIZES = (1024, 2048, 3072, 4096, 6144, 8192, 16384)
KINDS = ("normal", "log-normal 1", "spread 4")
INTEGERS = {
    "0/1": (0, 1),
    "[0, 255]": (0, 255),
    "signed bytes": (-128, 127),
    "±30,000": (-30_000, 30_000),
}
ALL = {**FAMILIES, **EVERYDAY}


def operands(xp: Any, kind: str, n: int) -> tuple[Any, Any]:
    if kind in INTEGERS:
        low, high = INTEGERS[kind]
        a, b = xp.random.default_rng(0).integers(low, high, (2, n, n), endpoint=True).astype("d")
    else:
        a, b = (xp.asarray(x, "d") for x in ALL[kind](Numbers(xp, 0), n, n, n))
    return a, b


def speeds(xp: Any, n: int) -> None:
    """A line for each kind of operands: what `crt` needs, and how much faster it is."""
    for kind in (*KINDS, *INTEGERS):
        a, b = operands(xp, kind, n)
        count = 1 if xp is np else max(6, min(60, int(6e12 / n**3)))
        ours = partial(matmul, a, b, scheme="crt", backend="cuda")
        calls = {"native": partial(np.matmul if xp is np else xp.matmul, a, b), "crt": ours}
        state_of(0).outlooks.clear()
        wait = (lambda: None) if xp is np else xp.cuda.runtime.deviceSynchronize
        times = in_turn({k: repeated(f, count, wait) for k, f in calls.items()}, 3)
        native, mine = (1e3 * min(times[name]) / count for name in calls)
        needs, outlooks = "", [*state_of(0).outlooks.values()]  # none where panels were moved
        if outlooks:
            needs = outlooks[0].scheme.name.rpartition(" ")[2] if outlooks[0].scheme else "native"
        # Every sum of integers is below 2^53, so the native product rounds none.
        if kind in INTEGERS and not (ours() == calls["native"]()).all():
            needs += " WRONG"
        click.echo(
            f"{n:6d} {kind:14s} {needs:7s} native {native:8.3f} ms  crt {mine:8.3f} ms  "
            f"{native / mine:5.2f} x"
        )
        del a, b, ours, calls


@click.command()
@click.option("--most", default=16384, show_default=True, help="The largest size to time.")
@click.option("--numpy", "on_host", is_flag=True, help="Of NumPy arrays, which are moved.")
def command(most: int, on_host: bool) -> None:
    """Speed of `crt` beside cuBLAS FP64's or NumPy's."""
    cupy = machine.gpu()
    click.echo(machine.text(machine.facts_of_gpu(), versions=True))
    for n in SIZES:
        if n <= (min(most, 8192) if on_host else most):
            speeds(np if on_host else cupy, n)


if __name__ == "__main__":
    main(command, "python -m tests.benchmarks.crt")
