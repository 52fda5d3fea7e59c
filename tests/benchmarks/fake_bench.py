"""A bench without a GPU: NumPy multiplies, and the clock tells times that were given to it."""

from collections.abc import Mapping

import numpy as np

from mixpert_py.runtime.probes.gpu import Sample, TimedCall
from tests.benchmarks.families import Array
from tests.benchmarks.gemm import Bench, Contender, Parts


class FakeClock:
    """Says that a call took `seconds` times its own `weight`, 1 where it has none."""

    def __init__(self, seconds: float = 1e-3) -> None:
        self.seconds = seconds
        self.taken: list[TimedCall] = []

    def sample(self, call: TimedCall, calls: int, lead: float) -> Sample:
        self.taken.append(call)
        call()
        return Sample(self.seconds * getattr(call, "weight", 1.0), 1e-5, True)


def weighted(call: TimedCall, weight: float) -> TimedCall:
    """The same call, which the clock finds so much slower."""

    def weighed() -> object:
        return call()

    weighed.weight = weight  # type: ignore[attr-defined]
    return weighed


def contender(name: str, weight: float, error: float = 0.0, *, vendor: bool = False) -> Contender:
    """The float32 product, off by a relative error, at a given speed; parts where it is ours."""

    def prepare(a: Array, b: Array) -> Parts:
        def product() -> Array:
            exact = a.astype(np.float64) @ b.astype(np.float64)
            return (exact * (1 + error)).astype(np.float32)

        whole = weighted(product, weight)
        if vendor:
            return Parts(whole)
        return Parts(whole, weighted(lambda: None, weight / 4), weighted(lambda: None, weight / 2))

    return Contender(name, "vendor" if vendor else "scheme", prepare)


def bench(clock: FakeClock, weights: Mapping[str, tuple[float, float]]) -> Bench:
    """Contenders by name with their weight and error; names with "cuBLAS" are the vendor's."""
    contenders = {
        name: contender(name, weight, error, vendor="cuBLAS" in name)
        for name, (weight, error) in weights.items()
    }
    return Bench(np, clock, contenders, rounds=3)
