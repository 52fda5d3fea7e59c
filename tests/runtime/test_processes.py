"""What other processes see: forks and spawned children multiply."""

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.api import matmul
from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.kernels import compile as kernels


def multiplied(pipe: Any) -> None:
    a = np.random.default_rng(0).standard_normal((8, 8))
    pipe.send(matmul(a, a, scheme="int8x6", backend="reference"))


@pytest.mark.parametrize("start", ["fork", "spawn", "forkserver"])
def test_children_multiply_as_their_parent(start: Any) -> None:
    a = np.random.default_rng(0).standard_normal((8, 8))
    context = multiprocessing.get_context(start)
    ours, theirs = context.Pipe()
    child = context.Process(target=multiplied, args=(theirs,))
    with use(Context(scheme="int8x6")):
        child.start()
    assert ours.poll(60)
    np.testing.assert_array_equal(ours.recv(), matmul(a, a, scheme="int8x6", backend="reference"))
    child.join(60)
    assert child.exitcode == 0


def test_a_home_that_cannot_be_written_costs_a_compilation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "a file"
    home.touch()
    monkeypatch.setenv("HOME", str(home))
    made: Callable[[], bytes] = lambda: b"code"  # noqa: E731
    assert kernels.cached(b"place", made) == b"code"
    assert list(tmp_path.iterdir()) == [home]
