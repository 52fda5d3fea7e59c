"""The current device, and the current stream of each."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar


class Current:
    """What CUDA and CuPy keep of a thread: each device has a current stream of its own."""

    device = 0
    streams: ClassVar[dict[int, Any]] = {}


@contextmanager
def on_device(number: int) -> Iterator[None]:
    """cupy.cuda.Device as a context."""
    before, Current.device = Current.device, number
    try:
        yield
    finally:
        Current.device = before
