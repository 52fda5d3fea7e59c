"""Everything that is kept for a device between products: one record, made when it is first needed.

Caches of pure functions (kernels, tiles, launches) are not state: they stay beside their functions.
"""

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class DeviceState:
    """What products on one device leave for later ones.

    refused: scheme → the message of a kernel that did not compile; asking again would take as long.
    has_wider: whether kernels of a wider scheme compile, as far as is known; where they do not,
    rows that leave the slices are repaired. streams, stagers: those for transfers that nobody uses
    now. outlooks: of `speculation`, by shapes and types.
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
