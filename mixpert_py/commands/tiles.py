"""The command that explains how a product is cut into tiles: `mixpert tiles`."""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from mixpert_py.commands.program import as_record, complete_devices, complete_schemes

if TYPE_CHECKING:
    from mixpert_py.runtime.model.kernel_times import KernelTimes
    from mixpert_py.runtime.model.tile_choice import ModelName


@dataclass(frozen=True, slots=True)
class Options:
    """The options of `mixpert tiles`: the product, its scheme, and how a tile is chosen for it."""

    scheme: str
    device: str | None
    model: "ModelName"
    batch: int
    wide: bool
    as_json: bool
    m: int
    k: int
    n: int


@click.command()
@click.option(
    "--scheme", default="int8x6", show_default=True, metavar="NAME", shell_complete=complete_schemes
)
@click.option(
    "--device",
    metavar="NAME",
    shell_complete=complete_devices,
    help="Default: the GPU that is here, else an H200.",
)
@click.option(
    "--model",
    type=click.Choice(("ours", "egemm", "legemm")),
    default="ours",
    show_default=True,
    help="Ours: by time. After EGEMM-TC: by operations a byte; LE-GEMM: by threads.",
)
@click.option("--batch", default=1, show_default=True, type=click.IntRange(1), metavar="N")
@click.option("--float64", "wide", is_flag=True, help="Of float64 matrices; default: float32.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@click.argument("m", type=click.IntRange(1))
@click.argument("k", type=click.IntRange(1))
@click.argument("n", type=click.IntRange(1))
@as_record(Options)
def tiles(options: Options) -> None:
    """Predict a product: every tile that fits, and the one to take.

    C (M × N) of A (M × K) times B (K × N). Times are those of the device's model, which `mixpert
    probe` measures. Nothing runs on a GPU. With --model the tile is the one that a model after a
    paper takes, and what it goes by is shown.
    """
    from mixpert_py.commands import tables

    found = explained(_times(options.device), options)
    if options.as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        tables.print_tiles(found)


def explained(times: "KernelTimes", product: Options) -> dict[str, Any]:
    """The record that the command prints; times are in seconds.

    Raises PlanError for an unknown scheme, DeviceError for a device without kernels.
    """
    from mixpert_py.errors import PlanError
    from mixpert_py.runtime.model import prediction, tile_choice
    from mixpert_py.runtime.model.tile import candidates, cut
    from mixpert_py.runtime.schemes import emulation_on_gpu, get

    if get(product.scheme).kind != "emulation" and product.scheme != "faithful":
        raise PlanError(f"scheme {product.scheme!r} is no emulation: it has no kernel of ours")
    m, k, n, batch, wide = product.m, product.k, product.n, product.batch, product.wide
    scheme = emulation_on_gpu(product.scheme, batch * m * k * n)
    whole = prediction.product(times, scheme, m, k, n, batch, wide=wide)
    depth = prediction.depth_of(scheme, k)
    wanted = tile_choice.Wanted(scheme, m, n, batch, depth, wide)
    best = tile_choice.choose(product.model, times, wanted)
    kernel = times.seconds(scheme, best, m, n, batch, depth)
    native = prediction.native(times, m, k, n, batch, wide=wide)
    rows = []
    for tile in candidates(scheme, depth, wide=wide, chip=times.chip):
        count = -(-m // tile.m) * -(-n // tile.n) * batch
        shares = cut(scheme, tile, count, depth, times.chip)
        rows.append(
            {
                "m": tile.m,
                "n": tile.n,
                "stages": tile.stages,
                "shared memory": tile.shared,
                "tiles": count,
                "waves": count / times.chip.multiprocessors,
                "parts of the last": shares.split,
                "seconds": times.seconds(scheme, tile, m, n, batch, depth),
                "measured": times.is_measured(scheme, tile),
                "goes by": dict(tile_choice.figures(product.model, times, wanted, tile)),
                "chosen": tile == best,
            }
        )
    return {
        "device": times.model.device,
        "origin": times.model.origin,
        "date": str(times.model.date),
        "scheme": scheme.name,
        "model": product.model,
        "m": m,
        "k": k,
        "n": n,
        "batch": batch,
        "tiles": rows,
        "packing": whole.packing,
        "kernel": kernel,
        "seconds": whole.packing + kernel,
        "native": native,
    }


def _times(device: str | None) -> "KernelTimes":
    from mixpert_py.runtime.gpu.device import Absent, find, may_be_here
    from mixpert_py.runtime.model import STANDS_IN, known_devices
    from mixpert_py.runtime.model.kernel_times import KernelTimes

    if device is not None:
        return KernelTimes(known_devices.find(device))
    here = find() if may_be_here() else None
    name = STANDS_IN if here is None or isinstance(here, Absent) else here.name
    return KernelTimes(known_devices.model_of(name))
