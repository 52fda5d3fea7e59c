"""The places where exhibits are measured: this GPU, or the reference backend for errors only."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np

from mixpert_py.errors import MixPertError
from mixpert_py.runtime.probes.gpu import EventClock, SampleClock
from samples.papers import baselines
from tests.benchmarks import gemm, machine
from tests.benchmarks.contract import Exact, judge
from tests.benchmarks.families import Array, Numbers, narrow, wide
from tests.benchmarks.gemm import Bench, Contender, Shape

FP32, FP16 = gemm.FP32.name, "cuBLAS FP16"
SQUARES = (1024, 2048, 4096, 8192)
SKEWED: tuple[Shape, ...] = (
    *((4096, 16384, 4096), (1024, 16384, 1024), (16384, 1024, 16384), (8192, 256, 8192)),
    *((16384, 4096, 1024), (1024, 4096, 16384)),
)
SCHEMES = (
    *("mixpert-full", "mixpert-IV", "mixpert-III", "mixpert-II", "mixpert-I", "bf16x6", "tf32x3"),
    *("egemm", "legemm", "ootomo", "markidis-ab", "markidis-a", "markidis-trunc", "fp16"),
    *("faithful", "int8x6", "int8x3", "fp16x3"),
)
RANGES = {"[-1, 1)": (-1.0, 1.0), "[0, 1)": (0.0, 1.0), "[0.5, 2.5)": (0.5, 2.5)}
WIDE_RANGE = {"[-16, 16)": (-16.0, 16.0)}
SHRINK, SMALLEST = 64, 32  # sizes in small runs
ROUNDS = 7


@dataclass(frozen=True, slots=True)
class Place:
    """contenders: by name. where: the machine, in words. clock: None where speeds mean nothing.

    small: sizes are a 64th, for a look and for tests.
    """

    xp: ModuleType
    contenders: Mapping[str, Contender]
    where: str
    clock: SampleClock | None = None
    small: bool = False
    rounds: int = ROUNDS

    def size(self, n: int) -> int:
        """n, or what stands for it in a small run."""
        return max(SMALLEST, n // SHRINK) if self.small else n

    def sizes(self, many: Iterable[int]) -> list[int]:
        """The sizes of a run, each once where several become equal."""
        return list(dict.fromkeys(map(self.size, many)))

    def uniform(self, limits: tuple[float, float], m: int, k: int, n: int) -> tuple[Array, Array]:
        """Fresh float32 operands, uniform in a range; the seed depends on the shape alone."""
        source = Numbers(self.xp, m + k + n)
        a, b = (narrow(source.uniform(*limits, shape), np.float32) for shape in ((m, k), (k, n)))
        return a, b

    def product(self, name: str, a: Array, b: Array) -> Array:
        """A product as a contender makes it."""
        return self.contenders[name].prepare(a, b).whole()

    def errors(
        self, names: Sequence[str], range_: str, m: int, k: int, n: int
    ) -> list[dict[str, Any]]:
        """A row for every contender: `max`, `max_relative` and `mred` as most papers have them,
        against the FP32 product; `frobenius` and `max_exact` against FP64. Of many sums one is 0 in
        FP32 by chance: `mred` is over the others.
        """
        a, b = self.uniform((RANGES | WIDE_RANGE)[range_], m, k, n)
        exact = Exact.of(a, b)
        single = replace(exact, product=wide(self.product(FP32, a, b)))
        rows = []
        for name in names:
            value = self.product(name, a, b)
            row = judge(single, value).record()
            true = judge(exact, value).record()
            row |= {"frobenius": true["frobenius"], "max_exact": true["max"], "name": name}
            row["mred"] = _mred(single.product, value)
            del row["grade"]
            rows.append(row | {"range": range_, "m": m, "k": k, "n": n})
        return rows

    def bench(self, names: Iterable[str]) -> Bench:
        """Contenders to be timed. Only where there is a clock."""
        assert self.clock is not None
        chosen = {name: self.contenders[name] for name in names}
        return Bench(self.xp, self.clock, chosen, self.rounds)

    def speeds(self, names: Sequence[str], *shape: int) -> list[dict[str, Any]]:
        """A row for every contender, timed in turn with cuBLAS FP32 on normal data: seconds whole,
        of packing and of the kernel alone (None where it has no parts), TFLOP/s, × FP32.

        Raises MixPertError where one fails.
        """
        m, k, n = map(self.size, shape)
        rows = []
        for row in gemm.speed(self.bench(dict.fromkeys((FP32, *names))), m, k, n):
            if "failed" in row:
                raise MixPertError(f"{row['name']} at {m} × {k} × {n}: {row['failed']}")
            parts = {part: row.get(part, {}).get("median") for part in ("packing", "gemm")}
            shared = {key: row[key] for key in ("name", "m", "k", "n", "tflops")}
            seconds, times = row["seconds"]["median"], row["speedup"]["median"]
            rows.append({**shared, "seconds": seconds, "times": times, **parts})
        return [row for row in rows if row["name"] in names]


def _mred(exact: Array, value: Array) -> float:
    there = exact != 0
    size = abs(exact[there])
    return float((abs(wide(value)[there] - exact[there]) / size).mean()) if size.size else 0.0


def on_gpu(small: bool) -> Place:
    """The current GPU. Raises DeviceError without."""
    cupy = machine.gpu()
    where = machine.text(machine.machine() | machine.device(cupy))
    modes = {name: gemm.of_vendor(gemm.MODES[name]) for name in (FP32, FP16)}
    made = {**modes, **baselines.baselines(cupy), **_schemes("cuda")}
    return Place(cupy, made, where, EventClock(cupy), small)


def without_gpu() -> Place:
    """NumPy in cuBLAS's place, and schemes as the reference backend makes them; always small."""
    facts = machine.machine()
    where = f"The reference backend, NumPy {facts['numpy']} in cuBLAS's place, on a CPU "
    where += f"({facts['cpu']}), {facts['date']}: errors only."
    return Place(np, baselines.baselines(np) | _schemes("reference"), where, small=True)


def _schemes(backend: str) -> dict[str, Contender]:
    return {name: gemm.of_scheme(name, backend=backend) for name in SCHEMES}
