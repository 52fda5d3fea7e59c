"""Shared memory, the L2 cache and DRAM: bandwidth and latency."""

from typing import Any

from mixpert_py.runtime.probes.gpu import L2_SIZE, Found, Gpu, aligned, quantity

FILE = "memory.cu"
THREADS = 1024
VECTOR = 16  # bytes that a thread loads at once
TOGETHER = 8  # vectors that a thread loads at a time
CHUNK = THREADS * VECTOR * TOGETHER  # bytes that a block reads at a time
BLOCKS = 2  # of a multiprocessor, so that enough loads are under way
DEVICE_TO_DEVICE = 3  # cudaMemcpyKind

SHARED_STEPS = 4096
CACHED = 1 / 4  # of the L2 cache: what a chip of two halves can hold in each of them
L2_BYTES = 1 << 35  # read in all
READ_BYTES = 1 << 32  # of DRAM, so that what the cache still holds does not show
CHASED_BYTES = 1 << 30
L2_PLACES, L2_STRIDE = 1 << 14, 128
DRAM_STRIDE = 512
STEPS = 1 << 14


def memory(gpu: Gpu) -> Found:
    """Reads by all threads of the chip, and one thread that follows addresses."""
    shared = {"bandwidth": _shared_bandwidth(gpu), "latency": _shared_latency(gpu)}
    cycles, _ = _latency(gpu, L2_PLACES, L2_STRIDE, warm=L2_PLACES)
    l2 = {"bandwidth": _l2_bandwidth(gpu), "latency": cycles}
    free = gpu.cupy.cuda.runtime.memGetInfo()[0]
    read = min(READ_BYTES, free // 4)
    places = 1 << (min(CHASED_BYTES, free // 4) // DRAM_STRIDE).bit_length() - 1
    _, seconds = _latency(gpu, places, DRAM_STRIDE, warm=0)
    dram = {
        "bandwidth": _dram_bandwidth(gpu, read),
        "copy": _copy(gpu, read),
        "latency": seconds,
    }
    gpu.cupy.get_default_memory_pool().free_all_blocks()
    rows = [
        ("", "bandwidth", "latency"),
        (
            "shared memory",
            f"{shared['bandwidth']:.1f} bytes a cycle",
            f"{shared['latency']:.0f} cycles",
        ),
        ("L2 cache", quantity(l2["bandwidth"], "B/s"), f"{l2['latency']:.0f} cycles"),
        ("DRAM", quantity(dram["bandwidth"], "B/s"), quantity(dram["latency"], "s")),
        ("a copy in DRAM", quantity(dram["copy"], "B/s"), ""),
    ]
    return Found(aligned(rows), {"shared": shared, "l2": l2, "dram": dram})


def _shared_bandwidth(gpu: Gpu) -> float:
    """Bytes that one multiprocessor reads in a cycle."""
    kernel = gpu.kernel(FILE, "read_shared")
    out, sink = gpu.words(gpu.multiprocessors), gpu.words(gpu.multiprocessors * THREADS)
    for _ in range(2):  # the first loads the code
        gpu.run(kernel, gpu.multiprocessors, THREADS, out.data.ptr, sink.data.ptr, SHARED_STEPS)
    cycles = float(sorted(out.get())[gpu.multiprocessors // 2])
    return CHUNK * SHARED_STEPS / cycles


def _shared_latency(gpu: Gpu) -> float:
    kernel, out = gpu.kernel(FILE, "chase_shared"), gpu.words(2)
    for _ in range(2):
        gpu.run(kernel, 1, 32, out.data.ptr, STEPS)
    return float(out.get()[0]) / STEPS


def _l2_bandwidth(gpu: Gpu) -> float:
    """Bytes/s that all multiprocessors read together, of memory that the cache holds."""
    chunks = max(1, int(gpu.attribute(L2_SIZE) * CACHED) // CHUNK)
    blocks = BLOCKS * gpu.multiprocessors
    return _bandwidth(gpu, chunks, 1, rounds=L2_BYTES // (blocks * CHUNK))


def _dram_bandwidth(gpu: Gpu, size: int) -> float:
    """Bytes/s of reading so many bytes once."""
    blocks = BLOCKS * gpu.multiprocessors
    return _bandwidth(gpu, blocks, max(1, size // (blocks * CHUNK)), rounds=1)


def _bandwidth(gpu: Gpu, chunks: int, spans: int, rounds: int) -> float:
    kernel = gpu.kernel(FILE, "read_global")
    blocks = BLOCKS * gpu.multiprocessors
    memory, sink = _filled(gpu, chunks * spans * CHUNK), gpu.words(blocks * THREADS)
    counts = (chunks, spans, rounds)
    seconds = gpu.seconds(
        lambda: gpu.run(kernel, blocks, THREADS, memory.data.ptr, sink.data.ptr, *counts)
    )
    return blocks * CHUNK * spans * rounds / seconds


def _latency(gpu: Gpu, places: int, stride: int, warm: int) -> tuple[float, float]:
    """Cycles and seconds of a load of one of the places, which lie `stride` bytes apart."""
    memory, out = _linked(gpu, places, stride), gpu.words(3)
    if not warm:  # what was linked last is in the cache still
        gpu.words(READ_BYTES // 64)
    kernel, steps = gpu.kernel(FILE, "chase"), min(STEPS, places)
    gpu.run(kernel, 1, 1, out.data.ptr, memory.data.ptr, warm, steps)
    cycles, nanoseconds, _ = out.get()
    return float(cycles) / steps, float(nanoseconds) / steps * 1e-9


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
    """Memory full of addresses: zeros would take less power."""
    return _linked(gpu, size // 8, 8)


def _linked(gpu: Gpu, places: int, stride: int) -> Any:
    memory = gpu.words(places * stride // 8)
    gpu.run(gpu.kernel(FILE, "link"), -(-places // 256), 256, memory.data.ptr, places, stride)
    return memory
