"""CuPy's names over NumPy: those that the runtime and `stress` use, and no others."""

from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.runtime.gpu.fake.array import ndarray, wrapped
from tests.runtime.gpu.fake.stream import (
    CUDADriverError,
    CUDARuntimeError,
    Current,
    Event,
    OutOfMemoryError,
    Stream,
    get_elapsed_time,
    on_device,
)

if TYPE_CHECKING:
    from tests.runtime.gpu.fake.gpu import FakeGpu

SAME = (
    "abs",
    "arange",
    "ascontiguousarray",
    "broadcast_to",
    "concatenate",
    "dot",
    "einsum",
    "isfinite",
    "matmul",
    "result_type",
    "take",
    "where",
    "zeros",
)


class Names(SimpleNamespace):
    """A module's names; hashable, as modules are."""

    __hash__ = object.__hash__


def cupy_of(gpu: "FakeGpu") -> Any:
    cupy: Any = ModuleType("cupy")
    cupy.__spec__ = SimpleNamespace(name="cupy")
    cupy.ndarray = ndarray
    for name in SAME:
        setattr(cupy, name, wrapped(getattr(np, name)))
    cupy.empty = gpu.empty
    cupy.asarray = gpu.asarray
    cupy.may_share_memory = lambda a, b: np.may_share_memory(a.x, b.x)
    cupy.get_default_memory_pool = lambda: SimpleNamespace(free_all_blocks=gpu.free_all_blocks)
    cupy.from_dlpack = lambda x: x.lend()
    cupy.cuda = _cuda(gpu)
    cupy._core = SimpleNamespace(
        _routines_linalg=SimpleNamespace(
            COMPUTE_TYPE_TF32=7, get_compute_type=lambda code: 7 if gpu.lowered else 1
        )
    )
    return cupy


def _cuda(gpu: "FakeGpu") -> Any:
    def counted() -> int:
        if gpu.error is not None:
            raise gpu.error
        return gpu.count

    def current() -> int:
        if gpu.error is not None:
            raise gpu.error
        return Current.device

    return SimpleNamespace(
        runtime=Names(
            CUDARuntimeError=CUDARuntimeError,
            getDeviceCount=counted,
            getDevice=current,
            getDeviceProperties=lambda number: {
                "name": gpu.name.encode(),
                "major": gpu.capability[0],
                "minor": gpu.capability[1],
            },
            driverGetVersion=lambda: gpu.driver,
            runtimeGetVersion=lambda: 13010,
            streamIsCapturing=lambda ptr: Stream.here.capturing,
            eventRecord=lambda ptr, stream: None,
            hostRegister=gpu.lock,
            hostUnregister=gpu.unlock,
        ),
        driver=SimpleNamespace(CUDADriverError=CUDADriverError),
        memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
        get_current_stream=lambda: Stream.here,
        Stream=Stream,
        Event=Event,
        get_elapsed_time=get_elapsed_time,
        Device=on_device,
        alloc_pinned_memory=lambda size: np.empty(size, np.uint8),
    )
