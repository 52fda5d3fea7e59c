"""What the doctor says of a GPU, and how it is measured: on one that is not there."""

import math
from typing import Any

import pytest

from mixpert_py import measuring
from mixpert_py.doctor import examine
from mixpert_py.errors import DeviceError
from tests.runtime.cuda.fake_device import CUDARuntimeError, FakeGpu


def said(what: str) -> str:
    return next(finding.found for finding in examine() if finding.what == what)


@pytest.mark.parametrize(
    ("capability", "kernels"), [((9, 0), "sm_90a kernels"), ((8, 9), "portable kernels")]
)
def test_a_gpu_and_what_runs_on_it(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], kernels: str
) -> None:
    FakeGpu(capability=capability).install(monkeypatch)
    major, minor = capability
    assert said("GPU") == f"NVIDIA H200, compute capability {major}.{minor}, {kernels}"
    assert said("float32 products").startswith("native; faithful on the GPU from about ")
    assert said("emulated schemes").startswith(kernels)
    assert said("float64 products").startswith("native")


def test_without_a_gpu_it_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeGpu(error=CUDARuntimeError(35), driver=11040).install(monkeypatch)
    assert "the driver is for CUDA 11.4" in said("GPU")
    assert said("float32 products") == "native"
    assert all(finding.fine for finding in examine() if finding.what == "GPU")
    with pytest.raises(DeviceError, match=r"nothing to measure: the driver is for CUDA 11.4"):
        measuring.measure()


def test_the_break_even_is_where_it_begins_to_win_for_good() -> None:
    def beats(name: str, m: int, k: int, n: int) -> bool:
        assert name == "int8x6"
        return (m, k, n) == (192, 192, 192) or min(m, k, n) >= (512 if m == k else 96)

    found = measuring.break_even("int8x6", beats)
    assert found.volume == 512**3
    assert found.pays((4096, 96, 4096))
    assert not found.pays((4096, 95, 4096))
    never = measuring.break_even("int8x6", lambda *shape: False)
    assert never.volume == math.inf
    assert not never.pays((10**6, 10**6, 10**6))


def test_one_loss_on_a_busy_machine_is_no_break_even() -> None:
    asked: list[int] = []

    def wins(size: int) -> bool:
        asked.append(size)
        return size > 10 and asked.count(size) + (size != 30) > 1

    assert measuring.least((50, 40, 30, 20, 10), wins) == 20
    assert asked == [50, 40, 30, 30, 20, 10, 10]


class Samples:
    """A clock for which calls take as long as they say."""

    def __init__(self, native: tuple[float, float], scheme: tuple[float, float]) -> None:
        self.times = [native, scheme]
        self.seen: dict[Any, tuple[float, float]] = {}

    def sample(self, call: Any, calls: int, lead: float) -> Any:
        from mixpert_py.bench.device_clock import Sample

        device, host = self.seen.setdefault(call, self.times[len(self.seen) % 2])
        return Sample(device, host, True)


@pytest.mark.parametrize(
    ("native", "scheme", "wins"),
    [
        ((20e-6, 5e-6), (10e-6, 5e-6), True),
        ((10e-6, 5e-6), (20e-6, 5e-6), False),
        ((20e-6, 5e-6), (10e-6, 30e-6), False),
    ],
)
def test_what_a_call_costs_the_host_counts(
    monkeypatch: pytest.MonkeyPatch,
    native: tuple[float, float],
    scheme: tuple[float, float],
    wins: bool,
) -> None:
    cupy = FakeGpu().install(monkeypatch)
    numpy = __import__("numpy")
    cupy.random = numpy.random
    assert measuring.by_clock(cupy, Samples(native, scheme))("int8x6", 8, 8, 8) is wins
