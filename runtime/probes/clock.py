"""The clock of the multiprocessors: idle, at its highest, and under load."""

from time import perf_counter, sleep

from mixpert_py.runtime.probes.gpu import Found, Gpu, aligned, quantity
from mixpert_py.runtime.probes.instructions import Timer
from mixpert_py.runtime.probes.specs import largest_int8

REST = 0.5  # seconds without work until the clock is taken for idle
GLANCE = 200_000  # nanoseconds, too short for it to rise
RISE = 100_000_000
LOOK = 10_000_000
LOADED = 1.0  # seconds of INT8 products
PIECE = 20e-3  # of which one launch is so long


def clock(gpu: Gpu) -> Found:
    """Cycles against the nanoseconds of the chip's own timer."""
    watched(gpu, GLANCE)
    sleep(REST)
    idle = watched(gpu, GLANCE)
    watched(gpu, RISE)
    highest = watched(gpu, LOOK)
    loaded = _loaded(gpu)
    rows = [
        ("idle", quantity(idle, "Hz")),
        ("one thread", quantity(highest, "Hz")),
        ("a second of INT8 products", quantity(loaded, "Hz")),
    ]
    return Found(
        aligned(rows), {"chip": {"clock": highest, "clock_loaded": loaded}}, record={"idle": idle}
    )


def watched(gpu: Gpu, nanoseconds: int) -> float:
    """Hertz, while one thread waits so long."""
    out = gpu.words(2)
    gpu.run(gpu.kernel("waiting.cu", "watch"), 1, 1, out.data.ptr, nanoseconds)
    cycles, passed = map(float, out.get())
    return cycles / passed * 1e9


def _loaded(gpu: Gpu) -> float:
    """Hertz, at the end of a second in which all tensor cores multiply integers."""
    timer = Timer(gpu, largest_int8(gpu.device.capability))
    steps = timer.steps_of(PIECE)
    begin = perf_counter()
    while perf_counter() - begin < LOADED:
        last = timer.elapsed(*timer.full, steps)
    return last.cycles / last.seconds
