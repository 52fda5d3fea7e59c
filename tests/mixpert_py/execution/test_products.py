"""Products by themselves: their errors and times by scheme, within the seconds there are."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count, cycle, repeat
from typing import Any

import numpy as np
import pytest

from mixpert_py.execution import products
from mixpert_py.execution.products import MeasuredProduct, ProductTimes, measure
from mixpert_py.runtime.tracing.captures import CapturedCall
from mixpert_py.runtime.tracing.local_errors import local_errors
from mixpert_py.runtime.tracing.trace import SiteTrace
from mixpert_py.tuner.ratio import Ratio

Matrix = np.ndarray[Any, Any]
LEVELS = ("int8x6", "int8x3", "float32")


def called(site: str, n: int, dtype: str, seconds: float) -> tuple[CapturedCall, SiteTrace]:
    a, b = np.random.default_rng(n).standard_normal((2, n, n)).astype(dtype)
    record = SiteTrace(seconds=seconds)
    record.shapes[n, n, n] += 1
    return CapturedCall(site, (n, n, n), np.matmul, a, b), record


def measured(
    *pairs: tuple[CapturedCall, SiteTrace], seconds: float = 60.0
) -> list[MeasuredProduct]:
    sites = {call.site: record for call, record in pairs}
    return measure([call for call, _ in pairs], sites, ["float32"], LEVELS, seconds, 0.4)


def test_the_longest_come_first_with_the_errors_of_the_profile() -> None:
    short, long = called("s:1", 200, "float64", 1.0), called("s:2", 300, "float64", 2.0)
    found = measured(short, long)
    assert [product.site for product in found] == ["s:2", "s:1"]
    for product, (call, _) in zip(found, (long, short), strict=True):
        assert product.shape == call.shape
        assert product.errors == local_errors(call.a, call.b, LEVELS)
        times = product.times["float32"]
        assert times is not None
        assert times.native > 0
        assert 0 < times.ratio.least <= times.ratio.mean <= times.ratio.most


def test_a_scheme_that_does_not_take_the_operands_has_no_time() -> None:
    (found,) = measured(called("s:1", 200, "float32", 1.0))  # they are of this type already
    assert found.times == {"float32": None}


def test_an_error_that_is_no_number_is_none() -> None:
    call, record = called("s:1", 8, "float64", 1.0)
    call.a[:] = 1e300  # out of float32's range
    (found,) = measured((call, record))
    assert found.errors["float32"] is None
    assert found.errors["int8x6"] is not None


def test_nothing_is_begun_when_the_seconds_are_over() -> None:
    assert measured(called("s:1", 8, "float64", 1.0), seconds=-1.0) == []


def test_of_a_long_product_a_part_is_multiplied() -> None:
    a, b = np.ones((1000, 4)), np.ones((4, 3))
    assert products._part(a, b, products.LONGEST) is a
    assert products._part(a, b, 4 * products.LONGEST).shape == (250, 4)
    assert products._part(a, b, 1e9).shape == (products.LEAST_ROWS, 4)
    stack = np.ones((8, 100, 4))
    assert products._part(stack, b, 4 * products.LONGEST).shape == (2, 100, 4)
    assert products._part(stack, np.ones((8, 4, 3)), 1e9).shape == (8, products.LEAST_ROWS, 4)
    assert products._part(np.ones(4), b, 1e9).shape == (4,)


def test_the_native_product_is_the_programs_own() -> None:
    calls: list[int] = []

    def native(a: Matrix, b: Matrix) -> Matrix:
        calls.append(1)
        return a @ b

    call, record = called("s:1", 200, "float64", 1.0)
    measured((replace(call, native=native), record))
    assert calls


def test_each_round_has_the_native_product_first_and_last(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def recorded(call: CapturedCall, scheme: str) -> Callable[[], bool]:
        return lambda: order.append(scheme) is None

    monkeypatch.setattr(products, "_product", recorded)
    ticks = count()
    monkeypatch.setattr(products, "perf_counter", lambda: next(ticks))
    found = products._times(called("s:1", 8, "float64", 1.0)[0], "x", 1e300, 1e300)
    assert found == ProductTimes(1.0, Ratio(1.0, 1.0, 1.0))
    assert order[:2] == ["native", "x"]
    assert len(order) == 2 + 4 * products.LEAST_ROUNDS
    assert order[2:6] == ["native", "x", "x", "native"]


def test_there_are_rounds_until_they_tell_which_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    def rounds(ratios: Iterator[float], patience: float = 1e300) -> int:
        """The rounds that were made. ratios: of the scheme's time, round by round."""
        spent = [0.0]
        calls: list[str] = []

        def recorded(call: CapturedCall, scheme: str) -> Callable[[], bool]:
            def make() -> bool:
                calls.append(scheme)
                first_of_round = len(calls) % 4 == 3  # after two that are not counted
                if first_of_round:
                    now[0] = next(ratios)
                spent[0] += now[0] if scheme == "x" else 1.0
                return True

            return make

        now = [1.0]
        monkeypatch.setattr(products, "_product", recorded)
        monkeypatch.setattr(products, "perf_counter", lambda: spent[0])
        products._times(called("s:1", 8, "float64", 1.0)[0], "x", patience, 1e300)
        return (len(calls) - 2) // 4

    assert rounds(repeat(0.5)) == products.LEAST_ROUNDS
    assert rounds(repeat(1.5)) == products.LEAST_ROUNDS
    assert products.LEAST_ROUNDS < rounds(cycle([0.5, 1.1])) < products.MOST_ROUNDS
    assert rounds(cycle([0.5, 2.0])) == products.MOST_ROUNDS
    assert rounds(cycle([0.5, 2.0]), patience=4.5) == 2  # begun before, the third is not
