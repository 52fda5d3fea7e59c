"""Products as programs write them, from 64 to 2048: the sweep of `tests.benchmarks.dispatch`.

A script that is run by `python` and by `mixpert run`: `patterns.py LIBRARY SECONDS ROUNDS
NAME …`. For each line of its input it prints the seconds of one call.
"""

import importlib
import os
import sys
from collections.abc import Callable, Container, Iterator
from time import perf_counter
from typing import Any

Work = Callable[[], Any]
Pattern = tuple[str, Callable[..., Work], tuple[Any, ...]]

WARM = 15  # times as long as a round


def square(array: Any, n: int, dtype: str = "float32") -> Work:
    a, b = array(n, n, dtype=dtype), array(n, n, dtype=dtype)
    return lambda: a @ b


def plain(array: Any, left: tuple[int, ...], right: tuple[int, ...]) -> Work:
    a, b = array(*left), array(*right)
    return lambda: a @ b


def own_transpose(array: Any, n: int) -> Work:
    a = array(n, n)
    return lambda: a @ a.T


def sandwich(array: Any, count: int, m: int, n: int) -> Work:
    """As in a Kalman filter: the covariance of what is observed."""
    h, p, back = array(count, m, n), array(count, n, n), array(count, n, m)
    return lambda: h @ p @ back


def looked_at(array: Any, n: int) -> Work:
    """The host waits for each product."""
    a, v = array(n, n), array(n)

    def look() -> float:
        w = a @ v
        return float((w * w).sum())

    return look


def cupys_out(array: Any, n: int) -> Work:
    import cupy as cp

    a, b, c = array(n, n), array(n, n), array(n, n)
    return lambda: cp.matmul(a, b, out=c)


def cupys_dot(array: Any, left: tuple[int, ...], right: tuple[int, ...]) -> Work:
    import cupy as cp

    a, b = array(*left), array(*right)
    return lambda: cp.dot(a, b)


def cupys_einsum(array: Any, words: str, *shapes: tuple[int, ...]) -> Work:
    import cupy as cp

    operands = [array(*shape) for shape in shapes]
    if len(operands) == 2:
        a, b = operands
        return lambda: cp.einsum(words, a, b)
    a, b, c = operands
    return lambda: cp.einsum(words, a, b, c)


def cupys_tensordot(array: Any, n: int) -> Work:
    import cupy as cp

    a, b = array(n, n), array(n, n)
    return lambda: cp.tensordot(a, b, axes=1)


def torchs(array: Any, name: str, *shapes: tuple[int, ...]) -> Work:
    import torch

    operands = [array(*shape) for shape in shapes]
    if name == "bmm":
        a, b = operands
        return lambda: torch.bmm(a, b)
    if name == "addmm":
        c, a, b = operands
        return lambda: torch.addmm(c, a, b)
    x, weight, bias = operands
    return lambda: torch.nn.functional.linear(x, weight, bias)


def torchs_out(array: Any, n: int) -> Work:
    import torch

    a, b, c = array(n, n), array(n, n), array(n, n)
    return lambda: torch.matmul(a, b, out=c)


def torchs_einsum(array: Any, words: str, *shapes: tuple[int, ...]) -> Work:
    import torch

    operands = [array(*shape) for shape in shapes]
    return lambda: torch.einsum(words, *operands)


def backward(array: Any, *shape: int) -> Work:
    a, b = (array(*shape).requires_grad_() for _ in range(2))
    return lambda: (a @ b).sum().backward()


def layers(width: int) -> Any:
    nn = importlib.import_module("torch").nn
    return nn.Sequential(
        *(it for _ in range(6) for it in (nn.Linear(width, width), nn.GELU()))
    ).cuda()


def net(array: Any, batch: int, width: int) -> Work:
    net, x = layers(width), array(batch, width)
    return lambda: net(x)


def step(array: Any, batch: int, width: int) -> Work:
    torch, net, x = importlib.import_module("torch"), layers(width), array(batch, width)
    optimiser = torch.optim.Adam(net.parameters())

    def train() -> None:
        optimiser.zero_grad()
        net(x).square().mean().backward()
        optimiser.step()

    return train


KALMAN = "bij,bjk,bkl->bil", (4000, 24, 48), (4000, 48, 48), (4000, 48, 24)
SMALL: list[Pattern] = [
    *((f"a @ b, {n}", square, (n,)) for n in (64, 256)),
    ("a @ b of complex64, 256", square, (256, "complex64")),
    ("a @ v, 512", plain, ((512, 512), (512,))),
    ("v @ v, 4096", plain, ((4096,), (4096,))),
    ("float((a @ v)²), 512", looked_at, (512,)),
    ("stack, 192 × 16 × 16", plain, ((192, 16, 16),) * 2),
    ("stack, 4000 × 48 × 48", plain, ((4000, 48, 48),) * 2),
    ("k @ v, 4000 × 48 × 24", plain, ((4000, 48, 24), (4000, 24, 1))),
    ("h @ p @ hᵀ, 4000 × 24 × 48", sandwich, (4000, 24, 48)),
]
LARGE: list[Pattern] = [
    ("a @ b, 32 × 2048 × 2048", plain, ((32, 2048), (2048, 2048))),
    ("a @ b, 8192 × 64 × 64", plain, ((8192, 64), (64, 64))),
    ("a @ b of float64, 512", square, (512, "float64")),
    ("a @ b of complex64, 512", square, (512, "complex64")),
    ("a @ a.T, 1024", own_transpose, (1024,)),
    ("stack, 64 × 256 × 256", plain, ((64, 256, 256),) * 2),
    ("a @ b, 8192 × 256 × 256", plain, ((8192, 256), (256, 256))),
    *((f"a @ b, {n}", square, (n,)) for n in (512, 1024, 2048)),
]
# The small ones first: the first large product of PyTorch's makes the later ones of this process
# take longer to call.
PATTERNS: dict[str, list[Pattern]] = {
    "cupy": [
        *SMALL,
        ("cp.dot(v, v), 4096", cupys_dot, ((4096,), (4096,))),
        ("cp.dot(a, b), 256", cupys_dot, ((256, 256),) * 2),
        ("einsum of three, 4000 × 24 × 48", cupys_einsum, KALMAN),
        ("einsum of two, 512", cupys_einsum, ("ij,jk->ik", (512, 512), (512, 512))),
        ("tensordot, 512", cupys_tensordot, (512,)),
        *((f"matmul, out=, {n}", cupys_out, (n,)) for n in (64, 512, 1024)),
        *LARGE,
        ("a @ b of complex128, 1024", square, (1024, "complex128")),
        ("a @ b of float64, 2048", square, (2048, "float64")),
    ],
    "torch": [
        *SMALL,
        ("bmm, 96 × 128 × 64", torchs, ("bmm", (96, 128, 64), (96, 64, 128))),
        ("F.linear, 64 × 256", torchs, ("linear", (64, 256), (256, 256), (256,))),
        ("einsum of three, 4000 × 24 × 48", torchs_einsum, KALMAN),
        ("einsum of two, 256", torchs_einsum, ("ij,jk->ik", (256, 256), (256, 256))),
        ("net, 32 × 512", net, (32, 512)),
        *LARGE,
        ("matmul, out=, 512", torchs_out, (512,)),
        ("addmm, 512", torchs, ("addmm", (512, 512), (512, 512), (512, 512))),
        ("F.linear, 32 × 2048", torchs, ("linear", (32, 2048), (2048, 2048), (2048,))),
        ("F.linear, 1024 × 1024", torchs, ("linear", (1024, 1024), (1024, 1024), (1024,))),
        ("net, 1024 × 1024", net, (1024, 1024)),
    ],
    "training": [
        *((f"a @ b, {n}", backward, (n, n)) for n in (64, 512)),
        ("stack, 192 × 16 × 16", backward, (192, 16, 16)),
        *(
            (f"step, {width} wide, batch {batch}", step, (batch, width))
            for width, batch in ((256, 512), (512, 2048), (1024, 1024), (1024, 2048))
        ),
        *((f"a @ b, {n}", backward, (n, n)) for n in (1024, 2048)),
    ],
}


def arrays(library: str) -> tuple[Callable[..., Any], Callable[[], Any]]:
    """A function that makes an array of normal numbers, and one that waits for the device."""
    if library == "cupy":
        cp = importlib.import_module("cupy")
        normal = cp.random.default_rng(0).standard_normal
        return (
            lambda *shape, dtype="float32": normal(shape).astype(dtype),
            cp.cuda.runtime.deviceSynchronize,
        )
    torch = importlib.import_module("torch")
    torch.set_grad_enabled(library == "training")
    return (
        lambda *shape, dtype="float32": torch.randn(
            *shape, dtype=getattr(torch, dtype), device="cuda"
        ),
        torch.cuda.synchronize,
    )


def seconds(work: Work, wait: Callable[[], Any], least: float) -> float:
    """Of one call, among as many in a row as take `least` seconds."""
    calls, elapsed = 1, 0.0
    while elapsed < least:
        if elapsed:
            calls = max(2 * calls, int(1.1 * calls * least / elapsed))
        start = perf_counter()
        for _ in range(calls):
            work()
        wait()
        elapsed = perf_counter() - start
    return elapsed / calls


def measured(library: str, least: float, rounds: int, names: Container[str]) -> Iterator[float]:
    """The seconds of a call of each pattern of these names, `rounds` times, after a warm-up."""
    array, wait = arrays(library)
    for _, make, given in (row for row in PATTERNS[library] if row[0] in names):
        work = make(array, *given)
        seconds(work, wait, WARM * least)
        for _ in range(rounds):
            yield seconds(work, wait, least)


if __name__ == "__main__":
    library, least, rounds, *names = sys.argv[1:]
    # The same cores for both processes of a sweep, which take turns: cores differ in what else they
    # do. A backward pass has a thread of its own.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-1 - (library == "training") :])
    found = measured(library, float(least), int(rounds), names)
    for _ in sys.stdin:
        print(next(found), flush=True)
