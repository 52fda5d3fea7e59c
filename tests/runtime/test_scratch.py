"""Memory of casts: it is used again, is bounded, and no result lies in it."""

import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mixpert_py import matmul
from mixpert_py.runtime import scratch
from tests.mixpert_py.command import called

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


def test_a_result_stays_as_it_is_when_others_are_made() -> None:
    a, b = draw(200, 0), draw(200, 1)
    first = matmul(a, b, scheme="float32")
    kept = first.copy()
    others = [matmul(b, x, scheme="float32") for x in (a, b.T, b)]
    np.testing.assert_array_equal(first, kept)
    for other in others:
        assert not np.shares_memory(first, other)


@pytest.mark.parametrize("order", ["C", "F"])
def test_operands_of_any_layout_are_cast_as_by_astype(order: Any) -> None:
    x = np.asarray(np.random.default_rng(2).standard_normal((3, 120, 90)), order=order)
    views = [x, x[:, ::2], x.swapaxes(0, 2), x[:, ::-1], x[1].T, np.broadcast_to(x, (2, *x.shape))]
    with scratch.Scratch() as memory:
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
