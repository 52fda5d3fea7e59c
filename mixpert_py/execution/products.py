"""Products made again, by themselves, on captured operands: their times and errors by scheme."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from statistics import median
from time import perf_counter
from typing import Any

import msgspec

from mixpert_py.runtime.api import carry_out
from mixpert_py.runtime.dtypes import is_wide, name_of
from mixpert_py.runtime.gpu.foreign import wait_for
from mixpert_py.runtime.reasons import Shape
from mixpert_py.runtime.request import Call, Settings, matmul_shape
from mixpert_py.runtime.tracing.captures import CapturedCall, shared_out
from mixpert_py.runtime.tracing.local_errors import local_errors
from mixpert_py.runtime.tracing.trace import SiteTrace
from mixpert_py.tuner.ratio import Pace, Ratio

LEAST_ROUNDS, MOST_ROUNDS = 3, 60  # of native, scheme, scheme, native
LONGEST = 0.5  # seconds of one product; of a longer one only some rows of A are multiplied
LEAST_ROWS = 64


class ProductTimes(msgspec.Struct, frozen=True):
    """A captured product's time natively, and the ratio of that under a scheme, in turn with it."""

    native: float
    ratio: Ratio


class MeasuredProduct(msgspec.Struct, frozen=True):
    """The products of one site and shape, made by themselves on the captured operands.

    errors: scheme → relative Frobenius error against float64; None: not a number. times: by those
    schemes that were timed; None: the scheme did not take these operands.
    """

    site: str
    shape: Shape
    errors: dict[str, float | None]
    times: dict[str, ProductTimes | None]


def measure(
    calls: Sequence[CapturedCall],
    sites: Mapping[str, SiteTrace],
    timed: Sequence[str],
    levels: Sequence[str],
    seconds: float,
    patience: float,
) -> list[MeasuredProduct]:
    """Make each product under each scheme, those that take most of the program's time first.

    sites: the traces of the run. timed: schemes whose times are measured; levels: those whose
    errors are. What is not begun within the seconds is missing. patience: seconds after which no
    other round is begun for one product under one scheme. No trace may be in force.
    """
    end = perf_counter() + seconds

    def time_in_program(call: CapturedCall) -> float:
        record = sites[call.site]
        shapes = ((*shape, count) for shape, count in record.shapes.items())
        return shared_out(record.seconds, shapes).get(call.shape, 0.0)

    found = []
    for call in sorted(calls, key=time_in_program, reverse=True):
        if perf_counter() > end:
            break
        count = sites[call.site].shapes[call.shape]
        a = _part(call.a, call.b, time_in_program(call) / max(count, 1))
        times: dict[str, ProductTimes | None] = {}
        for scheme in timed:
            if perf_counter() < end:
                times[scheme] = _times(replace(call, a=a), scheme, patience, end)
        errors = local_errors(call.a, call.b, levels) if perf_counter() < end else {}
        found.append(MeasuredProduct(call.site, call.shape, _finite(errors), times))
    return found


def _part(a: Any, b: Any, seconds: float) -> Any:
    """As much of A as is multiplied in LONGEST, where all of it takes so many seconds."""
    if a.ndim < 2 or seconds <= LONGEST:
        return a
    part = LONGEST / seconds
    if a.ndim > 2 and b.ndim <= 2:
        return a[: max(1, int(a.shape[0] * part))]
    return a[..., : max(LEAST_ROWS, int(a.shape[-2] * part)), :]


def _times(call: CapturedCall, scheme: str, patience: float, end: float) -> ProductTimes | None:
    """Rounds of native, scheme, scheme, native; None where the scheme is not taken.

    There are rounds until they tell which of the two is faster, or time is over. The first calls,
    which are not counted, show what is taken, and allocate memory.
    """
    if scheme == "float32" and not is_wide(name_of(call.a.dtype), name_of(call.b.dtype)):
        return None  # it is the native product
    native, ours = _product(call, "native"), _product(call, scheme)
    native()
    if not ours():
        return None
    end = min(perf_counter() + patience, end)
    rounds: list[tuple[float, float]] = []
    while len(rounds) < MOST_ROUNDS:
        first, second, third, fourth = map(_seconds, (native, ours, ours, native))
        rounds.append(((first + fourth) / 2, (second + third) / 2))
        is_clear = len(rounds) >= LEAST_ROUNDS and Ratio.of(rounds).pace is not Pace.UNCLEAR
        if is_clear or perf_counter() > end:
            break
    return ProductTimes(median(before for before, _ in rounds), Ratio.of(rounds))


def _product(captured: CapturedCall, scheme: str) -> Callable[[], bool]:
    """A function that makes the product, waits for it, and returns whether the scheme made it."""
    call = Call(captured.native, captured.a, captured.b, (), None, matmul_shape)
    settings = Settings(scheme=scheme)

    def make() -> bool:
        value, product = carry_out(call, settings)
        wait_for(value)
        return product is not None and product.scheme == scheme

    return make


def _seconds(function: Callable[[], Any]) -> float:
    start = perf_counter()
    function()
    return perf_counter() - start


def _finite(errors: Mapping[str, float]) -> dict[str, float | None]:
    return {scheme: error if isfinite(error) else None for scheme, error in errors.items()}
