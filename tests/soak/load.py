"""A machine under full load for minutes: neither its speed nor its memory changes."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

import mixpert_py
from mixpert_py import files
from mixpert_py.errors import MixPertError
from tests.soak.verdict import Verdict

SLOWER = 0.95  # the least throughput, as a part of the first window's
DRIFT = 0.01  # the largest change of memory, as a part of that after the first window
WARM_UP = 0.05  # part of the time

Memory = Callable[[], Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of full load on one machine.

    first, last: operations a second in the first window after the warm-up, and in the last window.
    before, after: bytes by kind of memory, after the first window and at the end.
    """

    on: str
    seconds: float
    first: float
    last: float
    before: dict[str, int]
    after: dict[str, int]

    @property
    def speed(self) -> float:
        """The throughput in the last window over that in the first."""
        return self.last / self.first

    @property
    def drift(self) -> float:
        """The largest relative change of any kind of memory."""
        return max(
            abs(self.after[kind] - size) / max(size, 1) for kind, size in self.before.items()
        )

    @property
    def holds(self) -> bool:
        """Whether speed and memory have stayed as they were."""
        return self.speed >= SLOWER and self.drift < DRIFT


def stretch(
    work: Callable[[], float],
    memory: Memory,
    on: str,
    seconds: float,
    window: float,
    clock: Callable[[], float] = monotonic,
) -> Stretch:
    """Measure `seconds` of work.

    work: does some of it, in well below a window, and returns its number of operations.

    Raises MixPertError where nothing was finished in a window.
    """
    warm = seconds * WARM_UP
    edges = warm, warm + window, seconds - window, seconds
    passed: list[tuple[float, float]] = []  # for each edge the time, and the operations until then
    operations, begin = 0.0, clock()
    before: Mapping[str, int] = {}
    while len(passed) < len(edges):
        operations += work()
        now = clock() - begin
        while len(passed) < len(edges) and now >= edges[len(passed)]:
            passed.append((now, operations))
            if len(passed) == 2:
                before = memory()
    after = memory()
    return Stretch(on, seconds, _rate(*passed[:2]), _rate(*passed[2:]), dict(before), dict(after))


def _rate(begin: tuple[float, float], end: tuple[float, float]) -> float:
    if begin[0] == end[0]:
        raise MixPertError("nothing was done in a whole --window; make it longer")
    return (end[1] - begin[1]) / (end[0] - begin[0])


def verdict(stretches: Sequence[Stretch], window: float, on_gpu: bool) -> Verdict:
    """The verdict on all stretches."""
    speed = ", ".join(f"{100 * one.speed:.1f} %" for one in stretches)
    drift = max(one.drift for one in stretches)
    times = ", ".join(f"{one.seconds / 60:.3g} min" for one in stretches)
    return Verdict(
        "load",
        f"full load for {times}",
        f"the last {window:g} s at {speed} of the first; memory within {100 * drift:.2f} %",
        all(one.holds for one in stretches),
        on_gpu=on_gpu,
        figures={"stretches": [asdict(one) for one in stretches]},
    )


def load(path: Path | None, on: str) -> list[Stretch]:
    """Earlier stretches. Raises MixPertError for a file without any, or of another machine."""
    if path is None or not path.exists():
        return []
    try:
        found = [Stretch(**one) for one in json.loads(path.read_text("utf-8"))]
    except (ValueError, TypeError) as error:
        raise MixPertError(f"{path}: not a state of `python -m tests.soak load`") from error
    if any(one.on != on for one in found):
        raise MixPertError(f"{path}: of another machine than {on}; give another file")
    return found


def write(stretches: Sequence[Stretch], path: Path) -> None:
    """Write stretches for the next call."""
    text = json.dumps([asdict(one) for one in stretches], indent=1) + "\n"
    files.replace(path, text.encode())


def on_gpu(cupy: Any) -> tuple[Callable[[], float], Memory]:
    """Products that fill the GPU, of several schemes and shapes; and its memory, and ours."""
    rng = cupy.random.default_rng(1)

    def pair(*shape: int) -> tuple[Any, Any]:
        *stack, m, k, n = shape
        return (
            rng.standard_normal((*stack, m, k), dtype=np.float32),
            rng.standard_normal((*stack, k, n), dtype=np.float32),
        )

    calls = [
        ("faithful", *pair(8192, 8192, 8192)),
        ("int8x3", *pair(4096, 4096, 4096)),
        ("fp16x3", *pair(4096, 8192, 2048)),
        ("int8x10", *pair(2048, 4096, 2048)),
        ("int8x6", *pair(64, 256, 256, 256)),
    ]
    each: float = sum(2.0 * a.size * b.shape[-1] for _, a, b in calls)
    pool, device = cupy.get_default_memory_pool(), cupy.cuda.Device()

    def work() -> float:
        for _ in range(8):
            for scheme, a, b in calls:
                mixpert_py.matmul(a, b, scheme=scheme)
        device.synchronize()
        return 8 * each

    def memory() -> dict[str, int]:
        free, total = device.mem_info
        return {"pool": pool.total_bytes(), "device": total - free, "host": resident()}

    return work, memory


def on_host() -> tuple[Callable[[], float], Memory]:
    """Products in NumPy, native and emulated; and our memory."""
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((2, 128, 128))
    schemes = ("int8x6", "float32", "fp16x3", "native")

    def work() -> float:
        for scheme in schemes:
            mixpert_py.matmul(a, b, scheme=scheme, backend="reference")
        return len(schemes) * 2.0 * len(a) ** 3

    return work, lambda: {"host": resident()}


def resident() -> int:
    """Resident bytes of this process; 0 where the system does not report them."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
