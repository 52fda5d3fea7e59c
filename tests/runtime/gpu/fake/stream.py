"""Streams and events of a device that does everything at once."""

from time import perf_counter
from typing import Any

from tests.runtime.gpu.fake.current import Current


class Here:
    """Stream.here: the current stream of the current device."""

    def __get__(self, _: object, kind: type["Stream"]) -> "Stream":
        return Current.streams.setdefault(Current.device, kind())


class Stream:
    """A stream of the current device, on which everything has happened already."""

    here = Here()

    def __init__(
        self, ptr: int = 0, number: int | None = None, *, non_blocking: bool = False
    ) -> None:
        self.ptr = ptr or id(self) * non_blocking
        self.number = Current.device if number is None else number
        self.capturing = False
        self.waits = 0
        self.waited: list[Stream] = []

    @classmethod
    def from_external(cls, other: Any) -> "Stream":
        """One of another library's; CuPy does not ask of which device it is."""
        version, ptr = other.__cuda_stream__()
        assert (version, type(ptr)) == (0, int)
        return cls(ptr)

    def __enter__(self) -> "Stream":
        if self.number != Current.device:
            raise RuntimeError("the stream is not of the current device")
        self.outer, Current.streams[self.number] = Stream.here, self
        return self

    def __exit__(self, *error: object) -> None:
        Current.streams[self.number] = self.outer

    def synchronize(self) -> None:
        assert not self.capturing
        self.waits += 1

    def is_capturing(self) -> bool:
        return self.capturing

    def record(self) -> "Stream":
        assert self.number == Current.device, "its event would be of another device"
        return self

    def wait_event(self, event: "Stream") -> None:
        self.waited.append(event)


class Event:
    """The moment at which it was recorded: everything before it has happened."""

    def record(self) -> None:
        self.at = perf_counter()


def get_elapsed_time(begin: Event, end: Event) -> float:
    """Milliseconds, as cupy.cuda's."""
    return 1000 * (end.at - begin.at)
