"""Operands that nobody writes to: moved once, gone with their array, and where room is short."""

import sys
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.api import matmul
from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.gpu import resident, transfer
from mixpert_py.runtime.gpu.device_state import state_of
from mixpert_py.runtime.request import Product
from tests.runtime.gpu.fake import FakeGpu, OutOfMemoryError, ndarray, on_device
from tests.runtime.gpu.requested import transferred

CONSTANT = Context(constant="these")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    fake = FakeGpu(count=2)
    fake.memory = 1 << 24
    fake.install(monkeypatch)
    return fake


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def moved(a: Any, b: Any, **given: Any) -> Any:
    made = transferred(a, b, "int8x6", **given)
    assert isinstance(made, Product)
    return made.value


@pytest.mark.usefixtures("gpu")
def test_b_is_moved_once(moves: list[Any]) -> None:
    a, b = normal(70, 50), normal(50, 40, seed=1)
    wanted = moved(a, b)
    moves.clear()
    with use(CONSTANT):
        for _ in range(3):
            np.testing.assert_array_equal(moved(a, b), wanted)
            np.testing.assert_array_equal(moved(a, b[:]), wanted)  # another view of the same
    assert moves.count(b.shape) == 1
    assert moves.count(a.shape) == 6


@pytest.mark.usefixtures("gpu")
def test_what_may_be_written_to_is_moved_again(moves: list[Any]) -> None:
    a, b = normal(70, 50), normal(50, 40, seed=1)
    moved(a, b)
    b[:] = 1
    np.testing.assert_allclose(moved(a, b), a @ b, atol=1e-4)
    assert moves.count(b.shape) == 2
    assert not state_of(0).resident


@pytest.mark.usefixtures("gpu")
def test_what_is_written_to_all_the_same_is_moved_again() -> None:
    """A program may fill a buffer anew, and make another graph of it, or run the same again."""
    a, b = normal(70, 50), normal(50, 40, seed=1)
    with use(CONSTANT):
        moved(a, b)
        b[7] = 3
        np.testing.assert_allclose(moved(a, b), a @ b, atol=1e-4)
    b = normal(500, 400, seed=1)
    a = normal(70, 500)
    with use(CONSTANT):
        moved(a, b)
    b[7, 3] = 3  # of too few elements to be noticed
    with use(Context(constant="others")):
        np.testing.assert_allclose(moved(a, b), a @ b, atol=1e-3)


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    "other", [lambda b: b.astype("d"), lambda b: b[::-1], lambda b: b.copy(), lambda b: b[:, :39]]
)
def test_another_array_is_another(moves: list[Any], other: Any) -> None:
    a, b = normal(70, 50), normal(50, 40, seed=1)
    with use(CONSTANT):
        moved(a, b)
        moves.clear()
        found = other(b)
        np.testing.assert_allclose(moved(a, found), a @ found, atol=1e-4)
    assert found.shape in moves


@pytest.mark.usefixtures("gpu")
def test_it_is_there_as_the_type_that_it_was_moved_as(moves: list[Any]) -> None:
    a, b = normal(70, 50), normal(50, 40, seed=1)
    with use(CONSTANT):
        moved(a, b)
        assert moved(a.astype("d"), b).dtype == "d"
        moved(a, b)
    assert moves.count(b.shape) == 2


@pytest.mark.usefixtures("gpu")
def test_every_device_has_its_own(moves: list[Any]) -> None:
    a, b = normal(70, 50), normal(50, 40, seed=1)
    with use(CONSTANT):
        for number in (0, 1, 0, 1):
            with on_device(number):
                np.testing.assert_allclose(moved(a, b), a @ b, atol=1e-4)
    assert moves.count(b.shape) == 2


def test_it_goes_with_its_array(gpu: FakeGpu) -> None:
    a, b = normal(70, 50), normal(50, 40, seed=1)
    with use(CONSTANT):
        moved(a, b)
        view = b[3:]
        del b
        assert gpu.held == 50 * 40 * 4  # its memory is still somebody's
        del view
    assert not state_of(0).resident
    assert gpu.held == 0


def test_the_longest_unused_go_first(gpu: FakeGpu, moves: list[Any]) -> None:
    a, bs = normal(70, 50), [normal(50, 40, seed=seed) for seed in range(4)]
    gpu.memory = 8 * 3 * bs[0].nbytes  # three may stay
    gpu.held = 0
    with use(CONSTANT):
        for number in (0, 1, 2, 0, 3):
            moved(a, bs[number])
        moves.clear()
        for number in (0, 2, 3, 1):
            moved(a, bs[number])
    assert moves.count(bs[0].shape) == 1


def test_what_is_too_large_does_not_stay(gpu: FakeGpu) -> None:
    b = normal(50, 40, seed=1)
    for memory, count in ((8 * b.nbytes - 1, 0), (8 * b.nbytes, 1)):
        gpu.memory = memory
        resident.keep(sys.modules["cupy"], "these", b, ndarray(b))
        assert len(state_of(0).resident) == count


@pytest.mark.usefixtures("gpu")
def test_it_goes_where_room_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, others = normal(70, 50), normal(50, 40, seed=1), normal(2, 50, 40)
    with use(CONSTANT):
        moved(a, b)
        as_it_is = transfer._whole

        def short(*given: Any) -> Any:
            if state_of(0).resident:
                raise OutOfMemoryError(1, 0)
            return as_it_is(*given)

        monkeypatch.setattr(transfer, "_whole", short)
        np.testing.assert_allclose(moved(a, others), a @ others, atol=1e-4)
    assert not state_of(0).resident


@pytest.mark.usefixtures("gpu")
def test_dasks_blocks_are_moved_once(moves: list[Any]) -> None:
    da = pytest.importorskip("dask.array", reason="Dask is not installed")
    a, b = normal(90, 50), normal(50, 40, seed=1)
    product = matmul(
        da.from_array(a, chunks=(30, 50)),
        da.from_array(b, chunks=(50, 40)),
        scheme="int8x6",
        backend="cuda",
    )
    np.testing.assert_array_equal(product.compute(scheduler="synchronous"), moved(a, b))
    assert moves.count((30, 50)) == 3
    assert moves.count((50, 40)) == 2  # once of Dask's, and once by itself
