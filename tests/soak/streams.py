"""Operands that are written late, on streams: no product reads them before."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np

import mixpert_py
from tests.soak.verdict import Verdict

SCHEMES = ("int8x6", "faithful", "int8x3", "fp16x3", "mixpert-IV", "tf32x3")
PAIRS = 6  # of operands: a stale read gives the product of others
DELAY = 10e-3  # seconds
MOST_SHOWN = 20
SPIN = r"""
extern "C" __global__ void spin(long long nanoseconds)
{
    unsigned long long now, end;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    end = now + nanoseconds;
    while (now < end) asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
}
"""


class Lane(NamedTuple):
    """A stream and the two arrays that its operands are written into again and again."""

    stream: AbstractContextManager[Any]
    a: Any
    b: Any


def gate(cupy: Any, streams: int, rounds: int, size: int) -> Verdict:
    """Run rounds in which every stream waits, writes operands, and multiplies them in many ways."""
    spin = spinning(cupy)
    values = operands(cupy, size)
    expected = {
        name: [_on_host(make(a, b)) for a, b in values] for name, make in ways(cupy).items()
    }
    cupy.cuda.runtime.deviceSynchronize()
    lanes = [
        Lane(cupy.cuda.Stream(non_blocking=True), *map(cupy.zeros_like, values[0]))
        for _ in range(streams)
    ]
    cupy.cuda.runtime.deviceSynchronize()
    made, wrong = 0, []
    for number in range(rounds):
        for which, name, found in late(cupy, lanes, values, number, spin):
            made += 1
            if not np.array_equal(found, expected[name][which]):
                wrong.append(f"round {number}, {name}: {_described(found, expected[name], which)}")
    early = seen_early(cupy, lanes, spin)
    return verdict(streams, made, wrong, early, rounds)


def verdict(streams: int, made: int, wrong: Sequence[str], early: bool, rounds: int) -> Verdict:
    """The verdict. early: whether a stream that did not wait has read operands before they were
    written; where none has, the delay was too short to show anything.
    """
    found = f"{len(wrong)} of operands as they were before"
    return Verdict(
        "streams",
        f"{streams} streams, {made:,} products of operands written {DELAY * 1e3:g} ms late",
        found if early else f"{found}, but the delay delays nothing",
        not wrong and early and made > 0,
        on_gpu=True,
        figures={"rounds": rounds, "wrong": list(wrong[:MOST_SHOWN])},
    )


def ways(xp: Any) -> dict[str, Callable[[Any, Any], Any]]:
    """Functions that multiply two operands on the current stream, by name."""

    def by(scheme: str) -> Callable[[Any, Any], Any]:
        return lambda a, b: mixpert_py.matmul(a, b, scheme=scheme, backend="cuda")

    def packed(a: Any, b: Any) -> Any:
        return mixpert_py.matmul(a, mixpert_py.pack(b, "int8x6"), backend="cuda")

    def chained(a: Any, b: Any) -> Any:
        first = mixpert_py.matmul(a, b, scheme="int8x6", backend="cuda")
        return mixpert_py.matmul(first, b, scheme="fp16x3", backend="cuda")

    def into(a: Any, b: Any) -> Any:
        out = xp.empty(a.shape, a.dtype)
        return mixpert_py.matmul(a, b, scheme="int8x6", backend="cuda", out=out)

    special = {"packed before": packed, "chained": chained, "into out": into}
    return {name: by(name) for name in SCHEMES} | special


def late(
    xp: Any, lanes: Sequence[Lane], values: Sequence[Any], number: int, spin: Callable[[], None]
) -> Iterator[tuple[int, str, Any]]:
    """The operands' number, the way and the product of every lane; all run at the same time."""
    made = []
    for place, lane in enumerate(lanes):
        which = (number + place) % len(values)
        with lane.stream:
            spin()
            lane.a[...], lane.b[...] = values[which]
            made += [(which, name, make(lane.a, lane.b)) for name, make in ways(xp).items()]
    xp.cuda.runtime.deviceSynchronize()
    for which, name, product in made:
        yield which, name, _on_host(product)


def seen_early(xp: Any, lanes: Sequence[Lane], spin: Callable[[], None]) -> bool:
    """Whether a stream that waits for nobody multiplies what another is yet to write over.

    After the rounds: a first allocation, or the loading of a kernel, could wait for the device. By
    several streams, and by kernels: two streams, or all that copy, may share a queue.
    """
    make = ways(xp)[SCHEMES[0]]
    writer, *readers = lanes
    zeros = xp.zeros_like(writer.a)
    xp.cuda.runtime.deviceSynchronize()
    with writer.stream:
        spin()
        writer.a[...] = zeros
    seen = []
    for reader in readers:
        with reader.stream:
            seen.append(make(writer.a, reader.b))
    xp.cuda.runtime.deviceSynchronize()
    return any(bool(_on_host(product).any()) for product in seen)


def operands(xp: Any, size: int) -> list[tuple[Any, Any]]:
    """Pairs of float32 matrices."""
    rng = np.random.default_rng(3)
    pairs = rng.standard_normal((PAIRS, 2, size, size)).astype(np.float32)
    return [(xp.asarray(a), xp.asarray(b)) for a, b in pairs]


def spinning(cupy: Any) -> Callable[[], None]:
    """A function that keeps the current stream busy for DELAY seconds."""
    kernel = cupy.RawKernel(SPIN, "spin")
    return lambda: kernel((1,), (1,), (np.int64(round(DELAY * 1e9)),))


def _described(found: Any, expected: Sequence[Any], which: int) -> str:
    for other, value in enumerate(expected):
        if np.array_equal(found, value):
            return f"the product of pair {other}, not {which}"
    return "no pair's product"


def _on_host(x: Any) -> Any:
    return x.get()
