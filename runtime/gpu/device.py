"""Finds the GPU, and whether it can multiply: as late as possible, and once per process.

Also the state of each device between products, a record that is made when it is first needed.
Caches of pure functions (kernels, tiles, launches) are not part of it.
"""

import ctypes
import importlib.util
import os
import sys
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, NamedTuple

from mixpert_py.runtime.kernels import HOPPER, LEAST_CAPABILITY
from mixpert_py.runtime.reasons import Reason

NOT_INITIALIZED: Final = 3
OLD_DRIVER: Final = 35


class Device(NamedTuple):
    """A usable GPU. capability: major · 10 + minor."""

    id: int
    name: str
    capability: int

    @property
    def kernels(self) -> str:
        """The family of kernels that the GPU runs."""
        return "sm_90a" if self.capability == HOPPER else "portable"


class Absent(NamedTuple):
    """The reason why there is no usable GPU, with a sentence for people."""

    reason: Reason
    sentence: str


@cache
def may_be_here() -> bool:
    """Whether looking for a GPU may succeed. Imports nothing, and starts no driver."""
    if "cupy" not in sys.modules and importlib.util.find_spec("cupy") is None:
        return False
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    return True


def find(number: int | None = None) -> Device | Absent:
    """The GPU with this number, None for the current one, or the reason why it cannot be used.

    Imports CuPy if it is installed.
    """
    try:
        import cupy
    except ImportError as error:
        why = str(error).splitlines()[0] if str(error) else "no reason given"
        return Absent(Reason.NO_TENSOR_CORE, f"CuPy cannot be imported ({why})")
    runtime = cupy.cuda.runtime
    try:
        return _find(runtime, runtime.getDevice() if number is None else number)
    except runtime.CUDARuntimeError as error:
        return _refused(runtime, error)


def count() -> int:
    """The number of GPUs that this process sees; 0 if CuPy finds no driver."""
    import cupy

    try:
        return int(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError:
        return 0


@cache
def _find(runtime: Any, number: int) -> Device | Absent:
    try:
        if runtime.getDeviceCount() == 0:
            return Absent(Reason.NO_TENSOR_CORE, "there is no GPU")
        properties = runtime.getDeviceProperties(number)
    except runtime.CUDARuntimeError as error:
        return _refused(runtime, error)
    name = properties["name"].decode()
    capability = 10 * properties["major"] + properties["minor"]
    if capability < LEAST_CAPABILITY:
        return Absent(
            Reason.OLD_GPU,
            f"{name} has compute capability {capability / 10}; the kernels need "
            f"{LEAST_CAPABILITY / 10} or later",
        )
    return Device(number, name, capability)


if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    # A child asks anew: CUDA does not survive a fork.
    os.register_at_fork(after_in_child=_find.cache_clear)


def _refused(runtime: Any, error: Any) -> Absent:
    """The meaning of an error from the first call to CUDA."""
    if error.status == OLD_DRIVER:
        version = runtime.driverGetVersion()
        if version == 0:
            return Absent(Reason.NO_TENSOR_CORE, "there is no NVIDIA driver")
        made_for = cuda_version(runtime.runtimeGetVersion())
        return Absent(
            Reason.OLD_DRIVER,
            f"the driver is for CUDA {cuda_version(version)} and CuPy for {made_for}: update the "
            "driver, or install the CuPy of its version",
        )
    if error.status == NOT_INITIALIZED:
        return Absent(
            Reason.FORKED, "this process was forked after CUDA began; fork earlier, or use spawn"
        )
    return Absent(Reason.NO_TENSOR_CORE, str(error).splitlines()[0])


def cuda_version(number: int) -> str:
    """A version of CUDA: 13000 is 13.0."""
    return f"{number // 1000}.{number % 1000 // 10}"


@dataclass(slots=True)
class DeviceState:
    """The state of one device.

    refused: scheme → the error of a kernel that did not compile, and is not compiled again.
    has_wider: False once a kernel of a wider scheme did not compile; then outliers are repaired.
    streams, stagers: idle ones, for transfers. workspaces: idle ones, tensors that only the default
    stream uses. findings: idle ones, and outlooks, by signature: see `speculation`.
    """

    refused: dict[str, str] = field(default_factory=dict)
    has_wider: bool = True
    streams: list[Any] = field(default_factory=list)
    stagers: list[Any] = field(default_factory=list)
    workspaces: list[Any] = field(default_factory=list)
    findings: list[Any] = field(default_factory=list)
    outlooks: dict[Any, Any] = field(default_factory=dict)


_states: dict[int, DeviceState] = {}


def state_of(device: int) -> DeviceState:
    found = _states.get(device)
    return _states.setdefault(device, DeviceState()) if found is None else found


def states() -> dict[int, DeviceState]:
    return dict(_states)
