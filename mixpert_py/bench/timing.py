"""Times of functions that take turns, so that a machine's drift falls on all of them alike."""

from collections.abc import Callable, Mapping
from statistics import median, quantiles
from time import perf_counter
from typing import Any


def in_turn(
    functions: Mapping[str, Callable[[], Any]], rounds: int, calls: int = 1
) -> dict[str, list[float]]:
    """Seconds per call of each function, one entry a round; a first round is not counted."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for turn in range(rounds + 1):
        for name, function in functions.items():
            start = perf_counter()
            for _ in range(calls):
                function()
            elapsed = perf_counter() - start
            if turn:
                times[name].append(elapsed / calls)
    return times


def summary(times: list[float]) -> dict[str, float]:
    """Median and quartiles."""
    low, _, high = quantiles(times, n=4) if len(times) > 1 else (times[0],) * 3
    return {"median": median(times), "lower": low, "upper": high, "runs": len(times)}
