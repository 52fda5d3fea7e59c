"""Why products can take no lower level on a processor: in words, with their numbers."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from math import prod

from mixpert_py.execution.worker import SiteResult
from mixpert_py.runtime.arrays import are_whole, is_wide
from mixpert_py.runtime.reasons import MEANING, Reason
from mixpert_py.runtime.worth import is_small_cube
from mixpert_py.tuner.report.unit import clock_unit

SINGLE = "single"  # stands for products that are of float32's precision already
SEVERAL = 3  # types, whose names are not listed
ALIKE = 10  # times as long as the shortest may the longest product be where their mean is told
SHORTEST = 1e-3  # seconds: a shorter time is told in whole microseconds


def why_native(trace: SiteResult) -> str:
    """Why no call of a site can take `float32`, or `exact`; "" where one can.

    trace: of a native run, of operands that are on no GPU.
    """
    reason = _reason(trace)
    if reason == Reason.TOO_SMALL:
        m, k, n = _largest(trace)
        is_one = len(trace.shapes) == 1
        verb = "is" if is_one else "and smaller are"
        level = "exact" if are_whole(*trace.dtypes) else "float32"
        return f"{m} × {k} × {n} {verb} too {_size(trace)} for {level} to be faster"
    if reason == SINGLE:
        return f"{_dtypes([trace])}: a processor has no faster level"
    if not reason and all(0 in shape[:3] for shape in trace.shapes):
        return f"no product of arrays that a scheme takes ({', '.join(trace.dtypes)})"
    return MEANING[reason].rstrip(".") if reason else ""


def is_native_anywhere(trace: SiteResult) -> bool:
    """Whether no call of a site can take a scheme, on a GPU neither: of integers, say."""
    return _reason(trace) not in ("", SINGLE, Reason.TOO_SMALL)


def why_all_native(sites: Mapping[str, SiteResult]) -> str:
    """Why no product of a program can take `float32`, in one line; "" where one can."""
    by_reason: dict[str, list[SiteResult]] = defaultdict(list)
    for trace in sites.values():
        by_reason[_reason(trace)].append(trace)
    if "" in by_reason:
        return ""
    return "; ".join(_line(reason, traces) for reason, traces in by_reason.items())


def _line(reason: str, traces: list[SiteResult]) -> str:
    calls = sum(trace.calls for trace in traces)
    products = f"{calls:,} product{'s' * (calls != 1)}"
    if reason == Reason.TOO_SMALL:
        sizes = " or too ".join(sorted({_size(trace) for trace in traces}, reverse=True))
        return f"{products} of {_times(traces)}: too {sizes} for any level"
    if reason == SINGLE:
        return f"{products} of {_dtypes(traces)}: a processor has no faster level"
    return f"{products}: {MEANING[reason].rstrip('.')}"


def _reason(trace: SiteResult) -> str:
    """The reason of most calls, where each call has one; "" where some call has none."""
    has_shapes = all(any(shape) for *shape, _ in trace.shapes)
    if has_shapes and Reason.LOOP in trace.unsuited:
        return ""
    if sum(trace.unsuited.values()) >= trace.calls and trace.unsuited:
        return max(trace.unsuited, key=trace.unsuited.__getitem__)
    is_single = has_shapes and not is_wide(*trace.dtypes) and not are_whole(*trace.dtypes)
    return SINGLE if is_single else ""


def _largest(trace: SiteResult) -> tuple[int, int, int]:
    m, k, n, _ = max(trace.shapes, key=lambda shape: prod(shape[:3]))
    return m, k, n


def _size(trace: SiteResult) -> str:
    """The fault of the largest product of a site that `float32` would not make faster.

    It is small where a cube of as many multiplications is too small as well, else narrow.
    """
    m, k, n = _largest(trace)
    return "small" if is_small_cube(m * k * n) else "narrow"


def _times(traces: list[SiteResult]) -> str:
    """The mean time of a product; of those that differ much, the means of their sites."""
    means = [trace.seconds / trace.calls for trace in traces]
    if max(means) <= ALIKE * min(means):
        calls = sum(trace.calls for trace in traces)
        return f"about {_time(sum(trace.seconds for trace in traces) / calls)}"
    return f"{_time(min(means))} to {_time(max(means))}"


def _dtypes(traces: Iterable[SiteResult]) -> str:
    names = list(dict.fromkeys(name for trace in traces for name in trace.dtypes))
    return " and ".join(names) if len(names) < SEVERAL else f"{len(names)} types"


def _time(seconds: float) -> str:
    if seconds < SHORTEST:
        return f"{max(round(seconds * 1e6), 1)} µs"
    return clock_unit((seconds,)).quantity(seconds)
