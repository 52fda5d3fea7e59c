"""The time of an instruction alone and in a chain, the rate of a full chip, and its clock."""

from dataclasses import asdict, dataclass
from statistics import median
from time import perf_counter, sleep
from typing import NamedTuple

from mixpert_py.runtime.probes.gpu import REPEATS, Found, Gpu, aligned, quantity
from mixpert_py.runtime.probes.specs import Spec, largest_int8, specs

GROUP = 32  # instructions between two looks at a chain's loop, as in timing.cuh
STEPS = 64  # of a chain on its own
FULL_SECONDS = 4e-3  # of a full chip, so that what surrounds them does not show
REST = 0.5  # seconds without work until the clock is taken for idle
GLANCE = 200_000  # nanoseconds, too short for it to rise
RISE = 100_000_000
LOOK = 10_000_000
LOADED = 1.0  # seconds of INT8 products
PIECE = 20e-3  # of which one launch is so long


@dataclass(frozen=True, slots=True)
class Timed:
    """The fields of `device_model.Instruction`."""

    name: str
    latency: float
    chain: float
    interval: float
    rate: float


class Elapsed(NamedTuple):
    """The time of a typical block."""

    cycles: float
    seconds: float


class Timer:
    """The two kernels of timing.cuh around one instruction."""

    def __init__(self, gpu: Gpu, spec: Spec) -> None:
        self.gpu, self.spec = gpu, spec
        self.full = (gpu.multiprocessors, spec.threads)
        self._out = gpu.words(2 * gpu.multiprocessors)
        self._sink = gpu.words(gpu.multiprocessors * spec.threads)
        self._alone = gpu.kernel(spec.file, "alone", spec.constants, spec.shared)
        full = {**spec.constants, **spec.full}
        self._chain = gpu.kernel(spec.file, "chain", spec.constants, spec.shared)
        self._full = gpu.kernel(spec.file, "chain", full, spec.shared)

    def latency(self) -> float:
        """Cycles until the result of one can be used. Of REPEATS, as `cycles`."""
        words = (self._out.data.ptr, self._sink.data.ptr)
        both = []
        for _ in range(REPEATS):
            self.gpu.run(self._alone, 1, self.spec.group, *words, shared=self.spec.shared)
            both.append(self._out.get()[:2])
        with_one, without = map(min, zip(*both, strict=True))
        return float(with_one) - float(without)

    def launch(self, grid: int, threads: int, steps: int) -> None:
        """Chains of `steps` groups, on its own or of a full chip; does not wait."""
        words = (self._out.data.ptr, self._sink.data.ptr, steps)
        kernel = self._chain if threads == self.spec.group else self._full
        self.gpu.run(kernel, grid, threads, *words, shared=self.spec.shared)

    def elapsed(self, grid: int, threads: int, steps: int) -> Elapsed:
        """The time that such chains took."""
        self.launch(grid, threads, steps)
        times = self._out.get()[: 2 * grid].reshape(grid, 2)
        return Elapsed(float(median(times[:, 0])), float(median(times[:, 1])) * 1e-9)

    def cycles(self, grid: int, threads: int, steps: int) -> float:
        """The fewest that such chains took of REPEATS times: other processes only add to them."""
        return min(self.elapsed(grid, threads, steps).cycles for _ in range(REPEATS))

    def steps_of(self, seconds: float) -> int:
        """Groups that keep a full chip busy so long."""
        self.elapsed(*self.full, STEPS)  # loads the code
        return max(STEPS, int(STEPS * seconds / self.elapsed(*self.full, STEPS).seconds))


def instructions(gpu: Gpu) -> Found:
    """Times all instructions that the device has, and finds the best rate of each element type."""
    rates: dict[str, float] = {}
    rows = []
    for spec in specs(gpu.device.capability):
        rows.append(timed(gpu, spec))
        rates[spec.element] = max(rates.get(spec.element, 0.0), rows[-1].rate)
    tables = {"rates": rates, "instruction": [asdict(row) for row in rows]}
    return Found(_text(rows), tables)


def timed(gpu: Gpu, spec: Spec) -> Timed:
    """Time an instruction on a device."""
    timer = Timer(gpu, spec)
    timer.elapsed(1, spec.group, 1)  # loads the code
    chain = timer.cycles(1, spec.group, STEPS) / (STEPS * GROUP)
    steps = timer.steps_of(FULL_SECONDS)
    on_one = steps * GROUP * (spec.threads // spec.group)  # instructions on a multiprocessor
    seconds = gpu.seconds(lambda: timer.launch(*timer.full, steps))
    return Timed(
        name=spec.name,
        latency=timer.latency(),
        chain=chain,
        interval=timer.cycles(*timer.full, steps) / on_one,
        rate=spec.operations * on_one * gpu.multiprocessors / seconds,
    )


def _text(rows: list[Timed]) -> str:
    cells = [
        (
            row.name,
            f"{row.latency:.0f}",
            f"{row.chain:.1f}",
            f"{row.interval:.2f}",
            quantity(row.rate, "op/s"),
        )
        for row in rows
    ]
    return aligned([("", "alone, cycles", "in a chain", "on a full SM", "full chip"), *cells])


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
