"""Streams that do everything as late as they may, or at once, whatever others do."""

from collections.abc import Callable
from typing import Any

from tests.runtime.gpu.fake.stream import Stream


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
