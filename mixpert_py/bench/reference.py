"""What the reference backend costs over a float32 product of the same shape."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from mixpert_py.bench.timing import in_turn, summary
from mixpert_py.runtime.emulation.reference import multiply
from mixpert_py.runtime.schemes import get


def _emulated(a: Any, b: Any, scheme: Any) -> Any:
    return multiply(a, b, scheme).value


def measure(size: int = 1024, schemes: tuple[str, ...] = ("int8x6",), rounds: int = 7) -> Any:
    """np.matmul and schemes at size³ on normal data, residual norms and flags included."""
    generator = np.random.default_rng(0)
    a = generator.standard_normal((size, size), dtype=np.float32)
    b = generator.standard_normal((size, size), dtype=np.float32)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    products: dict[str, Callable[[], Any]] = {"np.matmul float32": partial(np.matmul, a, b)}
    for name in schemes:
        products[name] = partial(_emulated, a, b, get(name))
    times = in_turn(products, rounds)
    rows: dict[str, dict[str, float]] = {name: summary(row) for name, row in times.items()}
    native = rows["np.matmul float32"]["median"]
    for name, row in rows.items():
        difference = products[name]().astype(np.float64) - exact
        row["ratio"] = row["median"] / native
        row["error"] = float(np.linalg.norm(difference) / np.linalg.norm(exact))
    return {"unit": "s", "size": size, "rows": rows}
