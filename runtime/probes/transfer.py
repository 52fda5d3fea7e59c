"""The cost of launches and transfers between host and device, and of the host's own product."""

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from mixpert_py.errors import DeviceError
from mixpert_py.runtime import processor
from mixpert_py.runtime.gpu import transfer as moving
from mixpert_py.runtime.probes.gpu import REPEATS, Found, Gpu, aligned, quantity
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.request import Request

COUNT = 500  # launches in a row; the driver's queue holds some 1,000
LEAD = 20_000_000  # nanoseconds that the device is kept busy while they are enqueued
PINNED = 1 << 28  # bytes
MOVED = 4096  # edge of the NumPy arrays that are moved
HOSTS = 2048  # edge of those that the host multiplies
TO_DEVICE, TO_HOST = 1, 2  # cudaMemcpyKind


def launch(gpu: Gpu) -> Found:
    """Empty kernels of one block in one stream, each waiting for the one before."""
    empty, watch = gpu.kernel("waiting.cu", "empty"), gpu.kernel("waiting.cu", "watch")
    out = gpu.words(2)
    gpu.run(empty, 1, 32)
    device, host = [], []
    for _ in range(REPEATS):
        start, stop = gpu.cupy.cuda.Event(), gpu.cupy.cuda.Event()
        gpu.run(watch, 1, 1, out.data.ptr, LEAD)
        start.record()
        begin = perf_counter()
        for _ in range(COUNT):
            gpu.run(empty, 1, 32)
        host.append((perf_counter() - begin) / COUNT)
        stop.record()
        stop.synchronize()
        device.append(gpu.cupy.cuda.get_elapsed_time(start, stop) / 1e3 / COUNT)
    table = {"device": min(device), "host": median(host)}
    rows = [
        ("from one kernel to the next", quantity(table["device"], "s")),
        ("a launch, on the host", quantity(table["host"], "s")),
    ]
    return Found(aligned(rows), {"launch": table})


def transfer(gpu: Gpu) -> Found:
    """Pinned memory each way, NumPy arrays there and back, and NumPy's own product."""
    there, back = _pinned(gpu)
    table = {"to_device": there, "to_host": back, "staged": staged()}
    host = host_rate()
    rows = [
        ("pinned, to the device", quantity(there, "B/s")),
        ("pinned, to the host", quantity(back, "B/s")),
        ("NumPy arrays, there and back", quantity(table["staged"], "B/s")),
        ("NumPy's float32 product", quantity(host, "op/s")),
    ]
    on_host = {"float32": host, "cores": processor.cores()}
    return Found(aligned(rows), {"transfer": table, "host": on_host})


def staged() -> float:
    """Bytes per second of a product of NumPy arrays that is mostly their way there and back, to
    pages that the result has to take. Raises DeviceError where the device does not make it.
    """
    # Two arrays: one and the same would be moved once.
    a, b = np.random.default_rng(0).standard_normal((2, MOVED, MOVED), np.float32)
    held = []  # else the next product had its memory

    def product() -> None:
        made = moving.multiply(Request(a, b, "int8x1"))
        if isinstance(made, Reason):
            raise DeviceError(f"it makes no product of NumPy arrays: {made.value}")
        held.append(made.value)

    return float(3 * a.nbytes / _seconds(product))


def host_rate() -> float:
    """Operations per second of a float32 product of NumPy arrays."""
    a = np.random.default_rng(0).standard_normal((HOSTS, HOSTS), np.float32)
    return 2 * HOSTS**3 / _seconds(lambda: np.matmul(a, a))


def _pinned(gpu: Gpu) -> tuple[float, float]:
    """Bytes per second to the device and from it."""
    pinned = gpu.cupy.cuda.alloc_pinned_memory(PINNED)
    np.frombuffer(pinned, np.uint8, PINNED)[:] = 1  # takes the pages
    memory = gpu.words(PINNED // 8)
    stream = gpu.cupy.cuda.get_current_stream().ptr
    copy = gpu.cupy.cuda.runtime.memcpyAsync
    here, there = pinned.ptr, memory.data.ptr
    to_device = gpu.seconds(lambda: copy(there, here, PINNED, TO_DEVICE, stream))
    to_host = gpu.seconds(lambda: copy(here, there, PINNED, TO_HOST, stream))
    return PINNED / to_device, PINNED / to_host


def _seconds(call: Callable[[], Any]) -> float:
    """The median time of a call in seconds, after one that is not timed."""
    call()
    times = []
    for _ in range(5):
        start = perf_counter()
        call()
        times.append(perf_counter() - start)
    return median(times)
