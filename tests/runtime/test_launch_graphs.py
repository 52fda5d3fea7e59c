"""Graphs of launches: when they are built, launched and given up."""

import ctypes
import threading
from struct import unpack
from typing import Any

import pytest

from mixpert_py.runtime.kernels import launch_graphs
from mixpert_py.runtime.kernels.launch_graphs import (
    LAUNCHES_PER_GRAPH,
    MOST,
    RELAXED,
    KernelNode,
    LaunchGraphs,
    MemsetNode,
    is_idle,
)

MADE = ("cuGraphCreate", "cuGraphInstantiateWithFlags", "cuGraphAddKernelNode_v2")


class Driver:
    """Numbers what it makes, and notes what is done with it; `failing`: the call that fails."""

    def __init__(self, failing: str = "") -> None:
        self.failing = failing
        self.done: list[tuple[Any, ...]] = []
        self.made = 0
        self.mode = 0

    def cuThreadExchangeStreamCaptureMode(self, mode: Any) -> int:  # noqa: N802
        self.mode, mode._obj.value = mode._obj.value, self.mode
        return 0

    def __getattr__(self, name: str) -> Any:
        def call(*given: Any) -> int:
            if name != "cuGraphLaunch":
                assert self.mode == RELAXED  # else it may end another thread's capture
            if name in MADE or name == "cuGraphAddMemsetNode":
                self.made += 1
                given[0]._obj.value = self.made
            self.done.append((name, *given))
            return 1 if name == self.failing else 0

        return call

    def count(self, name: str) -> int:
        return sum(done[0] == name for done in self.done)


NODES = (
    MemsetNode(ctypes.c_uint64(1 << 40), 8),
    KernelNode(7, (5, 64, 1024), 1 << 41),
    KernelNode(8, (6, 32, 0), 1 << 42),
)


def use(graphs: LaunchGraphs, address: int) -> bool:
    """Whether a call found its graph."""
    where = (address, 0, 0, 0)
    if graphs.launch(where, 7):
        return True
    if graphs.wants(where):
        graphs.build(where, NODES)
    return False


def test_addresses_seen_twice_are_a_graph() -> None:
    driver = Driver()
    graphs = LaunchGraphs(driver)
    assert [use(graphs, 1) for _ in range(4)] == [False, False, True, True]
    assert [use(graphs, 2) for _ in range(3)] == [False, False, True]
    assert use(graphs, 1)
    assert driver.count("cuGraphInstantiateWithFlags") == 2
    assert driver.count("cuGraphDestroy") == driver.count("cuGraphCreate") == 2
    assert driver.mode == 0


def test_nodes_follow_one_another() -> None:
    driver = Driver()
    graphs = LaunchGraphs(driver)
    graphs.build((1, 2, 3, 4), NODES)
    clear, first, second = (done for done in driver.done if done[0].startswith("cuGraphAdd"))
    assert [(done[3] and done[3]._obj.value, done[4]) for done in (clear, first, second)] == [
        (None, 0),
        (clear[1]._obj.value, 1),
        (first[1]._obj.value, 1),
    ]
    assert unpack("QQIIQQ", clear[5]) == (1 << 40, 0, 0, 1, 8, 1)
    words = unpack("P7I4xPPPP", first[5])
    assert words == (7, 5, 1, 1, 64, 1, 1, 1024, 1 << 41, 0, 0, 0)


def test_the_longest_unused_goes_and_is_destroyed() -> None:
    driver = Driver()
    graphs = LaunchGraphs(driver)
    for address in range(MOST):
        assert [use(graphs, address) for _ in range(3)] == [False, False, True]
    assert driver.count("cuGraphExecDestroy") == 0
    for _ in range(LAUNCHES_PER_GRAPH * MOST):
        assert use(graphs, 3)
    assert [use(graphs, MOST) for _ in range(3)] == [False, False, True]
    assert driver.count("cuGraphExecDestroy") == 1
    assert use(graphs, 1)
    assert use(graphs, 3)
    assert not use(graphs, 0)


def test_addresses_that_never_repeat_build_no_end_of_graphs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = Driver()
    graphs = LaunchGraphs(driver)
    for address in range(1000):
        for _ in range(2):
            use(graphs, address)
    assert driver.count("cuGraphInstantiateWithFlags") == MOST
    monkeypatch.setattr(launch_graphs, "MOST_IN_ALL", len(launch_graphs._graphs))
    others = LaunchGraphs(driver)
    assert not any(use(others, 1) for _ in range(5))
    del graphs
    assert [use(others, 1) for _ in range(2)] == [False, True]


@pytest.mark.parametrize("failing", [*MADE, "cuGraphAddMemsetNode"])
def test_where_graphs_cannot_be_built_nobody_tries_again(failing: str) -> None:
    driver = Driver(failing)
    graphs = LaunchGraphs(driver)
    assert not any(use(graphs, 1) for _ in range(5))
    assert driver.count(failing) == 1
    made = driver.count("cuGraphCreate") - (failing == "cuGraphCreate")
    assert driver.count("cuGraphDestroy") == made


def test_a_graph_that_cannot_be_launched_is_gone() -> None:
    driver = Driver()
    graphs = LaunchGraphs(driver)
    assert [use(graphs, 1) for _ in range(3)] == [False, False, True]
    driver.failing = "cuGraphLaunch"
    assert not graphs.launch((1, 0, 0, 0), 7)
    assert driver.count("cuGraphExecDestroy") == 1


def test_a_stream_is_idle_where_the_driver_says_so() -> None:
    assert is_idle(Driver(), 7)
    assert not is_idle(Driver("cuStreamQuery"), 7)


def test_no_two_threads_launch_one_graph() -> None:
    driver = Driver()
    graphs = LaunchGraphs(driver)
    assert [use(graphs, 1) for _ in range(3)] == [False, False, True]
    inside, go_on = threading.Event(), threading.Event()
    launching = []

    def slowly(*_: Any) -> int:
        launching.append(threading.current_thread().name)
        inside.set()
        assert go_on.wait(10)
        return 0

    driver.cuGraphLaunch = slowly  # type: ignore[attr-defined]
    other = threading.Thread(target=graphs.launch, args=((1, 0, 0, 0), 7))
    other.start()
    assert inside.wait(10)
    assert not graphs.launch((1, 0, 0, 0), 7)
    go_on.set()
    other.join()
    assert len(launching) == 1
    assert graphs.launch((1, 0, 0, 0), 7)


def test_threads_may_build_while_others_launch() -> None:
    driver = Driver()
    graphs = LaunchGraphs(driver)
    graphs._launched = 1 << 40  # so that there is always room for another
    driver.cuThreadExchangeStreamCaptureMode = lambda mode: 0  # type: ignore[method-assign]
    driver.mode = RELAXED
    failed = []

    def work(first: int) -> None:
        try:
            for step in range(3000):
                use(graphs, first + step // 3 % (2 * MOST))
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(first,)) for first in (0, 5, 9, 20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert len(graphs._graphs) <= MOST + len(threads)
