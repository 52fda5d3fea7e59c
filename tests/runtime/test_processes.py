"""What other processes see: nothing heavy is imported, forks and spawned children multiply."""

import multiprocessing
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.api import matmul
from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.kernels import compile as kernels

ROOT = Path(__file__).parent.parent.parent


def imported(code: str) -> set[str]:
    """The packages that a new process has imported after some code."""
    command = [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 0, done.stderr
    return {name.partition(".")[0] for name in done.stdout.split()}


@pytest.mark.parametrize(
    "product",
    [
        "matmul(a, a, site='m:f/x~1#0')",
        "matmul(a, a, scheme='int8x6', backend='reference')",
        "matmul(a, a, scheme='int8x6')",
        "matmul(numpy.ones((1200, 1200), 'f'), numpy.ones((1200, 2), 'f'))",
    ],
)
def test_products_of_numpy_arrays_import_no_gpu_library(product: str) -> None:
    code = f"import numpy, mixpert_py\nfrom mixpert_py import matmul\na = numpy.eye(8)\n{product}"
    assert not imported(code) & {"cupy", "numba", "torch", "libcst"}


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
