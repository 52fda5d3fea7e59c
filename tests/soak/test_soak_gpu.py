"""The soak gates of a GPU, on one that is not there."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tests.runtime.gpu.fake import FakeGpu, OutOfMemoryError, ndarray
from tests.soak import memory, streams
from tests.soak.memory import Product


@dataclass
class Failing(FakeGpu):
    """One whose allocations can fail."""

    allocations: int = 0
    fails: Callable[[int], bool] = lambda number: False

    def pack_one(self, *arguments: Any, **given: Any) -> Any:
        self._allocate()
        return super().pack_one(*arguments, **given)

    def asarray(self, x: Any) -> ndarray:
        self._allocate()
        return super().asarray(x)

    def empty(self, shape: Any, dtype: Any) -> ndarray:
        self._allocate()
        return super().empty(shape, dtype)

    def _allocate(self) -> None:
        self.allocations += 1
        if self.fails(self.allocations):
            raise OutOfMemoryError(1, self.held)


class Allocator:
    def __init__(self, gpu: Failing) -> None:
        self._gpu = gpu

    @property
    def count(self) -> int:
        return self._gpu.allocations

    @contextmanager
    def failing(self, at: int, to_the_end: bool) -> Iterator[None]:
        self._gpu.allocations = 0
        self._gpu.fails = lambda number: bool(at) and (number == at or (to_the_end and number > at))
        yield
        self._gpu.fails = lambda number: False

    def held(self) -> int:
        return self._gpu.held


@pytest.fixture
def gpu() -> Failing:
    return Failing()


def test_products_survive_allocations_that_fail(
    gpu: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    cupy = gpu.install(monkeypatch)
    messages: list[str] = []
    found = memory.gate(Allocator(gpu), memory.products(cupy, 96), messages.append)
    assert found.passed, found.figures
    assert messages[1] == "int8x1: 3 allocations"
    natively = int(found.found.split(", ")[1].split()[0])
    assert natively > 10


class TestMemory:
    @pytest.fixture
    def cupy(self, gpu: Failing, monkeypatch: pytest.MonkeyPatch) -> Any:
        return gpu.install(monkeypatch)

    def judged(self, gpu: Failing, make: Callable[[], Any]) -> list[str]:
        products = {"x": Product(make, lambda: ndarray(np.ones(3)))}
        messages: list[str] = []
        found = memory.gate(Allocator(gpu), products, messages.append)
        assert found.passed == (not found.figures["wrong"])
        assert messages[0].splitlines()[1:] == found.figures["wrong"]
        return list(found.figures["wrong"])

    def test_an_error_that_is_passed_on(self, gpu: Failing, cupy: Any) -> None:
        assert self.judged(gpu, lambda: cupy.empty(3, np.float32)) == []

    def test_a_wrong_answer(self, gpu: Failing, cupy: Any) -> None:
        def make() -> Any:
            try:
                return cupy.empty(3, np.float32)
            except MemoryError:
                return ndarray(np.zeros(3, np.float32))

        (one, other) = self.judged(gpu, make)
        assert one.startswith("x, allocation 1 of 1: float32 (3,) ")
        assert other.startswith("x, allocation 1 of 1 and all after it: ")

    def test_another_error(self, gpu: Failing, cupy: Any) -> None:
        def make() -> Any:
            try:
                return cupy.empty(3, np.float32)
            except MemoryError:
                raise ValueError("what now") from None

        assert self.judged(gpu, make)[0] == "x, allocation 1 of 1: ValueError: what now"

    def test_a_leak(self, gpu: Failing, cupy: Any) -> None:
        lost: list[Any] = []

        def make() -> Any:
            kept = cupy.empty(100, np.float32)
            try:
                return cupy.empty(3, np.float32)
            except MemoryError:
                lost.append(kept)
                raise

        assert self.judged(gpu, make)[0].startswith("x, allocation 2 of 2: what it had taken")

    def test_what_is_kept_once_is_no_leak(self, gpu: Failing, cupy: Any) -> None:
        kept: dict[str, Any] = {}

        def make() -> Any:
            result = cupy.empty(3, np.float32)
            try:
                result = cupy.empty(3, np.float32)
            except MemoryError:
                if "room" not in kept:
                    kept["room"] = result
            return ndarray(np.full(3, 7, np.float32))

        assert self.judged(gpu, make) == []


@pytest.mark.parametrize("late", [False, True])
def test_streams(late: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that does all at once makes the right products. Where operands are written when it
    has been waited for, and not before, nothing is right; and only there is a late write late.
    """
    cupy = FakeGpu().install(monkeypatch)
    written_late: list[Any] = []
    pending: list[tuple[Any, Any]] = []
    write = ndarray.__setitem__

    def zeros_like(x: ndarray) -> ndarray:
        written_late.append(np.zeros_like(x.x))
        return ndarray(written_late[-1])

    def write_late(target: ndarray, key: Any, value: Any) -> None:
        if late and any(target.x is x for x in written_late):
            pending.append((target, value))
        else:
            write(target, key, value)

    def synchronize() -> None:
        for target, value in pending:
            write(target, ..., value)
        pending.clear()

    cupy.zeros_like = zeros_like
    cupy.cuda.runtime.deviceSynchronize = synchronize
    monkeypatch.setattr(ndarray, "__setitem__", write_late)
    monkeypatch.setattr(streams, "spinning", lambda cupy: lambda: None)
    found = streams.gate(cupy, 2, 2, 64)
    assert not found.passed
    if late:
        assert found.found == "36 of operands as they were before"
        assert "the product of pair" in found.figures["wrong"][-1]
    else:
        assert found.found == "0 of operands as they were before, but the delay delays nothing"


@pytest.mark.parametrize(
    ("wrong", "early", "passed"), [((), True, True), (("x",), True, False), ((), False, False)]
)
def test_what_streams_have_to_hold(wrong: tuple[str, ...], early: bool, passed: bool) -> None:
    assert streams.verdict(8, 100, wrong, early, 3).passed == passed
