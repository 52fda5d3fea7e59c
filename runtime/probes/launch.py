"""What a launch costs: the device between two kernels, and the host."""

from statistics import median
from time import perf_counter

from mixpert_py.runtime.probes.gpu import REPEATS, Found, Gpu
from mixpert_py.runtime.probes.text import aligned, quantity

COUNT = 500  # launches in a row; the driver's queue holds some 1,000
LEAD = 20_000_000  # nanoseconds that the device is kept busy while they are enqueued


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
