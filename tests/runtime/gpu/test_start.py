"""CUDA starts while products go on: none waits, and neither forks nor the end of a process hang."""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import ModuleSpec
from pathlib import Path
from textwrap import dedent
from threading import Event, Timer
from types import ModuleType
from typing import Any

import pytest

from mixpert_py.runtime import api, worth
from mixpert_py.runtime.api import matmul
from mixpert_py.runtime.gpu import start as starts
from mixpert_py.runtime.gpu.start import Start
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.request import Request
from tests.runtime.gpu.fake import CUDARuntimeError, FakeGpu, normal, pays_from
from tests.runtime.operands import ran

A = normal(64, 64).x


class Installed:
    """CuPy as it is installed: its import waits for a word, and may fail.

    imports: how often it was imported.
    """

    def __init__(self, cupy: ModuleType) -> None:
        self.cupy, self.word, self.imports = cupy, Event(), 0
        self.error: Exception | None = None

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name == "cupy" else None

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        self.imports += 1
        assert self.word.wait(20)
        if self.error is not None:
            raise self.error
        sys.modules["cupy"] = self.cupy


@pytest.fixture
def cupy(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> Iterator[Installed]:
    installed = Installed(sys.modules["cupy"])
    monkeypatch.delitem(sys.modules, "cupy")
    monkeypatch.setattr(sys, "meta_path", [installed, *sys.meta_path])
    monkeypatch.setattr(starts, "start", Start())
    monkeypatch.setattr(worth, "figures", lambda name: pays_from(1, host=1e8))
    monkeypatch.setattr(worth, "STARTING", 1e-5)
    monkeypatch.setattr(api, "MIN_ELEMENTS_TO_MOVE", 1)
    yield installed
    installed.word.set()
    starts.start.wait()
    sys.modules.pop("cupy", None)


def how(**given: Any) -> tuple[str, Reason | None]:
    _, scheme, reason, *_ = ran(matmul, A, A, **given)
    return scheme, reason


def test_products_are_native_until_all_has_started(gpu: FakeGpu, cupy: Installed) -> None:
    assert how() == ("native", None)
    assert how(scheme="int8x6") == ("native", Reason.STARTING)
    assert not gpu.launches
    cupy.word.set()
    starts.start.wait()
    assert len(gpu.launches) == 1, "a product of the thread has loaded the kernels"
    assert how() == ("faithful", None)
    assert how(scheme="int8x6") == ("int8x6", None)
    assert cupy.imports == 1


def test_products_that_are_to_be_reproducible_wait_for_the_start(
    gpu: FakeGpu, cupy: Installed
) -> None:
    starts.start.asks = lambda: True
    Timer(0.2, cupy.word.set).start()
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(starts.start.why_not_yet, 9.0, Request(A, A, "crt")) for _ in "ab"]
        assert [it.result() for it in asked] == [None, None]
    assert how() == ("faithful", None)


def test_a_start_is_worth_as_much_as_was_lost(
    gpu: FakeGpu, cupy: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = worth.moving_saves(A, A, (64, 64, 64), "int8x6", worth.figures(""))
    monkeypatch.setattr(worth, "STARTING", 3.5 * lost)
    cupy.word.set()
    for imports in (0, 1, 1):  # CuPy is imported first, and CUDA starts later
        assert how(scheme="int8x6") == ("native", Reason.TOO_SMALL)
        starts.start.wait()
        assert cupy.imports == imports
    assert not gpu.launches
    how()
    starts.start.wait()
    assert gpu.launches


@pytest.mark.parametrize("shapes", [((3, 64, 64), (3, 64, 64)), ((64, 64), (64, 2))])
def test_all_kinds_of_operands_begin_a_start(
    gpu: FakeGpu, cupy: Installed, shapes: tuple[tuple[int, ...], ...]
) -> None:
    cupy.word.set()
    a, b = (normal(*shape).x for shape in shapes)
    matmul(a, b, scheme="int8x6")
    starts.start.wait()
    assert gpu.launches[0] == (len(a[:2]) if a.ndim > 2 else 1, 64, b.shape[-1])
    assert ran(matmul, a, b, scheme="int8x6")[1] == "int8x6"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ImportError("libcublas.so"), Reason.NO_TENSOR_CORE),
        (RuntimeError("CuPy is broken"), Reason.NO_TENSOR_CORE),
        (CUDARuntimeError(35), Reason.OLD_DRIVER),
    ],
)
def test_after_a_start_that_failed_products_stay_native(
    gpu: FakeGpu, cupy: Installed, error: Exception, reason: Reason
) -> None:
    if isinstance(error, CUDARuntimeError):
        gpu.error = error
    else:
        cupy.error = error
    cupy.word.set()
    assert how() == ("native", None)
    starts.start.wait()
    for _ in range(2):
        assert how(scheme="int8x6") == ("native", reason)
    assert cupy.imports == 1


SLOW = """
    import time
    print("imports", flush=True)
    time.sleep({seconds})
    print("imports more", flush=True)
    import mailbox
    print("imported", flush=True)
    raise ImportError
"""

PROGRAM = """
    import os, sys, time
    import numpy as np
    from mixpert_py.runtime.gpu.start import start
    from mixpert_py.runtime.request import Request

    a = np.ones((64, 64))
    start.why_not_yet(9.0, Request(a, a, "crt"))
"""


def printed(folder: Path, seconds: float, *lines: str) -> list[str]:
    """What a program prints that begins a start, whose import takes so long, and goes on."""
    (folder / "cupy.py").write_text(dedent(SLOW).format(seconds=seconds))
    program = dedent(PROGRAM) + "\n".join(lines)
    root = str(Path(__file__).parents[3])
    return subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": f"{folder}:{root}", "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout.splitlines()


def test_a_fork_waits_for_the_start(tmp_path: Path) -> None:
    fork = "print('child', flush=True) if os.fork() == 0 else os.wait()"
    assert printed(tmp_path, 0.5, fork) == ["imports", "imports more", "imported", "child"]


def test_the_end_of_a_process_ends_the_start_with_its_next_module(tmp_path: Path) -> None:
    begun = "while 'cupy' not in sys.modules: time.sleep(0.01)"
    assert printed(tmp_path, 0.5, begun) == ["imports", "imports more"]
