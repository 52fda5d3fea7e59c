"""`mixpert bench gemm`: speed over sizes, and accuracy over families, of schemes and cuBLAS."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from mixpert_py.bench.arrays import Array, Numbers, narrow
from mixpert_py.bench.families import EVERYDAY, FAMILIES, Family
from mixpert_py.bench.gemm import ours, vendor
from mixpert_py.bench.gemm.contender import Contender, calls
from mixpert_py.bench.gemm.tables import Record
from mixpert_py.bench.judgement import Exact, judge
from mixpert_py.bench.timing import ratio, timing
from mixpert_py.runtime.gpu.event_clock import Clock, EventClock, in_turn

Shape = tuple[int, int, int]  # m, k, n
Section = Callable[[], list[Record]]

SIZES = (1024, 2048, 4096, 8192, 16384)
SCHEMES = (
    *("faithful", "int8x10", "int8x8", "int8x6", "int8x3", "int8x1", "fp16x3", "legemm"),
    *("egemm", "mixpert-IV", "bf16x6", "tf32x3", "fp16"),
)
BASE = vendor.FP32.name
ERROR_SIZE = 2048
KNOWN: Mapping[str, Family] = {**FAMILIES, **EVERYDAY}


@dataclass(frozen=True, slots=True)
class Bench:
    """Arrays (xp: NumPy or CuPy), clock, contenders by name, and the rounds of a measurement."""

    xp: Any
    clock: Clock
    contenders: Mapping[str, Contender]
    rounds: int

    def operands(
        self, m: int, k: int, n: int, family: str = "normal", draw: int = 0
    ) -> tuple[Array, Array]:
        """Fresh float32 operands of a family; the seed depends on the shape and the draw alone."""
        a, b = KNOWN[family](Numbers(self.xp, m + k + n + (draw << 32)), m, k, n)
        return narrow(a, np.float32), narrow(b, np.float32)

    def stacks(self, count: int, m: int, k: int, n: int) -> tuple[Array, Array]:
        """Fresh normal float32 operands, `count` of them."""
        a = self.operands(count * m, k, 1)[0].reshape(count, m, k)
        return a, self.operands(1, count * k, n)[1].reshape(count, k, n)


def standard(
    cupy: ModuleType,
    rounds: int,
    schemes: Iterable[str] = SCHEMES,
    modes: Iterable[str] = tuple(vendor.MODES),
) -> tuple[Bench, dict[str, str]]:
    """The bench on the current GPU, and the modes of cuBLAS that it lacks, each with the reason."""
    missing = {name: why for name in modes if (why := vendor.offered(vendor.MODES[name]))}
    chosen = {n: vendor.contender(vendor.MODES[n]) for n in modes if n not in missing}
    chosen |= {name: ours.contender(name) for name in schemes}
    return Bench(cupy, EventClock(cupy), chosen, rounds), missing


def speed(bench: Bench, m: int, k: int, n: int) -> list[Record]:
    """Times of every contender at one shape, whole and in parts, on fresh normal operands."""
    a, b = bench.operands(m, k, n)
    parts, failed = {}, {}
    for contender in bench.contenders.values():
        try:
            parts[contender.name] = ready = contender.prepare(a, b)
            ready.whole()
        except Exception as error:  # whatever one of them meets, the others are measured
            failed[contender.name] = error_line(error)
            parts.pop(contender.name, None)
    samples = in_turn(bench.clock, calls(parts), bench.rounds)
    rows = []
    for contender in bench.contenders.values():
        name = contender.name
        row: Record = {"name": name, "kind": contender.kind, "m": m, "k": k, "n": n}
        rows.append(row)
        if name in failed:
            row["failed"] = failed[name]
            continue
        row["seconds"] = timing(samples[name])
        row["tflops"] = 2e-12 * m * n * k / row["seconds"]["median"]
        for part in ("packing", "gemm"):
            if f"{name} {part}" in samples:
                row[part] = timing(samples[f"{name} {part}"])
        if BASE in samples:
            row["speedup"] = ratio(samples[BASE], samples[name])
        if contender.kind == "scheme":
            row["ran"] = ours.ran(a, b, name)
    return rows


def accuracy(bench: Bench, family: str, m: int, k: int, n: int) -> list[Record]:
    """Errors and grade of every contender at one shape and family, against FP64."""
    a, b = bench.operands(m, k, n, family)
    exact = Exact.of(a, b)
    rows = []
    for contender in bench.contenders.values():
        row: Record = {"name": contender.name, "kind": contender.kind, "family": family}
        row |= {"m": m, "k": k, "n": n}
        try:
            row |= judge(exact, contender.prepare(a, b).whole()).record()
            if contender.kind == "scheme":
                row["ran"] = ours.ran(a, b, contender.name)
        except Exception as error:  # as above
            row["failed"] = error_line(error)
        rows.append(row)
    return rows


def error_line(error: Exception) -> str:
    """The type and the first line of an error, which is what a result keeps of it."""
    return f"{type(error).__name__}: {error}".splitlines()[0]


def sections(
    bench: Bench, shapes: Sequence[Shape], families: Sequence[str], size: int
) -> dict[str, Section]:
    """Speed at every shape; accuracy on every family at size³, on normal data at every shape."""
    found: dict[str, Section] = {f"speed {plain(s)}": partial(speed, bench, *s) for s in shapes}
    cases = [(family, (size, size, size)) for family in families]
    cases += [("normal", shape) for shape in shapes]
    for family, shape in cases:
        found[f"accuracy {family} {plain(shape)}"] = partial(accuracy, bench, family, *shape)
    return found


def text(shape: Shape) -> str:
    """A shape as text: m × k × n, or n³."""
    m, k, n = shape
    return f"{m}³" if m == k == n else f"{m} × {k} × {n}"


def plain(shape: Shape) -> str:
    """A shape as `--size` takes it."""
    return str(shape[0]) if len(set(shape)) == 1 else "x".join(map(str, shape))
