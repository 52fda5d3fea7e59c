"""When a device was computing, by events on its streams."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any


class Busy:
    """Spans of work, each on one stream, that may overlap with those on others."""

    def __init__(self, xp: Any) -> None:
        self._xp = xp
        self._spans: list[tuple[Any, Any]] = []

    @contextmanager
    def span(self) -> Iterator[None]:
        """What is enqueued inside, on the current stream, is one span."""
        begin, end = self._xp.cuda.Event(), self._xp.cuda.Event()
        begin.record()
        yield
        end.record()
        self._spans.append((begin, end))

    def seconds(self) -> float:
        """The time that was within any span. All of them have to be over."""
        if not self._spans:
            return 0.0
        elapsed, origin = self._xp.cuda.get_elapsed_time, self._spans[0][0]
        times = sorted((elapsed(origin, begin), elapsed(origin, end)) for begin, end in self._spans)
        total, until = 0.0, times[0][0]  # which may be before the origin, on another stream
        for begin, end in times:
            total += max(end - max(begin, until), 0.0)
            until = max(until, end)
        return total / 1000  # CUDA's are milliseconds


def noted(busy: Busy | None) -> AbstractContextManager[None]:
    """A span, where anybody asks for them."""
    return nullcontext() if busy is None else busy.span()
