"""Products timed with every tile, and what choosing a tile, and the stages of its ring, gain."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from multiprocessing import get_context
from statistics import geometric_mean, median
from typing import Any, NamedTuple

from mixpert_py.runtime.model import prediction
from mixpert_py.runtime.model.kernel_times import HOPPER, Tile, candidates
from mixpert_py.runtime.model.prediction import depth_of
from mixpert_py.runtime.probes.gpu import EventClock, TimedCall, in_turn
from mixpert_py.runtime.probes.products import MOST_PROCESSES, compile_kernels
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes import get
from samples.papers import legemm_tiles
from samples.papers.columns import NAME, K, M, N
from samples.papers.exhibit import Column, Found, Row
from samples.papers.legemm_tiles import Tiling
from samples.papers.place import RANGES, Place
from tests.benchmarks.timing import timing

ROUNDS = 5
FIXED = "128 × 64"  # the one tile that every scheme has
PIPELINED = "legemm"
SIZES = (2048, 4096, 8192)
# Of the first what is copied is waited for: kernels of floating-point slices can do with one.
STAGE = range(1, HOPPER.stages + 1)

TILES = (
    *(NAME, M, K, N),
    *(Column("batch", "of them"), Column("chosen", "model's tile")),
    Column("times", "× one tile for all", ".2f"),
    Column("theirs", "by LE-GEMM's model", ".2f"),
    Column("best", "of the quickest", ".1%"),
)
STAGES = Column("stages", "stages")
GAIN = Column("times", "× one stage", ".3f")


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


def tiles(place: Place) -> Found:
    """Times of kernels by the model's tile, beside one tile for all and the quickest one."""
    return Found([gains(row) for row in rows(place.small)])


def gains(row: Row) -> Row:
    """What the time model's tile and LE-GEMM's gain over one tile for all, for one product."""
    times = row["tiles"]
    own, fixed = times[row["chosen"]], times[FIXED]
    shared = {key: row[key] for key in ("m", "k", "n", "batch", "chosen")}
    found = {"times": fixed / own, "best": min(times.values()) / own}
    return {"name": row["scheme"], **shared, **found, "theirs": fixed / times[row["legemm"]]}


def tiles_headline(rows: Sequence[Row]) -> str:
    """The mean gain, and the largest."""
    gains = [row["times"] for row in rows]
    return (
        f"the model's tile {geometric_mean(gains):.2f}× one tile for all, up to {max(gains):.2f}×"
    )


def by_stages(place: Place, n: int) -> tuple[Tile, dict[int, TimedCall]]:
    """The model's tile for an N × N × N product, and the kernel alone by its number of stages."""
    from mixpert_py.runtime.gpu.gemm import KernelChoice, gemm, kernel_times
    from mixpert_py.runtime.packing import by_columns, by_rows, pack

    scheme, n = get(PIPELINED), place.size(n)
    assert isinstance(scheme, Scheme)
    a, b = place.uniform(RANGES["[-1, 1)"], n, n, n)
    left, right = pack(by_rows(a), by_columns(b), scheme)
    kernels = kernel_times(place.xp.cuda.Device().id)
    tile = kernels.best(scheme, n, n, 1, depth_of(scheme, n), False)
    size = tile.shared // tile.stages
    call = partial(gemm, left, right, scheme, place.xp.empty((n, n), "float32"))
    return tile, {
        few: partial(call, choice=KernelChoice(tile=tile._replace(stages=few, shared=few * size)))
        for few in STAGE
        if few <= tile.stages
    }


def pipeline(place: Place) -> Found:
    """The kernel alone, as it is and with fewer stages: copies run that many steps ahead."""
    assert place.clock is not None
    rows: list[Row] = []
    for n in SIZES:
        tile, calls = by_stages(place, n)
        named = {str(few): call for few, call in calls.items()}
        samples = in_turn(place.clock, named, place.rounds)
        seconds = {int(few): timing(taken)["median"] for few, taken in samples.items()}
        rows += [
            {"name": f"N = {place.size(n)}", "tile": f"{tile.m} × {tile.n}", "stages": few}
            | {"seconds": spent, "times": seconds[STAGE[0]] / spent}
            for few, spent in seconds.items()
        ]
    return Found(
        rows, note="With one stage no copy runs while products are made of the one before."
    )


def pipeline_headline(rows: Sequence[Row]) -> str:
    """The gain of all stages, by size."""
    most = max(row["stages"] for row in rows)
    parts = [f"{row['times']:.2f}× at {row['name']}" for row in rows if row["stages"] == most]
    return f"{most} stages instead of one: {', '.join(parts)}"
