"""The ladder; the median and the spread of repeated runs."""

from math import inf, isnan, nan

import pytest

from mixpert_py.tuner.records import Measurement, median_of, time_noise


def run(seconds: float, error: float = 0.0) -> Measurement:
    return Measurement(seconds, error, {"a": seconds / 2})


def test_middle_is_the_median_time_and_the_largest_error() -> None:
    runs = [run(3.0, 1e-6), run(9.0, 3e-6), run(1.0, 2e-6)]
    assert median_of(runs) == Measurement(3.0, 3e-6, {"a": 1.5})


def test_a_nan_is_the_largest_error() -> None:
    assert isnan(median_of([run(1.0, 1.0), run(1.0, nan), run(1.0, inf)]).error)


def test_a_site_that_ran_in_some_runs_only() -> None:
    runs = [run(1.0), run(1.0), Measurement(1.0, 0.0, {})]
    assert median_of(runs).site_seconds == {"a": 0.5}


def test_noise_grows_with_the_spread() -> None:
    narrow = time_noise([run(1.8), run(2.0), run(2.2)])["a"]
    wide = time_noise([run(1.6), run(2.0), run(2.4)])["a"]
    assert narrow == pytest.approx(3 * 1.4826 * 0.1)
    assert wide == pytest.approx(2 * narrow)
