"""Products timed on the GPU, whole and with every tile, beside what the time model says."""

import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from statistics import median
from typing import Any, NamedTuple

from mixpert_py.runtime.model import prediction
from mixpert_py.runtime.model.kernel_times import Tile, candidates
from mixpert_py.runtime.model.prediction import depth_of
from mixpert_py.runtime.probes.gpu import EventClock, in_turn
from mixpert_py.runtime.probes.products import MOST_PROCESSES, compile_kernels
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes import get
from samples.papers import legemm_tiles
from samples.papers.legemm_tiles import Tiling

ROUNDS = 5
FIXED = "128 × 64"  # the one tile that every scheme has


class Pair(NamedTuple):
    """One product: a scheme's name, and a stack of `batch` products of m × k by k × n."""

    scheme: str
    m: int
    k: int
    n: int
    batch: int = 1


SQUARES = (256, 512, 768, 1000, 1024, 1536, 2048, 3072, 4096, 6144, 8192)
SKEWED = (
    (4096, 16384, 4096),
    (512, 16384, 512),
    (256, 8192, 256),
    (16384, 1024, 16384),
    (16384, 256, 256),
    (8192, 256, 8192),
    (8192, 64, 8192),
    (128, 4096, 8192),
    (1024, 4096, 4096),
    (2000, 3000, 1000),
)
STACKS = ((1024, 1024, 1024, 16), (512, 512, 512, 64), (1024, 64, 1024, 64), (2048, 2048, 2048, 4))
EVERYWHERE = ("int8x6", "int8x3", "fp16x3")
ON_SQUARES = ("int8x8", "legemm", "bf16x6", "mixpert-IV")
SOME_SQUARES = (512, 1024, 2048, 4096)

PAIRS: tuple[Pair, ...] = (
    *(Pair(scheme, n, n, n) for scheme in EVERYWHERE for n in SQUARES),
    *(Pair(scheme, *shape) for scheme in EVERYWHERE for shape in (*SKEWED, *STACKS)),
    Pair("int8x6", 16384, 16384, 16384),
    *(Pair(scheme, n, n, n) for scheme in ON_SQUARES for n in SOME_SQUARES),
)


@cache
def rows(small: bool) -> list[dict[str, Any]]:
    """Measured and predicted seconds of every pair, and its seconds with every tile.

    `chosen` is the tile of the time model, `legemm` the tile of the model after LE-GEMM. Two
    exhibits take these rows, so they are measured once a process. small: only the first pairs.
    """
    import cupy

    pairs = PAIRS[:3] if small else PAIRS
    compile_kernels(sorted({pair.scheme for pair in pairs}))
    jobs = min(MOST_PROCESSES, os.cpu_count() or 1, len(pairs))
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        list(pool.map(_compile_one, pairs))
    clock = EventClock(cupy)
    return [_row(cupy, clock, pair) for pair in pairs]


def _row(cupy: Any, clock: EventClock, pair: Pair) -> dict[str, Any]:
    from mixpert_py.runtime.api import matmul
    from mixpert_py.runtime.gpu.gemm import KernelChoice, gemm, kernel_times
    from mixpert_py.runtime.packing import by_columns, by_rows, pack

    scheme = get(pair.scheme)
    assert isinstance(scheme, Scheme)
    times = kernel_times(cupy.cuda.Device().id)
    a, b = _operands(cupy, pair)
    c = cupy.empty((*a.shape[:-1], pair.n), "float32")
    given = {"scheme": pair.scheme, "backend": "cuda", "out": c}
    whole = in_turn(clock, {"": lambda: matmul(a, b, **given)}, ROUNDS)[""]
    left, right = pack(by_rows(a), by_columns(b), scheme)
    depth = depth_of(scheme, pair.k)
    tiles = candidates(scheme, depth, wide=False, chip=times.chip)

    def call(tile: Tile) -> Callable[[], Any]:
        return lambda: gemm(left, right, scheme, c, choice=KernelChoice(tile=tile))

    samples = in_turn(clock, {_name(tile): call(tile) for tile in tiles}, ROUNDS)
    predicted = prediction.product(times, scheme, (pair.m, pair.k, pair.n), pair.batch)
    tilings = {Tiling(tile.m, tile.n, times.chip.family.threads): tile for tile in tiles}
    enough = [legemm_tiles.enough(times.model, tiling) for tiling in tilings]
    theirs = legemm_tiles.chosen(list(tilings), enough, pair.m, pair.n, pair.batch)
    return {
        **pair._asdict(),
        "measured": median(sample.device for sample in whole),
        "predicted": predicted.seconds,
        "chosen": _name(times.best(scheme, pair.m, pair.n, pair.batch, depth, False)),
        "legemm": _name(tilings[theirs]),
        "tiles": {name: median(sample.device for sample in some) for name, some in samples.items()},
    }


def _name(tile: Tile) -> str:
    return f"{tile.m} × {tile.n}"


def _operands(cupy: Any, pair: Pair) -> tuple[Any, Any]:
    random = cupy.random.default_rng(0)
    stack = (pair.batch,) if pair.batch > 1 else ()
    shapes = (*stack, pair.m, pair.k), (*stack, pair.k, pair.n)
    a, b = (random.standard_normal(shape, dtype="float32") for shape in shapes)
    return a, b


def _compile_one(pair: Pair) -> None:
    """Compile the kernels of a pair into the user's caches."""
    import cupy

    from mixpert_py.runtime.api import matmul

    matmul(*_operands(cupy, pair), scheme=pair.scheme, backend="cuda")
    cupy.cuda.Device().synchronize()
