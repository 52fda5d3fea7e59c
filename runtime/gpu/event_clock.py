"""Measures times on a GPU with events: of calls, with a filled queue, and of spans of work."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from time import perf_counter
from types import ModuleType
from typing import Any, Protocol

Call = Callable[[], Any]

LEAD = 200e-6  # the device is kept busy that much longer than the host is thought to need
SAMPLE = 1e-3  # a sample takes at least this, so that an event's own cost does not show
MOST_CALLS = 64  # per sample: the driver's queue holds some 1,000 launches
WARM = 30e-3  # clocks rise, caches and kernels are loaded

SPIN = """
extern "C" __global__ void spin(unsigned long long nanoseconds) {
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  while (now - begin < nanoseconds);
}
"""


@dataclass(frozen=True, slots=True)
class Sample:
    """Seconds per call on the device, and on the host until the call returned.

    ahead: whether the device began only after the host was done, so that launches cost it nothing.
    """

    device: float
    host: float
    ahead: bool


class Clock(Protocol):
    """An EventClock, or any other object that times calls."""

    def sample(self, call: Call, calls: int, lead: float) -> Sample:
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

    def sample(self, call: Call, calls: int, lead: float) -> Sample:
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


def in_turn(clock: Clock, calls: Mapping[str, Call], rounds: int) -> dict[str, list[Sample]]:
    """One sample of each call per round, so that a slow device affects all calls alike."""
    plans = {name: _warm_up(clock, call) for name, call in calls.items()}
    samples: dict[str, list[Sample]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            repeat, lead = plans[name]
            samples[name].append(clock.sample(call, repeat, lead))
    return samples


def _warm_up(clock: Clock, call: Call) -> tuple[int, float]:
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


class Busy:
    """Spans of work on a stream."""

    def __init__(self, xp: ModuleType) -> None:
        self._xp = xp
        self._spans: list[tuple[Any, Any]] = []

    @contextmanager
    def span(self) -> Iterator[None]:
        """Context manager: all work enqueued inside on the current stream is one span."""
        begin, end = self._xp.cuda.Event(), self._xp.cuda.Event()
        begin.record()
        yield
        end.record()
        self._spans.append((begin, end))

    def seconds(self) -> float:
        """The total time of the spans. All must have ended."""
        elapsed = self._xp.cuda.get_elapsed_time
        return float(sum(elapsed(*span) for span in self._spans)) / 1000  # CUDA's are milliseconds


def noted(busy: Busy | None) -> AbstractContextManager[None]:
    """A span, if times are wanted."""
    return nullcontext() if busy is None else busy.span()
