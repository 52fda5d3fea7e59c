"""The cost of products on this GPU: each kernel by its tile, packing, and the vendor's library;
and of products of NumPy arrays.

Few shapes are timed. The times of a kernel are a line in the waves of its tiles, each a line in K;
what is beside it is a line in the bytes that it moves. `runtime.model.prediction` makes times of
products of them again.
"""

import math
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from statistics import median
from time import perf_counter
from types import ModuleType
from typing import Any

import numpy as np
from msgspec import to_builtins

from mixpert_py.errors import DeviceError
from mixpert_py.runtime import processor
from mixpert_py.runtime.api import matmul
from mixpert_py.runtime.gpu import transfer as moving
from mixpert_py.runtime.gpu.gemm import KernelChoice, chip, gemm
from mixpert_py.runtime.kernels.abi import ELEMENTS, STEP
from mixpert_py.runtime.model.device_model import KernelCost, PackingCost, Vendor
from mixpert_py.runtime.model.kernel_times import Tile, candidates
from mixpert_py.runtime.model.prediction import depth_of
from mixpert_py.runtime.packing import by_columns, by_rows, pack
from mixpert_py.runtime.probes.gpu import EventClock, Gpu, SampleClock, Tables, in_turn
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.request import Request
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes import emulation_of, get
from mixpert_py.runtime.schemes import schemes as all_schemes

ROUNDS = 5
SHORT, LONG = 1024, 4096  # K of the kernels that are timed
WAVES = 3
SMALL = (512, 1024)  # edges of products packed by the general kernel
LARGE = (2048, 4096)
TINY = 16  # edge of products that are compiled for, not timed
MOST_PROCESSES = 16
FLOATS = ("float32", "float64")
MOVED = 4096  # edge of the NumPy arrays that are moved
HOSTS = 2048  # edge of those that the host multiplies


def products(gpu: Gpu, schemes: Iterable[str] = ()) -> Tables:
    """Tables `kernel`, `packing`, `vendor` and `rates`.

    schemes: names, all that the kernels make where there are none. Kernels are compiled first, by
    several processes.
    """
    entries = {name: get(name) for name in all_schemes()}
    # Kernels of several tiles make a scheme's products; those of residues have one.
    names = list(schemes) or [
        n for n, it in entries.items() if isinstance(it, Scheme) and not it.moduli
    ]
    compile_kernels(names)
    clock = EventClock(gpu.cupy)
    kernels: list[KernelCost] = []
    packing: list[PackingCost] = []
    for name in names:
        some, beside = _scheme(gpu.cupy, clock, name)
        kernels += some
        packing.append(beside)
    vendor = _vendor(gpu.cupy, clock)
    return {
        "kernel": [to_builtins(row) for row in kernels],
        "packing": [to_builtins(row) for row in packing],
        "vendor": to_builtins(vendor),
        "rates": rates(kernels, gpu.multiprocessors) | to_builtins(vendor),
    }


def rates(kernels: list[KernelCost], multiprocessors: int) -> dict[str, float]:
    """Element → operations/s of the whole chip in the steps of its quickest kernel."""
    found: dict[str, float] = {}
    for row in kernels:
        scheme = emulation_of(row.scheme)
        element = scheme.element.name
        operations = 2 * row.m * row.n * STEP // ELEMENTS[element].size * scheme.products
        found[element] = max(found.get(element, 0.0), multiprocessors * (operations / row.step))
    return found


def line(x: tuple[float, float], y: tuple[float, float]) -> tuple[float, float]:
    """Through two points: its value at 0 and its slope, neither below 0."""
    slope = max(0.0, (y[1] - y[0]) / (x[1] - x[0]))
    return max(0.0, y[0] - slope * x[0]), slope


def kernel_row(scheme: str, tile: Tile, steps: tuple[int, int], times: list[float]) -> KernelCost:
    """times: of one wave of few steps, of one of many, and of WAVES of few; in seconds."""
    step = max(1e-12, (times[1] - times[0]) / (steps[1] - steps[0]))
    base, wave = line((1, WAVES), (times[0], times[2]))
    return KernelCost(scheme, tile.m, tile.n, base, max(0.0, wave - steps[0] * step), step)


def _scheme(
    cupy: ModuleType, clock: SampleClock, name: str
) -> tuple[list[KernelCost], PackingCost]:
    scheme = emulation_of(name)
    device = cupy.cuda.Device().id
    tiles = candidates(scheme, depth_of(scheme, SHORT), wide=False, chip=chip(device))
    kernels = [_kernel(cupy, clock, scheme, tile) for tile in tiles]
    return kernels, _packing(cupy, clock, scheme)


def _kernel(cupy: ModuleType, clock: SampleClock, scheme: Scheme, tile: Tile) -> KernelCost:
    """A wave has as many tiles as there are multiprocessors, in the squarest rectangle."""
    count = chip(cupy.cuda.Device().id).multiprocessors
    down = next(d for d in range(math.isqrt(count), 0, -1) if count % d == 0)
    m, n = tile.m * down, tile.n * (count // down)

    def call(rows: int, k: int) -> Callable[[], Any]:
        left, right = _packed(cupy, scheme, rows, k, n)
        c = cupy.empty((rows, n), "float32")
        return lambda: gemm(left, right, scheme, c, choice=KernelChoice(tile=tile))

    calls = {"short": call(m, SHORT), "long": call(m, LONG), "waves": call(WAVES * m, SHORT)}
    times = _times(clock, calls)
    steps = depth_of(scheme, SHORT).steps, depth_of(scheme, LONG).steps
    return kernel_row(scheme.name, tile, steps, [times[key] for key in calls])


def _packing(cupy: ModuleType, clock: SampleClock, scheme: Scheme) -> PackingCost:
    calls: dict[str, Callable[[], Any]] = {}
    for n in (*SMALL, *LARGE):
        a, b = _random(cupy, n, n), _random(cupy, n, n)
        c = cupy.empty((n, n), "float32")
        x, y = by_rows(a), by_columns(b)
        left, right = pack(x, y, scheme)
        product = partial(matmul, scheme=scheme.name, backend="cuda", out=c)
        calls[f"pack {n}"] = partial(pack, x, y, scheme)
        calls[f"kernel {n}"] = partial(gemm, left, right, scheme, c)
        calls[f"product {n}"] = partial(product, a, b)
    times = _times(clock, calls)

    def beside(n: int) -> float:
        return max(0.0, times[f"product {n}"] - times[f"kernel {n}"])

    # Of large ones the difference is too small a part of the product: packing alone has the slope.
    size = 4 + ELEMENTS[scheme.element.name].size * scheme.left.count
    moved = tuple(2 * n * n * size for n in LARGE)
    _, slope = line((moved[0], moved[1]), (times[f"pack {LARGE[0]}"], times[f"pack {LARGE[1]}"]))
    base = max(0.0, beside(LARGE[0]) - slope * moved[0])
    small, length = line((SMALL[0], SMALL[1]), (beside(SMALL[0]), beside(SMALL[1])))
    return PackingCost(scheme.name, base, 1 / max(slope, 1e-15), small, length)


def _vendor(cupy: ModuleType, clock: SampleClock) -> Vendor:
    n, calls = LARGE[1], {}
    for dtype in FLOATS:
        large = _random(cupy, n, n).astype(dtype)
        calls[dtype] = partial(cupy.matmul, large, large)
    times = _times(clock, calls)
    return Vendor(*(2 * n**3 / times[dtype] for dtype in FLOATS))


def _times(clock: SampleClock, calls: Mapping[str, Callable[[], Any]]) -> dict[str, float]:
    samples = in_turn(clock, calls, ROUNDS)
    return {key: median(sample.device for sample in some) for key, some in samples.items()}


def _random(cupy: ModuleType, rows: int, columns: int) -> Any:
    return cupy.random.default_rng(0).standard_normal((rows, columns), dtype="float32")


def _packed(cupy: ModuleType, scheme: Scheme, m: int, k: int, n: int) -> Any:
    return pack(by_rows(_random(cupy, m, k)), by_columns(_random(cupy, k, n)), scheme)


def compile_kernels(schemes: list[str]) -> None:
    """Compiles kernels by several processes, into the caches where this process finds them."""
    jobs = min(MOST_PROCESSES, os.cpu_count() or 1, len(schemes))
    if jobs > 1:
        with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
            list(pool.map(_compile_one, schemes))


def _compile_one(name: str) -> None:
    import cupy

    scheme = emulation_of(name)
    for n in (*SMALL, *LARGE):
        pack(by_rows(_random(cupy, n, n)), by_columns(_random(cupy, n, n)), scheme)
    left, right = _packed(cupy, scheme, TINY, SHORT, TINY)
    here = chip(cupy.cuda.Device().id)
    for tile in candidates(scheme, depth_of(scheme, SHORT), wide=False, chip=here):
        c = cupy.empty((TINY, TINY), "float32")
        gemm(left, right, scheme, c, choice=KernelChoice(tile=tile))
    cupy.cuda.Device().synchronize()


def transfer(gpu: Gpu) -> Tables:
    """Tables `transfer` and `host`."""
    host = {"float32": host_rate(), "cores": processor.cores()}
    return {"transfer": {"staged": staged()}, "host": host}


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


def _seconds(call: Callable[[], Any]) -> float:
    """The median time of a call in seconds, after one that is not timed."""
    call()
    times = []
    for _ in range(5):
        start = perf_counter()
        call()
        times.append(perf_counter() - start)
    return median(times)
