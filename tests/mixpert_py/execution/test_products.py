"""Products by themselves: their errors and times by scheme, within the seconds there are."""

import warnings
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count, cycle, repeat
from typing import Any

import numpy as np
import pytest

from mixpert_py.execution import products
from mixpert_py.execution.products import MeasuredProduct, measure
from mixpert_py.runtime.request import Call, matmul_shape
from mixpert_py.runtime.tracing.captures import CapturedCall, Captures
from mixpert_py.runtime.tracing.local_errors import local_errors
from mixpert_py.runtime.tracing.trace import SiteTrace
from mixpert_py.tuner.ratio import LOOKS

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


def test_of_a_long_product_a_part_is_multiplied() -> None:
    def shapes(a: Matrix, b: Matrix, seconds: float) -> list[tuple[int, ...]]:
        return [x.shape for x in products._part(a, b, seconds)]

    a, b, longest = np.ones((1000, 4)), np.ones((4, 3000)), products.LONGEST
    assert shapes(a, b, longest) == [(1000, 4), (4, 3000)]
    assert shapes(a, b, 4 * longest) == [(500, 4), (4, 1500)]
    assert shapes(a, b, 1e9) == [(products.LEAST_ROWS, 4), (4, products.LEAST_ROWS)]
    assert shapes(a, b[:, 0], 2 * longest) == [(500, 4), (4,)]
    stack = np.ones((8, 1000, 4))
    assert shapes(stack, b, 4 * longest) == [(2, 1000, 4), (4, 3000)]
    assert shapes(stack, np.ones((8, 4, 600)), 4 * longest) == [(8, 500, 4), (8, 4, 300)]
    assert shapes(np.ones(4), b, 1e9) == [(4,), (4, 3000)]


def test_the_native_product_is_the_programs_own() -> None:
    calls: list[int] = []

    def native(a: Matrix, b: Matrix) -> Matrix:
        calls.append(1)
        return a @ b

    call, record = called("s:1", 200, "float64", 1.0)
    measured((replace(call, native=native), record))
    assert calls


def test_blas_has_as_many_threads_as_in_the_program() -> None:
    threadpoolctl = pytest.importorskip("threadpoolctl")

    def threads() -> set[int]:
        found = threadpoolctl.threadpool_info()
        return {one["num_threads"] for one in found if one["user_api"] == "blas"}

    def native(a: Matrix, b: Matrix) -> Matrix:
        seen.append(threads())
        return a @ b

    before, seen = threads(), list[set[int]]()
    call, record = called("s:1", 200, "float64", 1.0)
    captures = Captures()
    with threadpoolctl.threadpool_limits(3, user_api="blas"):
        dtypes = ("float64", "float64")
        captures.add(
            "s:1", call.shape, dtypes, Call(np.matmul, call.a, call.b, (), None, matmul_shape)
        )
    measured((replace(captures.calls[0], native=native), record))
    assert set(map(tuple, seen)) == {(3,)}
    assert threads() == before


def test_a_product_that_the_program_wrote_into_an_array_is_written_into_one() -> None:
    outs: list[Matrix] = []

    def native(a: Matrix, b: Matrix, out: Matrix | None = None) -> Matrix:
        if a.dtype == np.float64:  # else it is cast back
            assert out is not None
            outs.append(out)
        return np.matmul(a, b, out=out)

    call, record = called("s:1", 200, "float64", 1.0)
    captures, out = Captures(), np.empty((200, 1024))[:, :200]
    dtypes = ("float64", "float64")
    captures.add("s:1", call.shape, dtypes, Call(native, call.a, call.b, (), out, matmul_shape))
    measured((replace(captures.calls[0], native=native), record))
    assert len({id(one) for one in outs}) == 1
    assert outs[0] is not out
    assert outs[0].strides == (4096, 8)  # its rows, too, begin where a page of memory does


def test_each_call_that_counts_follows_one_of_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def recorded(call: CapturedCall, scheme: str) -> Callable[[], bool]:
        return lambda: order.append(scheme) is None

    monkeypatch.setattr(products, "_function", recorded)
    call, _ = called("s:1", 8, "float64", 1.0)
    product = products._Product(call, 1.0, MeasuredProduct("s:1", call.shape, {}, {}))
    ticks = count()
    monkeypatch.setattr(products, "perf_counter", lambda: next(ticks))
    found = products._times(product, "x", 1e300)
    assert found is not None
    assert (found.native, found.ratio.mean, found.ratio.half_width) == (1.0, 1.0, 0.0)
    # The second of each kind is timed, and the third with the next pair.
    assert order == ["x", *["native"] * 2, *["x"] * 3, *["native"] * 3, *["x"] * 2]
    order.clear()
    products._times(product, "x", 0.0)
    assert len(order) == 1 + 1 + 3 * LOOKS[0]  # until the first look at least


def test_a_result_lives_until_the_next_one_is_made() -> None:
    made: list[weakref.ref[Matrix]] = []
    alive: list[int] = []

    def native(a: Matrix, b: Matrix) -> Matrix:
        result = a @ b
        if a.dtype == np.float64:  # else it is cast back
            alive.append(sum(one() is not None for one in made))
            made.append(weakref.ref(result))
        return result

    call, record = called("s:1", 200, "float64", 1.0)
    measured((replace(call, native=native), record))
    assert alive == [0] + [1] * (len(made) - 1)


def test_there_are_pairs_until_they_tell_which_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    def rounds(ratios: Iterator[float], stop: float = 1e300) -> int:
        """The rounds that were made. ratios: of the scheme's time, round by round."""
        spent, now, calls = [0.0], [1.0], [0]

        def recorded(call: CapturedCall, scheme: str) -> Callable[[], bool]:
            def make() -> bool:
                calls[0] += 1
                if calls[0] % 3 == 0:  # the first of a pair, after two that are not counted
                    now[0] = next(ratios)
                spent[0] += now[0] if scheme == "x" else 1.0
                return True

            return make

        monkeypatch.setattr(products, "_function", recorded)
        monkeypatch.setattr(products, "perf_counter", lambda: spent[0])
        call, _ = called("s:1", 8, "float64", 1.0)
        product = products._Product(call, 0.1, MeasuredProduct("s:1", call.shape, {}, {}))
        products._times(product, "x", stop)
        return (calls[0] - 2) // 3

    assert rounds(repeat(0.5)) == LOOKS[0]
    assert rounds(repeat(1.5)) == LOOKS[0]
    assert rounds(cycle([0.5, 0.8])) in LOOKS[1:-1]
    assert rounds(cycle([0.5, 2.0])) == LOOKS[-1]
    assert rounds(cycle([0.5, 2.0]), stop=16.0) == 5  # begun before, the sixth is not


def test_a_native_product_that_is_not_known_takes_as_long_as_in_the_run() -> None:
    call, record = called("s:1", 400, "float64", 6.0)
    record.shapes[400, 400, 400] += 1
    (found,) = measured((replace(call, native=None), record))
    times = found.times["float32"]
    assert times is not None
    assert times.native == 3.0  # of the whole product, though a part was made
    assert 0 < times.ratio.mean < 1


def test_products_that_take_no_time_to_speak_of_are_not_made_again() -> None:
    long, short = called("s:1", 20, "float64", 2.0), called("s:2", 30, "float64", 1e-3)
    assert [product.site for product in measured(long, short)] == ["s:1"]
    equal = [called(f"s:{number}", 20, "float64", 1.0) for number in range(200)]
    records = {call.site: record for call, record in equal}
    assert len(products._longest_first([call for call, _ in equal], records)) == 198


def test_every_product_has_its_time_before_any_has_its_errors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[tuple[str, ...]] = []

    def errors(a: Matrix, b: Matrix, levels: list[str]) -> dict[str, float]:
        begun.append((str(len(a)), *levels))
        return dict.fromkeys(levels, 1e-9)

    monkeypatch.setattr(products, "local_errors", errors)
    found = measured(called("s:1", 200, "float64", 2.0), called("s:2", 300, "float64", 1.0))
    assert all(product.times["float32"] is not None for product in found)
    emulations = ("int8x6", "int8x3")
    assert begun == [
        ("200", "float32"),
        ("300", "float32"),
        ("200", *emulations),
        ("300", *emulations),
    ]


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


def test_the_sample_for_errors_is_small_where_k_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes: list[tuple[int, ...]] = []

    def errors(a: Matrix, b: Matrix, levels: list[str]) -> dict[str, float]:
        shapes.append((*a.shape, *b.shape))
        return {}

    monkeypatch.setattr(products, "local_errors", errors)
    monkeypatch.setattr(products, "ERROR_WORK", 64 * 64 * 1000)
    for k in (1000, 100_000):
        record = SiteTrace(seconds=1.0)
        record.shapes[100, k, 100] += 1
        call = CapturedCall("s:1", (100, k, 100), np.matmul, np.ones((100, k)), np.ones((k, 100)))
        measured((call, record))
    assert shapes[::2] == [(64, 1000, 1000, 64), (32, 100_000, 100_000, 32)]
