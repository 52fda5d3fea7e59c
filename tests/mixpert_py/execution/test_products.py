"""Products by themselves: their errors and times by scheme, within the seconds there are."""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from mixpert_py.execution.products import MeasuredProduct, measure
from mixpert_py.runtime.tracing.captures import CapturedCall
from mixpert_py.runtime.tracing.operand_statistics import local_errors
from mixpert_py.runtime.tracing.trace import SiteTrace

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
        assert 0 < times.ratio.least <= times.ratio.mean


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


def test_no_time_is_without_its_error_when_the_seconds_are_over() -> None:
    pairs = [called(f"s:{n}", n, "float64", float(n)) for n in (400, 500, 600)]
    longest, *others = measured(*pairs, seconds=0.01)
    assert longest.times["float32"] is not None
    assert set(longest.errors) == set(LEVELS)
    assert all(("float32" in other.errors) >= ("float32" in other.times) for other in others)


def test_the_native_product_is_the_programs_own() -> None:
    calls: list[int] = []

    def native(a: Matrix, b: Matrix) -> Matrix:
        calls.append(1)
        return a @ b

    call, record = called("s:1", 200, "float64", 1.0)
    measured((replace(call, native=native), record))
    assert calls


def test_a_native_product_that_is_not_known_takes_as_long_as_in_the_run() -> None:
    call, record = called("s:1", 400, "float64", 6.0)
    record.shapes[400, 400, 400] += 1
    (found,) = measured((replace(call, native=None), record))
    times = found.times["float32"]
    assert times is not None
    assert times.native == 3.0  # of the whole product, though a part was made
    assert 0 < times.ratio.mean < 1


def test_what_the_program_makes_of_warnings_does_not_count() -> None:
    call, record = called("s:1", 200, "float64", 1.0)
    call.a[:] = 1e30
    with np.errstate(all="raise"), warnings.catch_warnings():
        warnings.simplefilter("error")
        (found,) = measured((call, record))
    assert found.times["float32"] is not None


def test_a_product_that_cannot_be_made_again_is_missing() -> None:
    def native(a: Matrix, b: Matrix) -> Matrix:
        raise MemoryError

    broken, sound = called("s:1", 200, "float64", 2.0), called("s:2", 300, "float64", 1.0)
    found = measured((replace(broken[0], native=native), broken[1]), sound)
    assert [sorted(product.times) for product in found] == [[], ["float32"]]
