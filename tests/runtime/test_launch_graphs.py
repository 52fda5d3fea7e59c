"""Graphs of launches: when they are built, launched and given up."""

import ctypes
import threading
from typing import Any

import pytest

from mixpert_py.runtime.kernels.launch_graphs import MOST, WORTH, LaunchGraphs


class Driver:
    """Numbers graphs, and notes what is done with them; `failing`: the call that fails."""

    def __init__(self, failing: str = "") -> None:
        self.failing = failing
        self.done: list[tuple[str, Any]] = []
        self.graphs = 0

    def __getattr__(self, name: str) -> Any:
        def call(*given: Any) -> int:
            if name in ("cuStreamCreate", "cuGraphInstantiateWithFlags"):
                self.graphs += 1
                given[0]._obj.value = self.graphs
            first = given[0]
            handle = first.value if isinstance(first, ctypes.c_void_p) else None
            self.done.append((name, handle))
            return 1 if name == self.failing else 0

        return call

    def count(self, name: str) -> int:
        return sum(done == name for done, _ in self.done)


def enqueue(stream: int) -> None:
    assert stream


def use(graphs: LaunchGraphs, address: int) -> bool:
    """Whether a call found its graph."""
    where = (address, 0, 0, 0)
    if graphs.launch(where, 7):
        return True
    graphs.note(where, enqueue)
    return False


def test_addresses_seen_twice_are_a_graph() -> None:
    driver = Driver()
    graphs = LaunchGraphs(driver)
    assert [use(graphs, 1) for _ in range(4)] == [False, False, True, True]
    assert [use(graphs, 2) for _ in range(3)] == [False, False, True]
    assert use(graphs, 1)
    assert driver.count("cuGraphInstantiateWithFlags") == 2
    assert driver.count("cuStreamDestroy_v2") == driver.count("cuStreamCreate") == 2
    assert driver.count("cuGraphDestroy") == 2


def test_the_longest_unused_goes_and_is_destroyed() -> None:
    driver = Driver()
    graphs = LaunchGraphs(driver)
    for address in range(MOST):
        assert [use(graphs, address) for _ in range(3)] == [False, False, True]
    assert driver.count("cuGraphExecDestroy") == 0
    for _ in range(WORTH * MOST):
        assert use(graphs, 3)
    assert [use(graphs, MOST) for _ in range(3)] == [False, False, True]
    assert driver.count("cuGraphExecDestroy") == 1
    assert use(graphs, 1)
    assert use(graphs, 3)
    assert not use(graphs, 0)


def test_addresses_that_never_repeat_build_no_end_of_graphs() -> None:
    driver = Driver()
    graphs = LaunchGraphs(driver)
    for address in range(1000):
        for _ in range(2):
            use(graphs, address)
    assert driver.count("cuGraphInstantiateWithFlags") == MOST


@pytest.mark.parametrize(
    "failing",
    [
        "cuStreamCreate",
        "cuStreamBeginCapture_v2",
        "cuStreamEndCapture",
        "cuGraphInstantiateWithFlags",
    ],
)
def test_where_graphs_cannot_be_built_nobody_tries_again(failing: str) -> None:
    driver = Driver(failing)
    graphs = LaunchGraphs(driver)
    assert not any(use(graphs, 1) for _ in range(5))
    assert driver.count(failing) == 1
    made = driver.count("cuStreamCreate") - (failing == "cuStreamCreate")
    assert driver.count("cuStreamDestroy_v2") == made


def test_launches_that_fail_end_their_capture() -> None:
    driver = Driver()
    graphs = LaunchGraphs(driver)

    def fails(stream: int) -> None:
        raise RuntimeError("a launch")

    for _ in range(3):
        graphs.note((1, 2, 3, 4), fails)
    assert driver.count("cuStreamEndCapture") == 1
    assert driver.count("cuGraphInstantiateWithFlags") == 0


def test_a_graph_that_cannot_be_launched_is_gone() -> None:
    driver = Driver()
    graphs = LaunchGraphs(driver)
    assert [use(graphs, 1) for _ in range(3)] == [False, False, True]
    driver.failing = "cuGraphLaunch"
    assert not use(graphs, 1)
    assert driver.count("cuGraphExecDestroy") == 1


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
