"""`mixpert doctor --measure`: from which size on each scheme beats the native product here."""

import math
from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from mixpert_py.bench.device_clock import Clock, EventClock, Sample, in_turn
from mixpert_py.errors import DeviceError
from mixpert_py.runtime.cuda import transfer
from mixpert_py.runtime.cuda.break_even import BreakEven, Figures
from mixpert_py.runtime.cuda.device import Absent, find
from mixpert_py.runtime.dispatch import matmul

SCHEMES = ("faithful", "int8x10", "int8x8", "int8x6", "int8x3", "int8x1", "fp16x3")
EDGES = (4096, 3072, 2048, 1536, 1024, 768, 512, 384, 256, 192, 128, 64)
WIDTH = 4096  # of C, where K is what makes a product thin
THIN = (1024, 768, 512, 384, 256, 192, 128, 96, 64, 48, 32, 16)
ROUNDS = 9
MOVED = 4096  # edge of the NumPy arrays that are moved
HOSTS = 2048  # edge of those that the host multiplies

Beats = Callable[[str, int, int, int], bool]
"""(scheme, m, k, n) → whether it is faster there than the native product."""


def measure() -> Figures:
    """The figures of the current device; takes a minute or two.

    Raises DeviceError where there is none.
    """
    found = find()
    if isinstance(found, Absent):
        raise DeviceError(f"nothing to measure: {found.sentence}")
    import cupy

    beats = by_clock(cupy, EventClock(cupy))
    schemes = {name: break_even(name, beats) for name in SCHEMES}
    return Figures(found.name, _staging(), _host(), schemes)


def break_even(name: str, beats: Beats) -> BreakEven:
    """The least size, and the least thickness, from which on a scheme never loses."""
    edge = least(EDGES, lambda n: beats(name, n, n, n))
    length = least(THIN, lambda k: beats(name, WIDTH, k, WIDTH))
    thickness = 1 / (2 / WIDTH + 1 / length)
    return BreakEven(edge**3, thickness * (1 - 1e-9))  # so that what was measured pays


def least(sizes: Sequence[int], wins: Callable[[int], bool]) -> float:
    """The last of falling sizes before the first that does not win; infinite if none does.

    It is asked twice: a moment when the machine was busy is not to decide.
    """
    found = math.inf
    for size in sizes:
        if not (wins(size) or wins(size)):
            break
        found = size
    return found


def by_clock(cupy: Any, clock: Clock) -> Beats:
    """Times both, packing included, with what they cost the host where that takes longer.

    On the host it is the least of all samples that counts: what else runs there only adds to it.
    """

    def beats(name: str, m: int, k: int, n: int) -> bool:
        random = cupy.random.default_rng(0)
        a, b = (random.standard_normal(shape, dtype="float32") for shape in ((m, k), (k, n)))
        calls = {
            "native": lambda: cupy.matmul(a, b),
            "scheme": lambda: matmul(a, b, scheme=name, backend="cuda"),
        }
        samples = in_turn(clock, calls, ROUNDS)
        native, scheme = (_seconds_of(samples[call]) for call in calls)
        return scheme < native

    return beats


def _seconds_of(samples: Sequence[Sample]) -> float:
    return max(median(sample.device for sample in samples), min(sample.host for sample in samples))


def _staging() -> float:
    """Bytes per second of a product of NumPy arrays that is mostly their way there and back."""
    a = np.random.default_rng(0).standard_normal((MOVED, MOVED), np.float32)
    transfer.make(a, a, "int8x1")
    return 3 * a.nbytes / _seconds(lambda: transfer.make(a, a, "int8x1"))


def _host() -> float:
    a = np.random.default_rng(0).standard_normal((HOSTS, HOSTS), np.float32)
    np.matmul(a, a)
    return 2 * HOSTS**3 / _seconds(lambda: np.matmul(a, a))


def _seconds(call: Callable[[], Any]) -> float:
    times = []
    for _ in range(5):
        start = perf_counter()
        call()
        times.append(perf_counter() - start)
    return median(times)
