"""The state of each device between products: one record, made when it is first needed.

Caches of pure functions (kernels, tiles, launches) are not part of it.
"""

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class DeviceState:
    """The state of one device.

    refused: scheme → the error of a kernel that did not compile, and is not compiled again.
    has_wider: False once a kernel of a wider scheme did not compile; then outliers are repaired.
    streams, stagers: idle ones, for transfers. outlooks: see `speculation`, by shapes and types.
    """

    refused: dict[str, str] = field(default_factory=dict)
    has_wider: bool = True
    streams: list[Any] = field(default_factory=list)
    stagers: list[Any] = field(default_factory=list)
    outlooks: dict[Any, Any] = field(default_factory=dict)


_states: dict[int, DeviceState] = {}


def state_of(device: int) -> DeviceState:
    """The record of the device of that number."""
    found = _states.get(device)
    return _states.setdefault(device, DeviceState()) if found is None else found


def states() -> dict[int, DeviceState]:
    """The records of all devices that have been used, by their numbers."""
    return dict(_states)
