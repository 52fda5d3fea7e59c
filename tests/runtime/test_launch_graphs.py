"""Graphs of launches: when they are built, launched and given up."""

import ctypes
from typing import Any

import pytest

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


def test_addresses_that_never_repeat_build_no_end_of_graphs() -> None:
    driver = Driver()
    graphs = LaunchGraphs(driver)
    for address in range(100):
        for _ in range(2):
            use(graphs, address)
    assert driver.count("cuGraphInstantiateWithFlags") == MOST


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
