"""How long a device was computing, by events on its stream."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any


class Busy:
    """Spans of work on one stream."""

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
        """The time that was within them. All have to be over."""
        elapsed = self._xp.cuda.get_elapsed_time
        return float(sum(elapsed(*span) for span in self._spans)) / 1000  # CUDA's are milliseconds


def noted(busy: Busy | None) -> AbstractContextManager[None]:
    """A span, where anybody asks for them."""
    return nullcontext() if busy is None else busy.span()
