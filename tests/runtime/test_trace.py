"""The trace: counts that add up, from many threads at once."""

import math
import threading

import numpy as np
import pytest

from mixpert_py.runtime.dispatch import matmul
from mixpert_py.runtime.in_force import InForce, use
from mixpert_py.runtime.trace import Reason, Trace

THREADS, CALLS = 8, 1000


def test_counts_are_exact_under_threads() -> None:
    trace = Trace()
    force = InForce(scheme="int8x6", trace=trace)
    start = threading.Barrier(THREADS)

    def work(number: int) -> None:
        a = np.eye(1 + number % 2)
        start.wait()
        with use(force):
            for call in range(CALLS):
                matmul(a, a, site=f"site {call % 3}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(trace.sites) == {"site 0", "site 1", "site 2"}
    total = sum(record.calls for record in trace.sites.values())
    assert total == THREADS * CALLS
    for record in trace.sites.values():
        assert record.shapes == {(1, 1, 1): record.calls // 2, (2, 2, 2): record.calls // 2}
        assert record.schemes == {"native": record.calls}
        (reason,) = record.reasons  # the second where there is a GPU
        assert reason in (Reason.NO_TENSOR_CORE, Reason.TOO_SMALL)
        assert record.reasons[reason] == record.calls
        assert record.seconds > 0


def test_a_call_without_a_site_is_counted() -> None:
    trace = Trace()
    with use(InForce(trace=trace)):
        matmul(np.eye(2), np.eye(2))
        matmul(np.eye(2), np.eye(2), scheme="float64")
    assert trace.sites["-"].schemes == {"native": 1, "float64": 1}


@pytest.mark.parametrize(
    ("errors", "kept"),
    [([1e-7, 3e-7, 2e-7], 3e-7), ([0.0], 0.0), ([math.inf, 1.0], math.inf)],
)
def test_the_largest_error_stays(errors: list[float], kept: float) -> None:
    trace = Trace()
    for error in errors:
        trace.add_errors("s", {"fp16": error})
    assert trace.sites["s"].errors == {"fp16": kept}


@pytest.mark.parametrize("place", range(3))
def test_not_a_number_is_the_largest(place: int) -> None:
    trace = Trace()
    errors = [1.0, math.inf]
    errors.insert(place, math.nan)
    for error in errors:
        trace.add_errors("s", {"fp16": error})
    assert math.isnan(trace.sites["s"].errors["fp16"])


def test_results_are_kept_of_the_sites_asked_for() -> None:
    trace = Trace(keep=["kept"])
    a = np.eye(2)
    with use(InForce(trace=trace)):
        for site in ("kept", "other"):
            result = matmul(a, a, np.empty((2, 2)), site=site)
            result[:] = 7  # the program goes on using its array
    assert list(trace.results) == ["kept"]
    np.testing.assert_array_equal(trace.results["kept"], a)


def test_the_largest_share_of_outliers_stays() -> None:
    trace = Trace()
    for share in (0.1, 0.3, 0.0):
        trace.add("s", (1, 1, 1), "float32", "int8x6", None, 0.1, share)
    assert trace.sites["s"].outliers == 0.3
