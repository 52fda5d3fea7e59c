"""Memory of casts, arrays that have memory in common, and the cores of the process."""

import os
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from mixpert_py import matmul
from mixpert_py.runtime import arrays, processor
from tests.mixpert_py.command import called
from tests.runtime.gpu.fake import ndarray

Matrix = np.ndarray[Any, Any]

FAULTS = """\
import resource
import numpy as np
from mixpert_py import matmul

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

a, b = np.random.default_rng(0).standard_normal((2, 700, 700))
for native in (None, np.matmul, np.dot):
    def call():
        matmul(a, b, scheme="float32", native=native)

    for _ in range(3):
        call()
    before = faults()
    for _ in range(10):
        call()
    # A result is the program's, and may lie in 957 new pages each time; casts take none.
    assert faults() - before < 10 * 957 + 1000, faults() - before
"""


def draw(n: int, seed: int) -> Matrix:
    return np.random.default_rng(seed).standard_normal((n, n))


@pytest.mark.skipif(sys.platform != "linux", reason="counts pages that the system clears")
def test_casts_take_no_new_pages(tmp_path: Path) -> None:
    (tmp_path / "faults.py").write_text(FAULTS)
    said = called("faults.py", folder=tmp_path)
    assert said.code == 0, said


@pytest.mark.parametrize("order", ["C", "F"])
def test_operands_of_any_layout_are_cast_as_by_astype(order: Any) -> None:
    x = np.asarray(np.random.default_rng(2).standard_normal((3, 120, 90)), order=order)
    views = [x, x[:, ::2], x.swapaxes(0, 2), x[:, ::-1], x[1].T, np.broadcast_to(x, (2, *x.shape))]
    with arrays.Scratch() as memory:
        for view in views:
            made, wanted = memory.cast(view, np.dtype(np.float32)), view.astype(np.float32)
            np.testing.assert_array_equal(made, wanted)
            assert made.strides == wanted.strides
            assert made.dtype == wanted.dtype


def test_threads_do_not_share_it() -> None:
    operands = [(draw(150, 2 * i), draw(150, 2 * i + 1)) for i in range(4)]
    wanted = [matmul(a, b, scheme="float32") for a, b in operands]
    wrong: list[int] = []

    def work(i: int) -> None:
        for _ in range(100):
            if not np.array_equal(matmul(*operands[i], scheme="float32"), wanted[i]):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


WHOLE = np.zeros((60, 80))
APART = [
    (WHOLE[:, :20], WHOLE[:, 20:]),
    (WHOLE[30:, 40:60], WHOLE[30:, 20:40].T),
    (WHOLE[20:, 50:], WHOLE[:40, :50]),
    (WHOLE[:, ::2], WHOLE[:, 1::2]),
    (WHOLE[::-1, :8], WHOLE[:, 8:]),
    (WHOLE, WHOLE.copy()),
    (WHOLE[:, :0], WHOLE),
]
TOGETHER = [
    (WHOLE, WHOLE.T),
    (WHOLE[:, :21], WHOLE[:, 20:]),
    (WHOLE[30:], WHOLE[20:31, 79:]),
    (WHOLE[:, ::2], WHOLE[:, ::3]),
    (WHOLE, WHOLE.view(np.float32)[:, 1:2]),
]


@pytest.mark.parametrize("pairs", [APART, TOGETHER])
def test_what_shares(pairs: list[tuple[np.ndarray, np.ndarray]]) -> None:
    for x, y in pairs:
        assert arrays.shares(x, y) == arrays.shares(y, x) == (pairs is TOGETHER)
        assert arrays.shares_on_device(ndarray(x), ndarray(y)) == (pairs is TOGETHER)


def test_what_is_too_hard_to_tell_may_share(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = np.zeros(1 << 16, np.uint8)
    x, y = (
        as_strided(buffer, (7, 5, 6, 4, 3), strides)
        for strides in ((1011, 1213, 911, 1517, 2221), (997, 1301, 1409, 1103, 2003))
    )
    with pytest.raises(np.exceptions.TooHardError):
        np.shares_memory(x[1:, 1:], y[1:, 1:], max_work=1)
    monkeypatch.setattr(arrays, "WORK", 1)
    assert arrays.shares(x[1:, 1:], y[1:, 1:])


def test_cores_are_those_that_the_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3, 5, 9}, raising=False)
    assert processor.cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert processor.cores() == 1
