"""The sizes of the device's resources, as CUDA reports them."""

import ctypes
import sys

from mixpert_py.runtime.probes.gpu import L2_SIZE, Found, Gpu, aligned, quantity

# cudaDeviceAttr
SHARED_PER_MULTIPROCESSOR = 81
REGISTERS_PER_MULTIPROCESSOR = 82
SHARED_PER_BLOCK = 97  # that a kernel can ask for
PER_THREAD = 255  # registers: CUDA has no attribute for what instructions can name
VERSION_BYTES = 80  # NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE


def resources(gpu: Gpu) -> Found:
    """Sizes of the chip, and the versions of driver and CUDA."""
    runtime = gpu.cupy.cuda.runtime

    tables = {
        "device": gpu.device.name,
        "capability": gpu.device.capability,
        "driver": driver_version(),
        "cuda": version(runtime.runtimeGetVersion()),
        "chip": {"multiprocessors": gpu.multiprocessors, "memory": runtime.memGetInfo()[1]},
        "registers": {
            "per_multiprocessor": gpu.attribute(REGISTERS_PER_MULTIPROCESSOR),
            "per_thread": PER_THREAD,
        },
        "shared": {
            "per_multiprocessor": gpu.attribute(SHARED_PER_MULTIPROCESSOR),
            "per_block": gpu.attribute(SHARED_PER_BLOCK),
        },
        "l2": {"size": gpu.attribute(L2_SIZE)},
    }
    rows = [
        ("multiprocessors", f"{gpu.multiprocessors}"),
        ("registers of one", f"{gpu.attribute(REGISTERS_PER_MULTIPROCESSOR)}"),
        ("shared memory of one", f"{gpu.attribute(SHARED_PER_MULTIPROCESSOR)} bytes"),
        ("shared memory of a block", f"{gpu.attribute(SHARED_PER_BLOCK)} bytes"),
        ("L2 cache", quantity(gpu.attribute(L2_SIZE), "B")),
        ("memory", quantity(runtime.memGetInfo()[1], "B")),
    ]
    return Found(aligned(rows), tables)


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
