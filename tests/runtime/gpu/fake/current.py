"""The current device, and the current stream of each."""

from typing import Any, ClassVar


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
