"""Products made again, by themselves, on captured operands: their times and errors by scheme."""

import itertools
import operator
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from math import inf, isfinite, isqrt, prod, sqrt
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import msgspec
import numpy as np

from mixpert_py.runtime.api import carry_out
from mixpert_py.runtime.arrays import is_wide, name_of
from mixpert_py.runtime.gpu.foreign import wait_for
from mixpert_py.runtime.reasons import Reason, Shape
from mixpert_py.runtime.request import Call, Settings, matmul_shape, result_shape
from mixpert_py.runtime.scheme import AS_ACCURATE
from mixpert_py.runtime.schemes import get
from mixpert_py.runtime.select import are_integers
from mixpert_py.runtime.tracing.captures import CapturedCall, empty, shared_out
from mixpert_py.runtime.tracing.operand_statistics import (
    GROUP,
    MAX_SAMPLED_ROWS,
    local_errors,
    sampled,
)
from mixpert_py.runtime.tracing.trace import SiteTrace
from mixpert_py.tuner.ratio import LOOKS, Ratio, pairs_until_clear

NEGLIGIBLE = 0.01  # share of the products' time in the shortest, which are not made again
FOR_TIMES = 0.6  # of all seconds, where errors are measured too
LONGEST = 0.1  # seconds of one product; of a longer one only a part is multiplied
LEAST_ROWS = 256  # of A, and columns of B, in a part
ERROR_WORK = 1 << 27  # multiply-adds of a sample whose errors are measured: all levels take 0.2 s


class ProductTimes(msgspec.Struct, frozen=True):
    """A captured product's time natively, and the ratio of that under a scheme, in turn with it.

    native: seconds of the whole product, also where a part of it was made.
    """

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


class _Product(NamedTuple):
    """A captured call, what is measured, and seconds in the run: of one call, and of all."""

    call: CapturedCall
    each: float
    measured: MeasuredProduct
    taken: float = 0.0


def measure(
    calls: Sequence[CapturedCall],
    sites: Mapping[str, SiteTrace],
    timed: Sequence[str],
    levels: Sequence[str],
    seconds: float,
    patience: float,
) -> list[MeasuredProduct]:
    """Make each product under each scheme, those that take most of the program's time first.

    timed: schemes whose times are measured; levels: those whose errors are. First come all times,
    then the errors of casts, then those of emulations; what is not begun within the seconds is
    missing. But a product that was timed has the errors of casts, too, and the longest product
    those of emulations: a time is useless without an error. patience: the seconds for one product
    under one scheme. No trace may be in force.
    """
    end = perf_counter() + seconds
    products = _longest_first(calls, sites)
    casts = [level for level in levels if get(level).kind == "cast"]
    # How the program has NumPy and Python treat warnings is not for these products.
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        until = perf_counter() + (FOR_TIMES * seconds if levels else seconds)
        remaining = len(timed) * sum(product.taken for product in products)
        for product, scheme in itertools.product(products, timed):
            if (now := perf_counter()) >= until:
                break
            # At least as large a part of the seconds as it takes of the products' time in the run.
            share = product.taken / remaining if remaining else 1.0
            stop = now + min(patience, (until - now) * share)
            remaining -= product.taken
            with suppress(Exception), _blas_threads(product.call.threads):  # no memory, say
                product.measured.times[scheme] = _times(product, scheme, stop)
                if get(scheme).kind in AS_ACCURATE and product.measured.times[scheme] is not None:
                    product.measured.errors[scheme] = 0.0
        for product in products:
            _measure_errors(product, casts, inf if product.measured.times else end)
        emulations = [level for level in levels if level not in casts]
        for product in products:
            is_longest = product is products[0] and product.measured.times
            _measure_errors(product, emulations, inf if is_longest else end)
    found = (product.measured for product in products)
    return [measured for measured in found if measured.times or measured.errors]


def _longest_first(calls: Sequence[CapturedCall], sites: Mapping[str, SiteTrace]) -> list[_Product]:
    """The captured calls, that of the kind that takes most of the time first, but the shortest."""
    found = []
    for call in calls:
        record = sites[call.site]
        shapes = ((*shape, count) for shape, count in record.shapes.items())
        taken = shared_out(record.seconds, shapes).get(call.shape, 0.0)
        each = taken / max(record.shapes[call.shape], 1)
        measured = MeasuredProduct(call.site, call.shape, {}, {})
        found.append(_Product(call, each, measured, taken))
    found.sort(key=lambda product: -product.taken)
    left = sum(product.taken for product in found)
    least = NEGLIGIBLE * left
    products: list[_Product] = []
    for product in found:
        if left > least or not products:
            products.append(product)
        left -= product.taken
    return products


def _blas_threads(count: int | None) -> Any:
    """A block with as many BLAS threads as the program had, set as the program set them."""
    limits: Any = sys.modules.get("threadpoolctl")
    return nullcontext() if count is None else limits.threadpool_limits(count, user_api="blas")


def _measure_errors(product: _Product, levels: Sequence[str], end: float) -> None:
    if not levels or perf_counter() >= end:
        return
    call, measured = product.call, product.measured
    with suppress(Exception):
        k = max(call.shape[1], 1)
        rows = max(min(isqrt(ERROR_WORK // k) // GROUP * GROUP, MAX_SAMPLED_ROWS), GROUP)
        errors = local_errors(*sampled(call.a, call.b, rows), levels)
        measured.errors.update({x: e if isfinite(e) else None for x, e in errors.items()})


def _part(a: Any, b: Any, seconds: float) -> tuple[Any, Any]:
    """Return a part of the operands whose product takes about LONGEST seconds, or all of them.

    seconds: the time that the product of all takes. Rows of A and columns of B are left out alike:
    the fewer there are of one, the more the casting of the other counts.
    """
    if a.ndim < 2 or seconds <= LONGEST:
        return a, b
    part = LONGEST / seconds
    if a.ndim > 2 and b.ndim <= 2:
        return a[: max(1, int(a.shape[0] * part))], b
    if b.ndim < 2:
        return a[..., : max(LEAST_ROWS, int(a.shape[-2] * part)), :], b
    rows, columns = (max(LEAST_ROWS, int(n * sqrt(part))) for n in (a.shape[-2], b.shape[-1]))
    return a[..., :rows, :], b[..., :columns]


def _times(product: _Product, scheme: str, stop: float) -> ProductTimes | None:
    """Pairs of a native product and one under the scheme, until they tell which is faster or time
    is over; None where the scheme is not taken.

    Each pair is in the other order than the one before: a machine that slows down disturbs both
    alike. Only a call that follows one of its own kind is timed, as in the program: the first finds
    the caches as the other kind left them. Where the native function is not known, the native time
    is that of the run.
    """
    call = product.call
    if scheme == "float32" and not is_wide(name_of(call.a.dtype), name_of(call.b.dtype)):
        return None  # it is the native product
    # BLAS makes the native product of all calls but einsums, which may not use it.
    is_blas = call.native is not None and call.a.dtype != np.float16
    if (scheme == "exact") != are_integers(call.a, call.b) or (scheme == "blas" and is_blas):
        return None
    a, b = _part(call.a, call.b, product.each)
    call = replace(call, a=a, b=b)
    ours, native = _function(call, scheme), _function(call, "native")
    if not ours():
        return None
    part = _work(matmul_shape(call.a, call.b)) / _work(call.shape)
    if call.native is None:
        seconds = [_seconds(ours)]
        while len(seconds) < 2 * LOOKS[0] and perf_counter() < stop:
            seconds.append(_seconds(ours))
        natively = product.each * part
        return ProductTimes(product.each, Ratio.of([(natively, one) for one in seconds]))

    def pair(number: int) -> tuple[float, float]:
        first, second = (ours, native) if number % 2 else (native, ours)
        one = _seconds(first)
        second()
        other = _seconds(second)
        return (other, one) if number % 2 else (one, other)

    native()
    pairs = pairs_until_clear(pair, lambda: perf_counter() < stop)
    return ProductTimes(median(before for before, _ in pairs) / part, Ratio.of(pairs))


def _work(shape: Shape | Reason) -> int:
    return 1 if isinstance(shape, Reason) else max(prod(shape), 1)


def _function(captured: CapturedCall, scheme: str) -> Callable[[], bool]:
    """A function that makes the product, waits for it, and returns whether the scheme made it.

    The result lives until the next one is made, as in most programs: the C library would return the
    memory of results that are dropped at once to the system, and each product would wait for it.
    """
    native, a, b = captured.native or operator.matmul, captured.a, captured.b
    strides = captured.out_strides
    out = empty(result_shape(a, b), np.result_type(a, b), strides) if strides else None
    call = Call(native, a, b, (), out, matmul_shape)
    settings = Settings(scheme=scheme)
    last: Any = None

    def make() -> bool:
        nonlocal last
        last, product = carry_out(call, settings)
        wait_for(last)
        return product is not None and product.scheme == scheme

    return make


def _seconds(function: Callable[[], Any]) -> float:
    start = perf_counter()
    function()
    return perf_counter() - start
