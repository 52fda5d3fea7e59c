"""Runs that are made ahead: at the same time, no more than allowed, and stopped when it ends."""

import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from math import inf

import pytest

from mixpert_py.execution import process
from mixpert_py.tuner.records import Measurement
from mixpert_py.tuning.search import Speculation

PLANS = [{"x": str(number)} for number in range(12)]


class Runs:
    """Measures by waiting; counts."""

    def __init__(self, seconds: float = 0.05) -> None:
        self.made: list[str] = []
        self.at_once = self.most = 0
        self._seconds = seconds
        self._lock = threading.Lock()

    def __call__(self, plan: Mapping[str, str], /) -> Measurement:
        with self._lock:
            self.made.append(plan["x"])
            self.at_once += 1
            self.most = max(self.most, self.at_once)
        stop = process.stop.get()
        end = time.monotonic() + self._seconds
        while time.monotonic() < end and not (stop is not None and stop.is_set()):
            time.sleep(0.001)
        with self._lock:
            self.at_once -= 1
        return Measurement(float(plan["x"]), 0.0, {})


@pytest.mark.parametrize("count", [1, 2, 4])
def test_what_is_expected_is_made_at_the_same_time_and_once(count: int) -> None:
    runs = Runs()
    start = time.monotonic()
    with Speculation(runs, count) as ahead:
        for number, plan in enumerate(PLANS):
            ahead.expect(PLANS[number:])
            assert ahead(plan).seconds == number
    assert time.monotonic() - start < 0.05 * len(PLANS) / count * 1.5 + 0.2
    assert sorted(runs.made, key=int) == [plan["x"] for plan in PLANS]
    assert runs.most == count


def test_wrong_guesses_are_not_begun() -> None:
    runs = Runs(0.1)
    with Speculation(runs, 2) as ahead:
        ahead.expect(PLANS[:4])
        ahead.expect(PLANS[9:])
        assert ahead(PLANS[9]).seconds == 9
    assert "3" not in runs.made


def test_an_error_is_raised_where_its_plan_is_asked_for() -> None:
    def measure(plan: Mapping[str, str], /) -> Measurement:
        if plan["x"] == "1":
            raise ValueError("of 1")
        time.sleep(0.1)
        return Measurement(0.0, 0.0, {})

    with Speculation(measure, 2) as ahead:
        ahead.expect(PLANS[:2])
        ahead(PLANS[0])
        with pytest.raises(ValueError, match="of 1"):
            ahead(PLANS[1])


def test_its_end_stops_what_runs() -> None:
    runs = Runs(inf)
    with Speculation(runs, 3) as ahead:
        ahead.expect(PLANS)
        while runs.at_once < 2:
            time.sleep(0.01)
    assert runs.at_once == 0
    assert not ahead.interrupted


@pytest.fixture
def heard() -> Iterator[None]:
    """SIGINT is heard, even where whoever began these tests ignores it, as `nohup` does."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heard")
def test_an_interrupt_is_heard_while_it_waits() -> None:
    runs = Runs(inf)
    timer = threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT])

    def wait() -> None:
        with Speculation(runs, 2) as ahead:
            ahead.expect(PLANS)
            while not runs.at_once:
                time.sleep(0.01)
            timer.start()
            ahead(PLANS[1])  # which a thread is making

    with pytest.raises(KeyboardInterrupt):
        wait()
    assert runs.at_once == 0


@pytest.mark.usefixtures("heard")
def test_an_interrupt_at_its_end_is_told() -> None:
    def measure(plan: Mapping[str, str], /) -> Measurement:
        stop = process.stop.get()
        while stop is None or not stop.is_set():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)
        return Measurement(0.0, 0.0, {})

    with Speculation(measure, 2) as ahead:
        ahead.expect(PLANS)
    assert ahead.interrupted
