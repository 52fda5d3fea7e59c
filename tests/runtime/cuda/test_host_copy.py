"""Copies by several threads: the same as by one, whatever the layout and whatever happens."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.cuda import host_copy
from mixpert_py.runtime.cuda.host_copy import copy

ROOT = Path(__file__).parents[3]
BAND = 1 << 10


HELPERS = host_copy._Helpers()  # these tests' own


@pytest.fixture
def helpers(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Three of them, and small bands."""
    monkeypatch.setattr(host_copy, "_helpers", HELPERS)
    monkeypatch.setattr(host_copy, "_cores", lambda: 4)
    monkeypatch.setattr(host_copy, "BAND_BYTES", BAND)
    return HELPERS


def running() -> int:
    return sum(thread.name.startswith("host copy") for thread in threading.enumerate())


def normal(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


LAYOUTS = {
    "C": normal(300, 70),
    "F": normal(70, 300).T,
    "rows reversed": normal(300, 70)[::-1],
    "columns reversed": normal(300, 70)[:, ::-1],
    "a row again and again": np.broadcast_to(normal(70), (300, 70)),
    "a column again and again": np.broadcast_to(normal(300, 1), (300, 70)),
    "a number again and again": np.broadcast_to(np.float32(7), (300, 70)),
    "every second": normal(600, 140)[::2, 1::2],
    "one row": normal(1, 21000),
    "one column": normal(21000, 1),
    "three long rows": normal(3, 7000),
    "a vector": normal(21000),
    "a stack": normal(7, 60, 50).transpose(2, 0, 1),
}


@pytest.mark.usefixtures("helpers")
@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_it_is_what_one_thread_copies(layout: str, order: Any, dtype: str) -> None:
    source = LAYOUTS[layout]
    target = np.empty(source.shape, dtype, order)
    copy(target, source)
    assert target.tobytes() == source.astype(dtype).tobytes()


@pytest.mark.usefixtures("helpers")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_bands_are_many_and_cover_all_once(layout: str) -> None:
    source = LAYOUTS[layout]
    count = np.zeros(source.shape, np.float32)
    bands = host_copy._bands(count, source)
    for target, part in bands:
        assert target.shape == part.shape
        target += 1
    assert (count == 1).all()
    assert len(bands) > source.size * 4 / BAND / 2


def test_small_copies_are_the_callers_own(helpers: Any) -> None:
    helpers.forget()
    before = running()
    target = np.empty(BAND // 4 * 2 - 1, np.float32)
    copy(target, np.ones_like(target))
    assert (target == 1).all()
    assert running() == before
    copy(np.empty(BAND, np.float32), np.ones(BAND, np.float32))
    assert running() == before + 3


def test_all_threads_help(helpers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(4)
    as_it_is = np.copyto

    def met(target: Any, source: Any) -> None:
        together.wait(timeout=20)
        as_it_is(target, source)

    monkeypatch.setattr(np, "copyto", met)
    source = normal(4, BAND // 4)
    target = np.empty_like(source)
    copy(target, source)
    np.testing.assert_array_equal(target, source)


def test_no_thread_is_no_error(helpers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    helpers.forget()
    source = normal(300, 70)
    target = np.empty_like(source)
    copy(target, source)
    np.testing.assert_array_equal(target, source)
    helpers.forget()


@pytest.mark.usefixtures("helpers")
def test_what_cannot_be_cast_is_the_callers_error() -> None:
    source = normal(300, 70)
    for _ in range(3):
        with pytest.raises(TypeError, match="Cannot cast"):
            copy(np.empty(source.shape, np.int32), source)
    target = np.empty_like(source)
    copy(target, source)  # the helpers are still there
    np.testing.assert_array_equal(target, source)


@pytest.mark.usefixtures("helpers")
@pytest.mark.parametrize("who", ["caller", "helper"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_nobody_writes_after_an_error(
    monkeypatch: pytest.MonkeyPatch, who: str, error: type[BaseException]
) -> None:
    as_it_is, caller = np.copyto, threading.current_thread()
    writing: list[Any] = []
    raised: list[bool] = []

    def interrupted(target: Any, source: Any) -> None:
        writing.append(target)
        sleep(0.002)
        if (threading.current_thread() is caller) == (who == "caller") and not raised:
            raised.append(True)
            writing.pop()
            raise error
        as_it_is(target, source)
        writing.pop()

    monkeypatch.setattr(np, "copyto", interrupted)
    source = normal(300, 70)
    with pytest.raises(error):
        copy(np.empty_like(source), source)
    assert not writing


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="nobody sends signals here")
@pytest.mark.usefixtures("helpers")
def test_nobody_writes_after_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    as_it_is, interrupted, main = np.copyto, 0, threading.get_ident()

    def slow(target: Any, source: Any) -> None:
        sleep(0.0002 if threading.get_ident() == main else 0.004)
        as_it_is(target, source)

    def copy_until_interrupted(target: Any, delay: float) -> None:
        threading.Timer(delay, signal.pthread_kill, (main, signal.SIGINT)).start()
        copy(target, source)
        while True:
            sleep(0.001)

    monkeypatch.setattr(np, "copyto", slow)
    source = np.ones((20, BAND // 4), np.float32)
    for number in range(60):
        target = np.zeros_like(source)
        with pytest.raises(KeyboardInterrupt):
            copy_until_interrupted(target, 0.0001 * number)
        interrupted += not target.all()
        target[:] = 3
        sleep(0.006)
        assert (target == 3).all()
    assert interrupted > 5


def test_many_threads_copy_at_once(helpers: Any) -> None:
    helpers.forget()
    before, wrong = running(), []

    def work(number: int) -> None:
        source = np.full((300, 70), number, np.float32)
        for _ in range(50):
            target = np.empty_like(source)
            copy(target, source)
            if not (target == number).all():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert running() == before + 3


def test_cores_are_those_that_the_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3, 5, 9}, raising=False)
    assert host_copy._cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert host_copy._cores() == 1


FORKING = """
import os, threading
import numpy as np
from mixpert_py.runtime.cuda import host_copy

host_copy._cores = lambda: 4

def right():
    x = np.random.default_rng(0).standard_normal((4 << 20,))
    y = np.empty_like(x)
    host_copy.copy(y, x)
    helpers = [t for t in threading.enumerate() if t.name.startswith("host copy")]
    return (x == y).all() and len(helpers) == 3

assert right()
child = os.fork()
if child == 0:
    os._exit(0 if right() and right() else 1)
assert os.waitpid(child, 0)[1] == 0
assert right()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nobody forks here")
def test_a_fork_has_helpers_of_its_own_and_the_end_waits_for_none() -> None:
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKING], cwd=ROOT, check=True, timeout=60
    )
