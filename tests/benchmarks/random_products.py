"""Random products on a GPU, by several processes: each within its bound, and symmetric if it must.

`stress.products` judges each, and says what is drawn. A process takes some of the schemes, so that
no other one compiles their kernels, or, where schemes are named, some of the seeds.
"""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import count
from multiprocessing import get_context
from time import monotonic
from typing import Any

import click
import numpy as np

from mixpert_py.cli import main
from tests.benchmarks import machine, stress

Record = dict[str, Any]
MOST_FAULTS = 20  # of a process, which then ends


@dataclass(frozen=True, slots=True)
class Check:
    """Products until the time is over. largest: no dimension is above it. schemes: all, if empty.
    reference: in NumPy.
    """

    processes: int
    seed: int
    seconds: float
    largest: int
    schemes: tuple[str, ...]
    reference: bool

    def __call__(self, number: int) -> Record:
        """Check the products of one process: by kind how many, and the largest error over what is
        allowed; and faults.
        """
        largest, end = self.largest, monotonic() + self.seconds
        place = stress.Place("reference", np, largest) if self.reference else stress.here(largest)
        schemes = self.schemes or stress.NAMES[number :: self.processes]
        first, step = (number, self.processes) if self.schemes else (0, 1)
        faults: list[str] = []
        for seed in count(self.seed + first, step):
            if monotonic() > end or len(faults) > MOST_FAULTS:
                break
            if stress.draw(seed, largest).scheme in schemes:
                faults += _faults(place, seed)
        return {"kinds": place.checked, "faults": faults, "backend": place.backend}


def _faults(place: stress.Place, seed: int) -> Iterator[str]:
    try:
        yield from stress.products(place, seed)
    except Exception as error:
        yield f"seed {seed}: {type(error).__name__}: {error}"


def joined(found: list[Record]) -> Record:
    """Add up the checks of all processes: a row for each kind of product, and all faults."""
    kinds: dict[str, tuple[int, float]] = {}
    for kind, (number, worst) in (item for one in found for item in one["kinds"].items()):
        before, most = kinds.get(kind, (0, 0.0))
        kinds[kind] = before + number, max(most, worst)
    rows = [{"kind": kind, "products": n, "worst": worst} for kind, (n, worst) in kinds.items()]
    faults = [fault for one in found for fault in one["faults"]]
    return {"rows": sorted(rows, key=lambda row: str(row["kind"])), "faults": faults}


def markdown(result: Record) -> str:
    """A row for each kind of product, their sum, and the faults."""
    rows = result["rows"]
    cells = [[row["kind"], f"{row['products']:,}", f"{row['worst']:.2f}"] for row in rows]
    cells.append(["all", f"{sum(row['products'] for row in rows):,}", ""])
    shown = machine.table(["", "products", "largest error over what is allowed"], cells)
    faults = "".join(f"- {fault}\n" for fault in result["faults"])
    count = f"Faults: {len(result['faults'])}."
    return f"{shown}\n\n{count}\n{faults}\n{machine.text(result['machine'])}\n"


@click.command()
@click.option("--minutes", default=2.0, show_default=True)
@click.option("--processes", default=16, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--largest", default=320, show_default=True, help="No dimension is above it.")
@click.option("--scheme", "schemes", multiple=True, help="These, not all.")
@click.option("--reference", is_flag=True, help="In NumPy, also where there is a GPU.")
@machine.save_option
def command(minutes: float, save: bool, **given: Any) -> int:
    """Check random products; exit code 1 where a fault is found."""
    check = Check(seconds=60 * minutes, **given)
    with ProcessPoolExecutor(check.processes, get_context("spawn")) as pool:
        found = [*pool.map(check, range(check.processes))]
    facts = machine.machine() if found[0]["backend"] == "reference" else machine.facts_of_gpu()
    result = {"machine": facts, **given, **joined(found)}
    machine.finish("random-products", result, save, markdown)
    return int(bool(result["faults"]))


if __name__ == "__main__":
    main(command, "python -m tests.benchmarks.random_products")
