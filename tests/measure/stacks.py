"""Stacks of small products, and loops `x = a @ x`, of CuPy arrays on a GPU, by wall clock.

Each function is called as it is and under `accelerate`, in turn, without a plan; a call is waited
for at its end only.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import click

import mixpert_py
from mixpert_py.bench.timing import in_turn, summary
from mixpert_py.cli import main

ROUNDS = 9
SIZES = (64, 128, 256, 512, 1024, 1536, 2048, 4096)


def kalman(f: Any, h: Any, p: Any, r: Any) -> Any:
    """40 steps of the covariances of many filters."""
    for _ in range(40):
        p = f @ p @ f.transpose(0, 2, 1)
        s = h @ p @ h.transpose(0, 2, 1) + r
        gain = p @ h.transpose(0, 2, 1) @ s
        p = p - (gain @ h @ p) * p.dtype.type(1e-3)
    return p


def stack(a: Any, b: Any) -> Any:
    for _ in range(20):
        c = a @ b
    return c


def power(a: Any, x: Any) -> Any:
    for _ in range(400 if len(a) < 1500 else 60):
        x = a @ x
    return x


def show(name: str, function: Callable[..., Any], *operands: Any) -> None:
    import cupy

    def waiting(one: Callable[..., Any]) -> None:
        one(*operands)
        cupy.cuda.Device().synchronize()

    ways = {"native": function, "ours": mixpert_py.accelerate(function)}
    calls = {way: partial(waiting, one) for way, one in ways.items()}
    for call in calls.values():  # what the first calls compile and decide is not theirs
        for _ in range(3):
            call()
    times = in_turn(calls, ROUNDS)
    native, ours = (1e3 * summary(times[way])["median"] for way in ways)
    ratio = summary([n / o for n, o in zip(times["native"], times["ours"], strict=True)])
    spread = f"({ratio['lower']:.3f}–{ratio['upper']:.3f})"
    click.echo(f"{name}: {native:.2f} → {ours:.2f} ms, {ratio['median']:.3f}× {spread}")


@click.command()
def command() -> None:
    """Stacks of small products and loops, native over rewritten, on a GPU."""
    import cupy

    draw = cupy.random.default_rng(0)

    def normal(*shape: int, over: float = 1) -> Any:
        return draw.standard_normal(shape, dtype="f4") / cupy.float32(over)

    click.echo(cupy.cuda.runtime.getDeviceProperties(0)["name"].decode())
    first = cupy.broadcast_to(cupy.eye(48, dtype="f4"), (4000, 48, 48)).copy()
    filters = normal(4000, 48, 48, over=48), normal(4000, 24, 48, over=24), first
    show("4,000 Kalman filters, 40 steps", kalman, *filters, cupy.eye(24, dtype="f4"))
    show("1,000 products of 128³, 20 times", stack, *(normal(1000, 128, 128) for _ in range(2)))
    for n in SIZES:
        show(f"x = a @ x, n = {n}", power, normal(n, n, over=2 * n**0.5), normal(n, n))


if __name__ == "__main__":
    main(command, "python -m tests.measure.stacks")
