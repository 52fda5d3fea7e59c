"""How long a whole program's work takes: on the device by events, and on the wall's clock."""

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds: between two events on the device, and until the host saw the second."""

    device: float
    wall: float


class Timer(Protocol):
    """What times one call; whatever the call raises, it raises."""

    def __call__(self, call: Callable[[], Any], /) -> tuple[Any, Times]: ...


class DeviceTimer:
    """The current device and stream, through CuPy. A call may wait for the device in between."""

    def __init__(self, cupy: Any) -> None:
        self._event = cupy.cuda.Event
        self._elapsed = cupy.cuda.get_elapsed_time
        self._stream = cupy.cuda.get_current_stream()

    def __call__(self, call: Callable[[], Any], /) -> tuple[Any, Times]:
        start, stop = self._event(), self._event()
        self._stream.synchronize()
        begin = perf_counter()
        start.record()
        value = call()
        stop.record()
        self._stream.synchronize()
        wall = perf_counter() - begin
        return value, Times(self._elapsed(start, stop) / 1e3, wall)


def on_host(call: Callable[[], Any], /) -> tuple[Any, Times]:
    """Of NumPy arrays there is one clock."""
    begin = perf_counter()
    value = call()
    wall = perf_counter() - begin
    return value, Times(wall, wall)
