"""The GPU that probes run on, the size and speed of its chip, and times of calls.

Times are measured with events: of calls, with a filled queue.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter
from types import ModuleType
from typing import Any, Protocol, Self

from mixpert_py.errors import DeviceError
from mixpert_py.runtime.gpu.device import Absent, Device, cuda_version, find

CLOCK, MULTIPROCESSORS, SHARED_PER_BLOCK = 13, 16, 97  # cudaDeviceAttr
DEVICE_TO_DEVICE = 3  # cudaMemcpyKind
READ_BYTES = 1 << 32  # of DRAM, so that what the cache still holds does not show
LEAD = 200e-6  # the device is kept busy that much longer than the host is thought to need
SAMPLE = 1e-3  # seconds; a sample takes at least this, so that an event's own cost does not show
MOST_CALLS = 64  # per sample: the driver's queue holds some 1,000 launches
WARM = 30e-3  # clocks rise, caches and kernels are loaded
REPEATS = 5  # of what is timed; the least counts, since whatever else runs only adds to it

SPIN = """
extern "C" __global__ void spin(unsigned long long nanoseconds) {
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  while (now - begin < nanoseconds);
}
"""

TimedCall = Callable[[], Any]
Tables = Mapping[str, Any]  # a part of the device model, which a probe finds


@dataclass(frozen=True, slots=True)
class Gpu:
    """The current device, through CuPy."""

    cupy: ModuleType
    device: Device

    @classmethod
    def current(cls) -> Self:
        """Raises DeviceError where there is none that can be used."""
        found = find()
        if isinstance(found, Absent):
            raise DeviceError(f"nothing to probe: {found.sentence}")
        import cupy

        return cls(cupy, found)

    def attribute(self, number: int) -> int:
        """The attribute of the device that has this number in cudaDeviceAttr."""
        return int(self.cupy.cuda.runtime.deviceGetAttribute(number, self.device.id))

    @property
    def multiprocessors(self) -> int:
        return self.attribute(MULTIPROCESSORS)

    def seconds(self, call: Callable[[], Any]) -> float:
        """The time of a call on the device: the least of several, after one that is not timed."""
        call()
        times: list[float] = []
        for _ in range(REPEATS):
            start, stop = self.cupy.cuda.Event(), self.cupy.cuda.Event()
            start.record()
            call()
            stop.record()
            stop.synchronize()
            times.append(self.cupy.cuda.get_elapsed_time(start, stop) / 1e3)
        return min(times)


def resources(gpu: Gpu) -> Tables:
    """The size of the chip, its highest clock, and the versions of CUDA: the driver's, and ours."""
    runtime = gpu.cupy.cuda.runtime
    clock = 1e3 * gpu.attribute(CLOCK)
    return {
        "device": gpu.device.name,
        "capability": gpu.device.capability,
        "driver": cuda_version(runtime.driverGetVersion()),
        "cuda": cuda_version(runtime.runtimeGetVersion()),
        "chip": {"multiprocessors": gpu.multiprocessors, "clock": clock},
        "shared": {"per_block": gpu.attribute(SHARED_PER_BLOCK)},
    }


def memory(gpu: Gpu) -> Tables:
    """The bandwidth of the device's memory: of a sum of all that is read, and of copies."""
    size = min(READ_BYTES, gpu.cupy.cuda.runtime.memGetInfo()[0] // 4)
    words = gpu.cupy.arange(size // 4, dtype="float32")  # zeros would take less power
    half, stream = size // 2, gpu.cupy.cuda.get_current_stream().ptr
    copy = gpu.cupy.cuda.runtime.memcpyAsync
    ends = words.data.ptr, words.data.ptr + half
    read = size / gpu.seconds(words.sum)
    copied = 2 * half / gpu.seconds(lambda: copy(*ends, half, DEVICE_TO_DEVICE, stream))
    del words
    gpu.cupy.get_default_memory_pool().free_all_blocks()
    return {"dram": {"bandwidth": read, "copy": copied}}


@dataclass(frozen=True, slots=True)
class Sample:
    """Seconds per call on the device, and on the host until the call returned.

    ahead: whether the device began only after the host was done, so that launches cost it nothing.
    """

    device: float
    host: float
    ahead: bool


class SampleClock(Protocol):
    """An EventClock, or any other object that times calls."""

    def sample(self, call: TimedCall, calls: int, lead: float) -> Sample:
        """Time `calls` calls in a row, which the device begins `lead` seconds after the first
        request.
        """


class EventClock:
    """A clock for CuPy's current device and stream."""

    def __init__(self, cupy: Any) -> None:
        self._event = cupy.cuda.Event
        self._elapsed = cupy.cuda.get_elapsed_time
        self._spin = cupy.RawKernel(SPIN, "spin")
        self._nanoseconds = cupy.uint64

    def sample(self, call: TimedCall, calls: int, lead: float) -> Sample:
        start, stop = self._event(), self._event()
        self._spin((1,), (1,), (self._nanoseconds(1e9 * lead),))
        start.record()
        begin = perf_counter()
        for _ in range(calls):
            call()
        stop.record()
        host = perf_counter() - begin
        ahead = not start.done
        stop.synchronize()
        return Sample(self._elapsed(start, stop) / 1e3 / calls, host / calls, ahead)


def in_turn(
    clock: SampleClock, calls: Mapping[str, TimedCall], rounds: int
) -> dict[str, list[Sample]]:
    """One sample of each call per round, so that a slow device affects all calls alike."""
    plans = {name: _warm_up(clock, call) for name, call in calls.items()}
    samples: dict[str, list[Sample]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            repeat, lead = plans[name]
            samples[name].append(clock.sample(call, repeat, lead))
    return samples


def _warm_up(clock: SampleClock, call: TimedCall) -> tuple[int, float]:
    """The number of calls per sample, and the lead that the host needs for them."""
    clock.sample(call, 1, LEAD)  # compiles
    last = clock.sample(call, 1, LEAD)
    for _ in range(3):
        last = clock.sample(call, repeat := _calls(WARM, last), _lead(repeat, last))
    repeat = _calls(SAMPLE, last)
    return repeat, _lead(repeat, last)


def _calls(seconds: float, last: Sample) -> int:
    """The number of calls that take this long, within limits."""
    return min(MOST_CALLS, max(1, math.ceil(seconds / max(last.device, 1e-9))))


def _lead(repeat: int, last: Sample) -> float:
    return LEAD + 2 * repeat * last.host
