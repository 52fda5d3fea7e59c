"""The time that a trace takes, which is none of the program's or its products'."""

import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from mixpert_py.runtime import context as contexts
from mixpert_py.runtime.api import matmul
from mixpert_py.runtime.tracing.captures import Captures
from mixpert_py.runtime.tracing.counted import FIRST, quick
from mixpert_py.runtime.tracing.trace import Trace

SITE = "cost"
# Of a product, by which the cost of a call is measured; most are counted where that may be.
CALLS = 4 * FIRST
MOST, NEGLIGIBLE = 1e-4, 1e-3  # seconds that a call may cost; share of the time that is passed over
LEAST_OF_PRODUCT, LEAST_OF_RUN = 0.2, 0.02  # that is left where the trace took nearly all of it


@dataclass(frozen=True, slots=True)
class TraceCost:
    """Seconds that a trace adds to a product's time as it records it, and to the program's time by
    a traced call, and by a call that is only counted.
    """

    recorded: float
    traced: float
    counted: float

    @classmethod
    def of(cls, trace: Trace) -> "TraceCost":
        """The cost of such a trace in this process, measured on products that take no time to speak
        of.
        """
        a = np.ones((8, 8))
        native = _seconds(partial(operator.matmul, a, a))
        recorded: list[float] = []

        def traced() -> None:
            before = probe.sites[SITE].seconds if recorded else 0.0
            matmul(a, a, site=SITE)
            recorded.append(probe.sites[SITE].seconds - before)

        # Calls of a site whose results are kept are never counted.
        probe = _like(trace, keep=(SITE,))
        with contexts.use(replace(contexts.current(), scheme="native", trace=probe)):
            whole = _seconds(traced)
        with contexts.use(replace(contexts.current(), scheme="native", trace=_like(trace))):
            counted = _seconds(partial(matmul, a, a, site=SITE))
        return cls(*(max(it - native, 0.0) for it in (quick(recorded), whole, counted)))


def without_cost(trace: Trace, seconds: float) -> float:
    """Take the cost of a trace out of the times of its products; returns the program's time without
    it. seconds: with it.

    Products take no longer than the program. Where several threads made them, or the clock was not
    steady, their times become shares of the program's time.
    """
    records, left = trace.sites.values(), seconds
    if MOST * sum(record.calls for record in records) > NEGLIGIBLE * seconds:
        cost = TraceCost.of(trace)
        for record in records:
            left -= record.counted * cost.counted + (record.calls - record.counted) * cost.traced
            own = record.seconds - record.calls * cost.recorded
            record.seconds = max(own, LEAST_OF_PRODUCT * record.seconds)
    left = max(left, LEAST_OF_RUN * seconds)
    whole = sum(record.seconds for record in records)
    for record in records if whole > left else ():
        record.seconds *= left / whole
    return left


def _like(trace: Trace, keep: tuple[str, ...] = ()) -> Trace:
    """A trace that looks at as much of a call as another one, and copies no operands."""
    levels = None if trace.levels is None else ()
    return Trace(levels, keep, None if trace.captures is None else Captures(max_bytes=0))


def _seconds(function: Callable[[], Any]) -> float:
    """The time of a call, by the quicker of CALLS calls."""
    found = []
    for _ in range(CALLS):
        start = perf_counter()
        function()
        found.append(perf_counter() - start)
    return quick(found)
