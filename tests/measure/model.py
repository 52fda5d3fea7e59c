"""The accuracy of the time model's predictions, and of its choice of tiles, on the device.

Every product is timed whole; then its kernel alone with every tile that fits. The tile that the
model would choose is set against the quickest, as are those of models after two papers, and one
tile for all.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from statistics import geometric_mean, median
from typing import Any, NamedTuple

import click
import numpy as np

from mixpert_py.bench import machine
from mixpert_py.cli import main
from mixpert_py.runtime.gpu.event_clock import Clock, EventClock, in_turn
from mixpert_py.runtime.model import prediction
from mixpert_py.runtime.model.kernel_times import KernelTimes
from mixpert_py.runtime.model.prediction import depth_of
from mixpert_py.runtime.model.tile import Tile, candidates
from mixpert_py.runtime.model.tile_choice import Wanted, choose
from mixpert_py.runtime.probes.products import MOST_PROCESSES, compile_kernels
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes import get

ROUNDS = 5
NEAR = 1.05  # of the quickest tile's time
FIXED = 128, 64  # the one tile that every scheme has
CHOICES = {
    "chosen": "our model",
    "legemm": "after LE-GEMM",
    "egemm": "after EGEMM-TC",
    "fixed": "one tile",
}


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
    *(Pair(scheme, *shape) for scheme in EVERYWHERE for shape in SKEWED),
    *(Pair(scheme, *shape) for scheme in EVERYWHERE for shape in STACKS),
    Pair("int8x6", 16384, 16384, 16384),
    *(Pair(scheme, n, n, n) for scheme in ON_SQUARES for n in SOME_SQUARES),
)


def measure(
    pairs: Sequence[Pair] = PAIRS, report: Callable[[str], None] = lambda line: None
) -> dict[str, Any]:
    """Measured and predicted seconds of every pair, and their summary.

    Raises DeviceError where there is no GPU.
    """
    cupy = machine.gpu()
    _compile(pairs)
    clock = EventClock(cupy)
    rows = []
    for pair in pairs:
        rows.append(_row(cupy, clock, pair))
        report(f"{' × '.join(map(str, pair[1:]))} {pair.scheme}")
    found = {"machine": machine.machine() | machine.device(cupy), **summary(rows)}
    return {**found, "table": table(found, rows), "rows": rows}


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Correlation of predicted and measured times and of their logarithms; the median error; by
    choice of a tile, the share of pairs whose tile is near the quickest, and the mean of how many
    times as long as the quickest it takes.
    """
    measured = np.array([row["measured"] for row in rows])
    predicted = np.array([row["predicted"] for row in rows])
    errors = np.abs(predicted / measured - 1)
    return {
        "pairs": len(rows),
        "correlation": float(np.corrcoef(measured, predicted)[0, 1]),
        "correlation of logarithms": float(np.corrcoef(np.log(measured), np.log(predicted))[0, 1]),
        "median error": float(np.median(errors)),
        "largest error": float(errors.max()),
        "near the quickest": {key: _near(rows, key) for key in CHOICES},
        "times the quickest": {
            key: geometric_mean(_times_the_quickest(row, key) for row in rows) for key in CHOICES
        },
    }


def table(found: dict[str, Any], rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The table of docs/measured.md: a row for each kind of products, and one for all of them.

    found: the machine and the summary of all rows.
    """
    kinds: dict[str, list[dict[str, Any]]] = {"n³": [], "skewed": [], "stacks": []}
    for row in rows:
        square = row["m"] == row["k"] == row["n"]
        kinds["stacks" if row["batch"] > 1 else "n³" if square else "skewed"].append(row)
    lines = []
    for kind, some in {**kinds, "all": list(rows)}.items():
        if not some:
            continue
        it = summary(some)
        near, times = it["near the quickest"], it["times the quickest"]
        line = [
            f"{kind} ({it['pairs']})",
            f"{it['median error']:.1%}",
            f"{it['largest error']:.0%}",
        ]
        lines.append([*line, *(f"{near[key]:.0%}, {times[key]:.2f}×" for key in CHOICES)])
    first, *others = CHOICES.values()
    where = found["machine"]
    return {
        "columns": ["products", "median error", "largest", f"tile of {first}", *others],
        "rows": lines,
        "text": f"Predicted against measured times: correlation {found['correlation']:.4f}, of "
        f"their logarithms {found['correlation of logarithms']:.4f}. Tiles: how many are within "
        f"5 % of the quickest, and the mean of their kernels' times over the quickest's; one tile: "
        f"{FIXED[0]} × {FIXED[1]} for all; models after the papers: `mixpert tiles --model`. "
        f"One {where['device']}, CuPy {where['cupy']}, "
        f"{where['date']}: `python -m tests.measure.model --save`.",
    }


def _near(rows: Sequence[dict[str, Any]], which: str) -> float:
    return sum(_times_the_quickest(row, which) <= NEAR for row in rows) / len(rows)


def _times_the_quickest(row: dict[str, Any], which: str) -> float:
    times: dict[str, float] = row["tiles"]
    return times[row[which]] / min(times.values())


def choices(times: KernelTimes, pair: Pair) -> dict[str, str]:
    """The tile of a pair by every choice, as the results name it."""
    scheme = _scheme(pair)
    wanted = Wanted(scheme, pair.m, pair.n, pair.batch, depth_of(scheme, pair.k))
    return {
        "chosen": _name(choose("ours", times, wanted)),
        "legemm": _name(choose("legemm", times, wanted)),
        "egemm": _name(choose("egemm", times, wanted)),
        "fixed": "{} × {}".format(*FIXED),
    }


def _row(cupy: Any, clock: Clock, pair: Pair) -> dict[str, Any]:
    from mixpert_py.runtime.api import matmul
    from mixpert_py.runtime.gpu.gemm import gemm, kernel_times
    from mixpert_py.runtime.packing import by_columns, by_rows, pack

    scheme = _scheme(pair)
    times = kernel_times(cupy.cuda.Device().id)
    a, b = _operands(cupy, pair)
    c = cupy.empty((*a.shape[:-1], pair.n), "float32")
    given = {"scheme": pair.scheme, "backend": "cuda", "out": c}
    whole = in_turn(clock, {"": lambda: matmul(a, b, **given)}, ROUNDS)[""]
    left, right = pack(by_rows(a), by_columns(b), scheme)
    depth = depth_of(scheme, pair.k)
    tiles = candidates(scheme, depth, wide=False, chip=times.chip)

    def call(tile: Tile) -> Callable[[], Any]:
        return lambda: gemm(left, right, scheme, c, tile=tile)

    samples = in_turn(clock, {_name(tile): call(tile) for tile in tiles}, ROUNDS)
    predicted = prediction.product(times, scheme, pair.m, pair.k, pair.n, pair.batch)
    return {
        **pair._asdict(),
        "measured": median(sample.device for sample in whole),
        "predicted": predicted.seconds,
        "packing": predicted.packing,
        "kernel": predicted.kernel,
        **choices(times, pair),
        "tiles": {name: median(sample.device for sample in some) for name, some in samples.items()},
    }


def _name(tile: Tile) -> str:
    return f"{tile.m} × {tile.n}"


def _scheme(pair: Pair) -> Scheme:
    scheme = get(pair.scheme)
    assert isinstance(scheme, Scheme)
    return scheme


def _operands(cupy: Any, pair: Pair) -> tuple[Any, Any]:
    random = cupy.random.default_rng(0)
    stack = (pair.batch,) if pair.batch > 1 else ()
    shapes = (*stack, pair.m, pair.k), (*stack, pair.k, pair.n)
    a, b = (random.standard_normal(shape, dtype="float32") for shape in shapes)
    return a, b


def _compile(pairs: Sequence[Pair]) -> None:
    """Every kernel, into the user's caches, by several processes."""
    compile_kernels(sorted({pair.scheme for pair in pairs}))
    jobs = min(MOST_PROCESSES, os.cpu_count() or 1, len(pairs))
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        list(pool.map(_compile_one, pairs))


def _compile_one(pair: Pair) -> None:
    import cupy

    from mixpert_py.runtime.api import matmul

    matmul(*_operands(cupy, pair), scheme=pair.scheme, backend="cuda")
    cupy.cuda.Device().synchronize()


@click.command()
@click.option("--save", is_flag=True, help="Keep the result beside those of `mixpert bench`.")
def command(save: bool) -> None:
    """Predicted times and chosen tiles against measured ones, on the current GPU."""
    found = measure(report=lambda line: click.echo(line, err=True))
    machine.finish("model", found, save)
    click.echo(found["table"]["text"])


if __name__ == "__main__":
    main(command, "python -m tests.measure.model")
