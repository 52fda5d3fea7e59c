"""Time and error of emulated products in NumPy, beside a float32 product of the same shape."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import click
import numpy as np

from mixpert_py.bench import machine
from mixpert_py.bench.timing import in_turn, summary
from mixpert_py.cli import main
from mixpert_py.runtime.reference.reference import multiply
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes import get


def measure(
    size: int = 1024, schemes: tuple[str, ...] = ("int8x6",), rounds: int = 7
) -> dict[str, Any]:
    """Seconds of np.matmul and of schemes at size³ on normal data, residual norms included."""
    generator = np.random.default_rng(0)
    a = generator.standard_normal((size, size), dtype=np.float32)
    b = generator.standard_normal((size, size), dtype=np.float32)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    products: dict[str, Callable[[], Any]] = {"np.matmul float32": partial(np.matmul, a, b)}
    for name in schemes:
        products[name] = partial(multiply, a, b, _scheme(name))
    times = in_turn(products, rounds)
    rows: dict[str, dict[str, float]] = {name: summary(row) for name, row in times.items()}
    native = rows["np.matmul float32"]["median"]
    for name, row in rows.items():
        difference = _value(products[name]()).astype(np.float64) - exact
        row["ratio"] = row["median"] / native
        row["error"] = float(np.linalg.norm(difference) / np.linalg.norm(exact))
    return {"unit": "s", "size": size, "rows": rows}


def _scheme(name: str) -> Scheme:
    entry = get(name)
    assert isinstance(entry, Scheme), f"{name} is not emulated"
    return entry


def _value(result: Any) -> Any:
    """The array of a product, native or emulated."""
    return getattr(result, "value", result)


@click.command()
@click.option("--size", default=1024, show_default=True)
@click.option("--scheme", "schemes", multiple=True, default=("int8x6",), show_default=True)
@click.option("--save", is_flag=True, help="Keep the result beside those of `mixpert bench`.")
def command(size: int, schemes: tuple[str, ...], save: bool) -> None:
    """The reference backend against a float32 product."""
    found = machine.finish("reference", measure(size, schemes), save)
    click.echo(json.dumps(found, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    main(command, "python -m tests.measure.reference")
