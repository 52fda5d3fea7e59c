"""Which instructions are timed, and what is made of the cycles that kernels report."""

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from samples.papers.gpu import Gpu
from samples.papers.instructions import GROUP, specs, timed, timings

LATENCY, CHAIN, INTERVAL = 33.0, 20.0, 4.0  # cycles
OVERHEAD = 17.0
SLICE = 4e6  # of another process
CLOCK = 2e9
INT8 = next(spec for spec in specs(80) if spec.name == "mma.sync m16n8k32 int8")


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
        self, file: str, name: str, constants: Mapping[str, Any], shared: int
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


def test_one_instruction() -> None:
    chip: Any = FakeChip()
    found = timed(chip, INT8)
    assert found.name == INT8.name
    assert found.latency == LATENCY
    assert found.chain == pytest.approx(CHAIN)
    assert found.interval == pytest.approx(INTERVAL)
    per_cycle = chip.multiprocessors * 2 * 16 * 8 * 32 / INTERVAL
    assert found.rate == pytest.approx(per_cycle * CLOCK, rel=1e-3)


@pytest.mark.parametrize("first", [True, False])
def test_other_processes_on_the_chip_do_not_show(first: bool) -> None:
    chip: Any = FakeChip(disturbed=(bool(i % 2) != first for i in count()))
    found = timed(chip, INT8)
    assert (found.latency, found.chain) == (LATENCY, pytest.approx(CHAIN))
    assert found.interval == pytest.approx(INTERVAL)


def test_all_instructions_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Gpu, "current", FakeChip)
    assert [row.name for row in timings()] == [spec.name for spec in specs(80)]


@pytest.mark.parametrize(("capability", "count"), [(80, 11), (89, 11), (90, 12 + 32), (100, 11)])
def test_names_say_what_is_timed(capability: int, count: int) -> None:
    found = {spec.name: spec for spec in specs(capability)}
    assert len(found) == count
    assert {spec.element for spec in found.values()} == {
        *("int8", "float16", "bfloat16", "tf32", "float32", "float64"),
    }
    for name, spec in found.items():
        size = re.search(r" m(\d+)n(\d+)k(\d+) ", name)
        m, n, k = map(int, size.groups()) if size else (32, 1, 1)
        assert spec.operations == 2 * m * n * k
        assert spec.element in name.split()
        assert spec.threads % spec.group == 0
    if capability == 90:
        kinds = ("k32 int8", "k16 float16", "k16 bfloat16", "k8 tf32")
        assert {f"wgmma m64n192{kind}" for kind in kinds} < set(found)
        assert "wgmma m64n256k32 int8 registers" in found
    assert "mma.sync m16n8k16 float16" in found
