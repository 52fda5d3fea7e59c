"""A matrix, its square, and what a function that makes the square did."""

from collections.abc import Callable
from typing import Any

import numpy as np

from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.tracing.trace import Trace

A = np.random.default_rng(0).standard_normal((16, 16))
EXACT = A @ A


def sites(function: Callable[..., Any]) -> list[str]:
    """The call sites that a call of the function reaches."""
    trace = Trace()
    with use(Context(trace=trace)):
        np.testing.assert_array_equal(function(A), EXACT)
    return list(trace.sites)


def is_emulated(result: Any) -> bool:
    error = float(np.abs(result - EXACT).max())
    assert error < 1e-2
    return error > 0
