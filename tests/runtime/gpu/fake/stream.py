"""The current device, streams and events of a fake GPU, and its errors.

A stream does everything at once; a late one does it as late as it may, whatever others do.
"""

from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from tests.runtime.gpu.fake.gpu import FakeGpu


class Current:
    """What CUDA and CuPy keep of a thread: each device has a current stream of its own."""

    device = 0
    streams: ClassVar[dict[int, Any]] = {}


class on_device:  # noqa: N801, it is a verb
    """cupy.cuda.Device."""

    def __init__(self, number: int) -> None:
        self.number = number

    def use(self) -> None:
        Current.device = self.number

    def __enter__(self) -> None:
        self.before = Current.device
        self.use()

    def __exit__(self, *error: object) -> None:
        Current.device = self.before


class OutOfMemoryError(MemoryError):
    """As cupy.cuda.memory's, which cannot be made without sizes."""

    def __init__(self, size: int, total: int) -> None:
        super().__init__(
            f"Out of memory allocating {size} bytes (allocated so far: {total} bytes)."
        )


class CUDARuntimeError(RuntimeError):
    """As cupy.cuda.runtime's."""

    def __init__(self, status: int, message: str = "CUDA said no") -> None:
        super().__init__(message)
        self.status = status


class CUDADriverError(RuntimeError):
    """As cupy.cuda.driver's."""

    def __init__(self, status: int, message: str = "CUDA said no") -> None:
        super().__init__(message)
        self.status = status


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

    ptr = 0

    def __init__(self, disable_timing: bool = False) -> None: ...

    def record(self, stream: Any = None) -> None:
        self.at = perf_counter()

    def synchronize(self) -> None: ...


def get_elapsed_time(begin: Event, end: Event) -> float:
    return 1000 * (end.at - begin.at)


class LateStream(Stream):
    """What nobody waits for does not happen; unless the stream hurries."""

    def __init__(self, non_blocking: bool, hurries: bool = False) -> None:
        super().__init__(non_blocking=non_blocking)
        self.hurries = hurries
        self.steps: list[Callable[[], Any]] = []
        self.done = 0

    def do(self, step: Callable[[], Any]) -> None:
        self.steps.append(step)
        if self.hurries:
            self.synchronize()

    def record(self) -> Any:
        return LateEvent(self, len(self.steps))

    def wait_event(self, event: Any) -> None:
        self.do(event.synchronize)

    def synchronize(self) -> None:
        self.record().synchronize()


class LateEvent:
    """The moment after the first steps of a stream."""

    def __init__(self, stream: LateStream, count: int) -> None:
        self.stream, self.count = stream, count

    def synchronize(self) -> None:
        while self.stream.done < self.count:
            self.stream.done += 1
            with self.stream:
                self.stream.steps[self.stream.done - 1]()


class Memory:
    def __init__(self, account: "FakeGpu", size: int) -> None:
        self.account, self.size = account, size
        account.held += size
        account.peak = max(account.peak, account.held)

    def __del__(self) -> None:
        self.account.held -= self.size
