"""`crt` against cuBLAS FP64 on a GPU: milliseconds in a loop, on the device and by the clock."""

from functools import partial
from typing import Any

import click
import numpy as np

from mixpert_py.cli import main
from mixpert_py.runtime.api import matmul
from mixpert_py.runtime.gpu.device import state_of
from tests.benchmarks.app_runs import DeviceTimer
from tests.benchmarks.arrays import Numbers
from tests.benchmarks.families import EVERYDAY, FAMILIES
from tests.benchmarks.timing import in_turn, summary

SIZES = (2048, 3072, 4096, 6144, 8192, 16384)
KINDS = ("normal", "log-normal 1", "spread 4")
INTEGERS = {
    "0/1": (0, 1),
    "[0, 255]": (0, 255),
    "signed bytes": (-128, 127),
    "±30,000": (-30_000, 30_000),
}
ALL = {**FAMILIES, **EVERYDAY}


def ours(a: Any, b: Any) -> Any:
    return matmul(a, b, scheme="crt", backend="cuda")


def timed(xp: Any, product: Any, a: Any, b: Any, count: int) -> tuple[float, float]:
    """Milliseconds of a product on the device, and by the clock, of `count` in a row."""

    def repeated() -> None:
        for _ in range(count):
            product(a, b)

    repeated()
    _, times = DeviceTimer(xp)(repeated)
    return 1e3 * times.device / count, 1e3 * times.wall / count


def operands(xp: Any, kind: str, n: int) -> tuple[Any, Any]:
    """Two float64 arrays (n, n) of one kind, of NumPy or of CuPy."""
    if kind in INTEGERS:
        low, high = INTEGERS[kind]
        bits = xp.random.default_rng(0).integers(low, high, (2, n, n), endpoint=True)
        a, b = bits.astype("d")
    else:
        a, b = (xp.asarray(x, "d") for x in ALL[kind](Numbers(xp, 0), n, n, n))
    return a, b


def speeds(xp: Any, n: int) -> None:
    for kind in (*KINDS, *INTEGERS):
        a, b = operands(xp, kind, n)
        count = max(6, min(60, int(6e12 / n**3)))
        state_of(0).outlooks.clear()
        pairs = []
        for _ in range(3):
            pairs.append((timed(xp, xp.matmul, a, b, count), timed(xp, ours, a, b, count)))
        best = np.min(np.array(pairs), axis=0)
        (native, native_wall), (mine, wall) = best
        (outlook,) = state_of(0).outlooks.values()
        needs = "native" if outlook.failures else f"crt{outlook.count}"
        if outlook.integers is not None:
            needs = outlook.integers.name.rpartition(" ")[2]
            # Every sum is an integer below 2^53, so cuBLAS rounds none.
            if not (ours(a, b) == a @ b).all():
                needs += " WRONG"
        print(
            f"{n:6d} {kind:14s} {needs:7s} cuBLAS {native:8.3f} {native_wall:8.3f} ms"
            f"  crt {mine:8.3f} {wall:8.3f} ms  {native / mine:5.2f} x {native_wall / wall:5.2f} x",
            flush=True,
        )
        del a, b


def moved(n: int) -> None:
    """Milliseconds of products of NumPy arrays, by the clock: NumPy's, and moved to the GPU."""
    for kind in (*KINDS, "[0, 255]"):
        a, b = operands(np, kind, n)
        times = in_turn({"NumPy": partial(np.matmul, a, b), "crt": partial(ours, a, b)}, 5)
        native, mine = (1e3 * summary(times[way])["median"] for way in ("NumPy", "crt"))
        speedup = f"{native / mine:5.1f} x"
        print(f"{n:6d} {kind:14s} NumPy {native:8.1f} ms  crt {mine:8.1f} ms  {speedup}")


@click.command()
@click.option("--most", default=16384, show_default=True, help="The largest size to time.")
@click.option("--numpy", "on_host", is_flag=True, help="Of NumPy arrays, which are moved.")
def command(most: int, on_host: bool) -> None:
    """Speed of `crt` beside cuBLAS FP64's or NumPy's."""
    import cupy

    print(cupy.cuda.runtime.getDeviceProperties(0)["name"].decode())
    if on_host:
        for n in (1024, *(n for n in SIZES if n <= min(most, 8192))):
            moved(n)
        return
    for n in SIZES:
        if n <= most:
            speeds(cupy, n)


if __name__ == "__main__":
    main(command, "python -m tests.benchmarks.crt")
