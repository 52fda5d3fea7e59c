"""Probes: programs that find out how a GPU works and how fast it is, in the order of their runs.

The device model is made from their findings. Two are here: `resources`, which finds the chip's
size and clock, and `memory`, which finds the bandwidth of its memory.
"""

import ctypes
import datetime
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from mixpert_py.errors import DeviceError
from mixpert_py.runtime.model.device_model import FORMAT, DeviceModel, dumps, loads, model_of
from mixpert_py.runtime.probes import products
from mixpert_py.runtime.probes.gpu import Gpu, Tables

SHARED_PER_BLOCK = 97  # cudaDeviceAttr, of what a kernel can ask for
# Nanoseconds of a busy thread: until the clock has risen, and in which it is read.
RISE, LOOK = 100_000_000, 10_000_000
VERSION_BYTES = 80  # NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE
FILE = "memory.cu"
THREADS = 1024
VECTOR = 16  # bytes that a thread loads at once
TOGETHER = 8  # vectors that a thread loads at a time
CHUNK = THREADS * VECTOR * TOGETHER  # bytes that a block reads at a time
BLOCKS = 2  # of a multiprocessor, so that enough loads are under way
DEVICE_TO_DEVICE = 3  # cudaMemcpyKind
READ_BYTES = 1 << 32  # of DRAM, so that what the cache still holds does not show


def resources(gpu: Gpu) -> Tables:
    """The size of the chip, its highest clock, and the versions of driver and CUDA."""
    return {
        "device": gpu.device.name,
        "capability": gpu.device.capability,
        "driver": driver_version(),
        "cuda": version(gpu.cupy.cuda.runtime.runtimeGetVersion()),
        "chip": {"multiprocessors": gpu.multiprocessors, "clock": highest_clock(gpu)},
        "shared": {"per_block": gpu.attribute(SHARED_PER_BLOCK)},
    }


def highest_clock(gpu: Gpu) -> float:
    """Cycles a second of one busy thread, by the nanoseconds of the chip's own timer."""
    out, watch = gpu.words(2), gpu.kernel(FILE, "watch")
    for nanoseconds in (RISE, LOOK):
        gpu.run(watch, 1, 1, out.data.ptr, nanoseconds)
    cycles, passed = map(float, out.get())
    return cycles / passed * 1e9


def version(number: int) -> str:
    """A version of CUDA: 13000 is 13.0."""
    return f"{number // 1000}.{number % 1000 // 10}"


def driver_version() -> str:
    """The driver's own version, from its management library; empty where there is none."""
    try:
        library = ctypes.CDLL("nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1")
    except OSError:
        return ""
    buffer = ctypes.create_string_buffer(VERSION_BYTES)
    if library.nvmlInit_v2() or library.nvmlSystemGetDriverVersion(buffer, VERSION_BYTES):
        return ""
    return buffer.value.decode()


def memory(gpu: Gpu) -> Tables:
    """The bandwidth of the device's memory: of reads by all threads, and of copies."""
    size = min(READ_BYTES, gpu.cupy.cuda.runtime.memGetInfo()[0] // 4)
    dram = {"bandwidth": _read(gpu, size), "copy": _copy(gpu, size)}
    gpu.cupy.get_default_memory_pool().free_all_blocks()
    return {"dram": dram}


def _read(gpu: Gpu, size: int) -> float:
    """Bytes/s of reading so many bytes once."""
    kernel, blocks = gpu.kernel(FILE, "read"), BLOCKS * gpu.multiprocessors
    spans = max(1, size // (blocks * CHUNK))
    memory, sink = _filled(gpu, blocks * spans * CHUNK), gpu.words(blocks * THREADS)
    words = memory.data.ptr, sink.data.ptr, spans
    return blocks * CHUNK * spans / gpu.seconds(lambda: gpu.run(kernel, blocks, THREADS, *words))


def _copy(gpu: Gpu, size: int) -> float:
    """Bytes/s read and written together."""
    half = size // 2
    source, target = _filled(gpu, half), gpu.words(half // 8)
    copy = gpu.cupy.cuda.runtime.memcpyAsync
    stream = gpu.cupy.cuda.get_current_stream().ptr
    seconds = gpu.seconds(
        lambda: copy(target.data.ptr, source.data.ptr, half, DEVICE_TO_DEVICE, stream)
    )
    return 2 * half / seconds


def _filled(gpu: Gpu, size: int) -> Any:
    """Memory full of its own addresses: zeros would take less power."""
    memory = gpu.words(size // 8)
    gpu.run(gpu.kernel(FILE, "fill"), -(-size // 2048), 256, memory.data.ptr, size // 8)
    return memory


Probe = Callable[[Gpu], Tables]

PROBES: Final[Mapping[str, Probe]] = {
    "resources": resources,
    "memory": memory,
    "transfer": products.transfer,
    "products": products.products,
}


def measured_model(found: Iterable[Tables], today: datetime.date) -> DeviceModel:
    """A measured model from what all probes found; how the device's instructions add up is taken
    from a known model of the same compute capability.

    Raises DeviceError where that does not make a whole model.
    """
    tables: dict[str, Any] = {"format": FORMAT, "date": today, "origin": "measured"}
    for one in found:
        for key, value in one.items():
            old = tables.get(key)
            tables[key] = {**old, **value} if isinstance(old, dict) else value
    known = model_of(tables.get("device", ""))
    if known.capability == tables.get("capability"):
        tables["accumulation"] = msgspec.to_builtins(known.accumulation)
    try:
        return loads(dumps(msgspec.convert(tables, DeviceModel)), "what was probed")
    except msgspec.ValidationError as error:
        raise DeviceError(f"what was probed makes no device model: {error}") from None
