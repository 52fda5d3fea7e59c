"""The gain of choosing a tile, and of the stages of its ring in shared memory."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from statistics import geometric_mean

from mixpert_py.runtime.model.kernel_times import HOPPER, Tile
from mixpert_py.runtime.model.prediction import depth_of
from mixpert_py.runtime.probes.gpu import TimedCall, in_turn
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes import get
from samples.papers import timed_products
from samples.papers.exhibit import Column, Found, Row
from samples.papers.place import RANGES, Place
from tests.benchmarks.timing import timing

PIPELINED = "legemm"
SIZES = (2048, 4096, 8192)
# Of the first what is copied is waited for: kernels of floating-point slices can do with one.
STAGE = range(1, HOPPER.stages + 1)

TILES = (
    *(Column("name", "product"), Column("m", "m"), Column("k", "k"), Column("n", "n")),
    *(Column("batch", "of them"), Column("chosen", "model's tile")),
    Column("times", "× one tile for all", ".2f"),
    Column("theirs", "by LE-GEMM's model", ".2f"),
    Column("best", "of the quickest", ".1%"),
)
STAGES = Column("stages", "stages")
GAIN = Column("times", "× one stage", ".3f")


def tiles(place: Place) -> Found:
    """Times of kernels by the model's tile, beside one tile for all and the quickest one."""
    return Found([gains(row) for row in timed_products.rows(place.small)])


def gains(row: Row) -> Row:
    """What the time model's tile and LE-GEMM's gain over one tile for all, for one product."""
    times = row["tiles"]
    own, fixed = times[row["chosen"]], times[timed_products.FIXED]
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
        few: partial(call, choice=KernelChoice(tile=replace(tile, stages=few, shared=few * size)))
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
