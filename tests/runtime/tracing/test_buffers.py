"""Whose result an operand is: by memory, never by an address that is used again."""

import numpy as np
import pytest

from mixpert_py.runtime.tracing.buffers import Buffers
from tests.runtime.gpu.fake import FakeGpu, ndarray


@pytest.fixture
def buffers() -> Buffers:
    return Buffers()


def test_a_result_and_its_views(buffers: Buffers) -> None:
    c = np.ones((4, 6))
    buffers.write(c, "p")
    for view in (c, c.T, c[1:, ::2], c.reshape(3, 8), c[1][2:], c.view(np.matrix)):
        assert buffers.sites(view) == {"p"}
    for other in (c + 1, c.copy(), np.ones((4, 6)), c[[1, 2]], 3.0, None):
        assert buffers.sites(other) == set()
    c *= 2
    assert buffers.sites(c) == {"p"}


def test_parts_of_one_array_are_told_apart(buffers: Buffers) -> None:
    c = np.zeros((4, 6))
    buffers.write(c[:, :2], "p")
    buffers.write(c[:, 2:4], "q")
    assert buffers.sites(c[1:, 1]) == {"p"}
    assert buffers.sites(c[:, 3:]) == {"q"}
    assert buffers.sites(c[0]) == {"p", "q"}
    assert buffers.sites(c[:, 4:]) == set()
    buffers.write(c[:, :2], "r")
    assert buffers.sites(c) == {"q", "r"}
    buffers.write(c, "s")
    assert buffers.sites(c[2:, 2:4]) == {"s"}


def test_nothing_is_kept_alive_and_no_address_remembered(buffers: Buffers) -> None:
    places = set()
    for _ in range(200):
        c = np.empty((64, 64))  # NumPy gives the same memory, CPython the same id, again
        places.add((id(c), c.ctypes.data))
        assert buffers.sites(c) == set()
        buffers.write(c, "p")
        del c
    assert len(places) < 100


def test_arrays_of_a_gpu(buffers: Buffers, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeGpu().install(monkeypatch)
    c = ndarray(np.ones((4, 4)))
    buffers.write(c, "p")
    assert buffers.sites(c) == buffers.sites(c[1:]) == buffers.sites(c[1:][:2]) == {"p"}
    assert buffers.sites(ndarray(np.ones((4, 4)))) == set()
    d = ndarray(np.ones((4, 4)))
    buffers.write(d[:2], "q")  # where it lies in d is not known
    assert buffers.sites(d) == set()
