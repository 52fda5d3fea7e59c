"""Weak scaling: a product of Dask arrays of NumPy blocks, on one GPU, two, four, the same for each.

Each worker has its own rows of A, as blocks in its host memory, and a copy of B before the clock
runs. What is timed is the product alone: tasks sent, blocks moved to the GPU, multiplied, and C's
blocks moved back to host memory, where they stay.
"""

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import click

from mixpert_py.bench import machine
from mixpert_py.bench.gemm import tables
from mixpert_py.bench.timing import summary
from mixpert_py.cli import main
from mixpert_py.errors import DeviceError
from mixpert_py.execution import gpus
from mixpert_py.runtime.api import matmul

BLOCKS = 8  # of A, each worker
PATIENCE = 120.0  # seconds for workers to come
WANTED = 0.85  # of the speed of one GPU, for each of several

Result = dict[str, Any]


def measure(
    names: Sequence[str],
    counts: Sequence[int],
    size: int,
    rounds: int,
    *,
    scheme: str = "int8x6",
    backend: str = "cuda",
    report: Callable[[str], None],
) -> Result:
    """Seconds of BLOCKS products (size, size) × (size, size) on each worker, by their number.

    names: the GPUs, as CUDA calls them; counts: how many to take, the first the one that the
    others are compared with. efficiency: its time over theirs. Raises DeviceError where there are
    too few GPUs.
    """
    if max(counts) > len(names):
        raise DeviceError(f"{max(counts)} GPUs are required, and there are {len(names)}")
    rows: list[Result] = []
    for count in counts:
        report(f"{count} × {BLOCKS} products of {size}³ …")
        seconds = summary(_times(names[:count], size, rounds, scheme, backend))
        efficiency = rows[0]["seconds"]["median"] / seconds["median"] if rows else 1.0
        rate = 2e-12 * count * BLOCKS * size**3 / seconds["median"]
        rows.append({"gpus": count, "seconds": seconds, "tflops": rate, "efficiency": efficiency})
        report(", ".join(_cells(rows[-1])))
    met = all(row["efficiency"] >= WANTED for row in rows)
    setting = {"scheme": scheme, "size": size, "blocks": BLOCKS, "wanted": WANTED, "met": met}
    return {**setting, "rows": rows}


def _times(names: Sequence[str], size: int, rounds: int, scheme: str, backend: str) -> list[float]:
    import dask.array as da
    from distributed import Client, futures_of, wait

    generator = da.random.default_rng(0)

    def normal(blocks: int) -> Any:
        shape = blocks * size, size
        return generator.standard_normal(shape, chunks=(size, size), dtype="float32")

    # Virtual machines may have more memory than they report before it is used.
    with gpus.start_cluster(names, spills=False) as cluster, Client(cluster) as client:
        client.wait_for_workers(len(names), timeout=PATIENCE)
        workers = list(client.scheduler_info(n_workers=-1)["workers"])
        a = {each: client.persist(normal(BLOCKS), workers=[each]) for each in workers}
        made_b = client.persist(normal(1), workers=workers[:1])
        wait([*a.values(), made_b])
        times = []
        for turn in range(rounds + 1):
            # By another name: of the same product Dask would keep the blocks that it has. And each
            # where it was made: small ones Dask hands to whichever worker is idle.
            again = [
                client.persist(made.map_blocks(_itself, turn, dtype=made.dtype), workers=[each])
                for each, made in a.items()
            ]
            rows = da.concatenate(again)
            # Another copy: what has been on a GPU before may still be there.
            copied = made_b.map_blocks(_copy, turn, dtype=made_b.dtype)
            b = client.persist(copied, workers=workers[:1])
            wait(rows)
            client.replicate(futures_of(b))  # which waits for it
            start = perf_counter()
            c = client.persist(matmul(rows, b, scheme=scheme, backend=backend))
            done, _ = wait(c)
            elapsed = perf_counter() - start
            for future in done:
                if future.status == "error":
                    future.result()  # raises what the worker raised
            del again, rows, copied, b, c, done, future
            if turn:  # in the first, kernels are compiled
                times.append(elapsed)
        return times


def _itself(block: Any, turn: int) -> Any:
    return block


def _copy(block: Any, turn: int) -> Any:
    return block.copy()


def table(result: Result) -> dict[str, Any]:
    """The table of docs/measured.md, from a result with the facts about its machine."""
    rows = []
    for row in result["rows"]:
        is_base = row["gpus"] == result["rows"][0]["gpus"]
        verdict = "met" if row["efficiency"] >= result["wanted"] else "missed"
        rows.append([*_cells(row), "" if is_base else f"≥ {result['wanted']}: {verdict}"])
    facts, each = result["machine"], f"{result['blocks']} products of {result['size']}³ float32"
    return {
        "columns": ["GPUs", "time", "TFLOP/s", "efficiency", "wanted"],
        "rows": rows,
        "text": f"{each} on each GPU, {result['scheme']}: blocks of NumPy arrays in a Dask "
        "cluster of one process a GPU, moved there, B once, and back. "
        "Efficiency: the time of one GPU over theirs. "
        f"{facts['device']}, {facts['cores']} cores of {facts['cpu']}, {facts['date']}: "
        "`python -m tests.measure.scaling --save`.",
    }


def _cells(row: Result) -> list[str]:
    seconds = f"{row['seconds']['median']:.3f} s"
    return [str(row["gpus"]), seconds, f"{row['tflops']:.0f}", f"{row['efficiency']:.2f}"]


@click.command()
@click.option(
    "--gpus",
    "counts",
    type=click.IntRange(1),
    multiple=True,
    metavar="N",
    help="So many, several times; the first is compared with. Default: 1, 2, 4 of those here.",
)
@click.option("--size", default=16384, show_default=True, type=click.IntRange(1))
@click.option("--rounds", default=7, show_default=True, type=click.IntRange(1))
@click.option("--save", is_flag=True, help="Keep the result beside those of `mixpert bench`.")
def command(counts: tuple[int, ...], size: int, rounds: int, save: bool) -> int:
    """The same products on each of 1, 2, 4 GPUs.

    A process each; copies of the host are included. Exit code 1 where an efficiency is below 0.85.
    """
    cupy = machine.gpu()
    names = gpus.names("cuda")
    counts = counts or tuple(count for count in (1, 2, 4) if count <= len(names))

    def report(line: str) -> None:
        click.echo(line, err=True)

    result = measure(names, counts, size, rounds, report=report)
    result = {"machine": machine.machine() | machine.device(cupy), **result}
    shown = table(result)
    machine.finish("scaling", {**result, "table": shown}, save)
    click.echo(f"{tables.markdown(shown['columns'], shown['rows'])}\n\n{shown['text']}")
    return int(not result["met"])


if __name__ == "__main__":
    main(command, "python -m tests.measure.scaling")
