"""The cost of a call that passes through, over the native one, on 8 × 8 arrays."""

from typing import Any

import numpy as np

import mixpert_py
from mixpert_py.bench.timing import in_turn, summary

SITE = "bench:<module>/matmul~0000#0"


def measure(rounds: int = 41, calls: int = 20_000) -> dict[str, Any]:
    """np.matmul against mixpert_py.matmul with a site and no plan, in microseconds per call."""
    a = np.random.default_rng(0).standard_normal((8, 8))
    matmul, native = mixpert_py.matmul, np.matmul
    times = in_turn(
        {
            "np.matmul(a, a)": lambda: native(a, a),
            "matmul(a, a, site=…, native=np.matmul)": lambda: matmul(
                a, a, site=SITE, native=native
            ),
            "a @ a": lambda: a @ a,
            "matmul(a, a, site=…)": lambda: matmul(a, a, site=SITE),
        },
        rounds,
        calls,
    )
    rows = {name: summary([1e6 * t for t in row]) for name, row in times.items()}
    medians = [row["median"] for row in rows.values()]
    return {
        "unit": "µs per call",
        "rows": rows,
        "overhead": {"np.matmul": medians[1] - medians[0], "@": medians[3] - medians[2]},
    }
