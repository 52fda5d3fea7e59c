"""Times of functions that take turns, so that a machine's drift falls on all of them alike."""

from collections.abc import Callable, Mapping
from statistics import median, quantiles
from time import perf_counter
from typing import Any

from mixpert_py.runtime.probes.gpu import Sample


def in_turn(
    functions: Mapping[str, Callable[[], Any]], rounds: int, calls: int = 1
) -> dict[str, list[float]]:
    """Seconds per call of each function, one entry for each round; a first round is not counted."""
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


def repeated(
    call: Callable[[], Any], times: int, wait: Callable[[], Any] = lambda: None
) -> Callable[[], None]:
    """Calls in a row, and a wait at their end, as that for a device."""

    def loop() -> None:
        for _ in range(times):
            call()
        wait()

    return loop


def summary(times: list[float]) -> dict[str, float]:
    low, _, high = quantiles(times, n=4) if len(times) > 1 else (times[0],) * 3
    return {"median": median(times), "lower": low, "upper": high, "runs": len(times)}


def timing(samples: list[Sample]) -> dict[str, Any]:
    """Median and quartiles of the device's times, and the median of the host's.

    ahead: the share of samples in which the host enqueued all calls before the device was done.
    """
    return {
        **summary([sample.device for sample in samples]),
        "host": summary([sample.host for sample in samples])["median"],
        "ahead": sum(sample.ahead for sample in samples) / len(samples),
    }


def ratio(slow: list[Sample], fast: list[Sample]) -> dict[str, float]:
    """Median and quartiles of slow / fast, taken round by round."""
    return summary([a.device / b.device for a, b in zip(slow, fast, strict=True)])


def error_line(error: BaseException) -> str:
    """The type and the first line of an error, which is what a result keeps of it."""
    return f"{type(error).__name__}: {error}".splitlines()[0]
