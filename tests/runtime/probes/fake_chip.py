"""A chip that says how long its instructions take, where `Gpu` would ask a GPU."""

from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixpert_py.runtime.probes.instructions import GROUP

LATENCY, CHAIN, INTERVAL = 33.0, 20.0, 4.0  # cycles
OVERHEAD = 17.0
SLICE = 4e6  # of another process
CLOCK = 2e9


class FakeChip:
    """Kernels `alone` and `chain` of timing.cuh, for instructions of a warp."""

    multiprocessors = 4
    device = SimpleNamespace(capability=80, name="NVIDIA Nothing", id=0)

    def __init__(self, disturbed: Iterable[bool] = ()) -> None:
        """disturbed: which launches, from the first on, another process interrupts."""
        self.disturbed = iter(disturbed)
        self.memory: dict[int, NDArray[np.uint64]] = {}
        self.elapsed = 0.0  # seconds of the last launch
        self.constants: Mapping[str, Any] = {}  # the same

    def words(self, count: int) -> Any:
        memory = np.zeros(count, np.uint64)
        self.memory[memory.ctypes.data] = memory
        return SimpleNamespace(
            data=SimpleNamespace(ptr=memory.ctypes.data), get=lambda: memory.copy()
        )

    def kernel(
        self, file: str, name: str, constants: Mapping[str, Any], shared: int = 0
    ) -> tuple[str, Mapping[str, Any]]:
        return name, constants

    def run(
        self,
        kernel: tuple[str, Mapping[str, Any]],
        grid: int,
        block: int,
        *words: int,
        shared: int = 0,
    ) -> None:
        name, self.constants = kernel
        out = self.memory[words[0]]
        more = SLICE if next(self.disturbed, False) else 0.0
        if name == "alone":
            out[:2] = OVERHEAD + LATENCY, OVERHEAD + more
            return
        cycles = words[2] * GROUP * max(CHAIN, block // 32 * INTERVAL) + more
        self.elapsed = cycles / CLOCK
        out[: 2 * grid] = np.tile([cycles, self.elapsed * 1e9], grid).astype(np.uint64)

    def seconds(self, call: Callable[[], Any]) -> float:
        call()
        return self.elapsed
