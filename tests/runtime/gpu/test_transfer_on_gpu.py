"""NumPy arrays moved to a real GPU: the same bits as without the way there."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.gpu import device_state, staging, transfer
from mixpert_py.runtime.request import Product
from tests.runtime.gpu.requested import multiplied, transferred

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy", reason="CuPy is not installed")

SCHEME = "int8x6"


def normal(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "PANEL_BYTES", 1 << 20)
    monkeypatch.setattr(staging, "SLOT_BYTES", 1 << 16)
    monkeypatch.setattr(device_state, "_states", {})


def moved(a: Any, b: Any) -> Any:
    made = transferred(a, b, SCHEME)
    assert isinstance(made, Product)
    return made.value


def there(a: Any, b: Any) -> Any:
    made = multiplied(cupy.asarray(a), cupy.asarray(b), SCHEME)
    assert isinstance(made, Product)
    return made.value.get()


ORDERS: dict[str, Any] = {
    "C": lambda x: x,
    "F": np.asfortranarray,
    "reversed": lambda x: x[::-1, ::-1],
    "every second": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
}


@pytest.mark.parametrize("dtype", ["f", "d", "F"])
@pytest.mark.parametrize("right", ORDERS)
@pytest.mark.parametrize("left", ORDERS)
def test_every_layout(left: str, right: str, dtype: str) -> None:
    a = ORDERS[left](normal(1500, 1100, dtype=dtype))
    b = ORDERS[right](normal(1100, 900, dtype=dtype, seed=1))
    for _ in range(3):
        np.testing.assert_array_equal(moved(a, b), there(np.array(a), np.array(b)))


@pytest.mark.parametrize("turned", ["left", "right"])
def test_one_array_twice(turned: str) -> None:
    x = normal(1500, 1100)
    a, b = (x.T, x) if turned == "left" else (x, x.T)
    np.testing.assert_array_equal(moved(a, b), there(a, b))


@pytest.mark.parametrize("order", ORDERS)
def test_out_in_a_block_of_any_layout(order: str) -> None:
    a, b = normal(1500, 1100), normal(1100, 900, seed=1)
    whole = ORDERS[order](np.full((1600, 2000), 7, np.float32))
    out = whole[50:1550, 7:907]
    made = transferred(a, b, SCHEME, out=out)
    assert isinstance(made, Product)
    assert made.value is out
    np.testing.assert_array_equal(out, there(a, b))
    out[...] = 7
    assert np.all(whole == 7)


def test_stacks() -> None:
    a, b = normal(9, 300, 400), normal(9, 500, 400, seed=1).swapaxes(1, 2)
    np.testing.assert_array_equal(moved(a, b), there(a, b))


def test_memory_that_streams_pass_to_one_another() -> None:
    """As CUDA's own pool does, where the program has chosen it."""
    a, b = normal(1500, 600), np.asfortranarray(normal(600, 700, seed=1))
    wanted = there(a, b)
    with cupy.cuda.using_allocator(cupy.cuda.MemoryAsyncPool().malloc):
        for _ in range(5):
            np.testing.assert_array_equal(moved(a, b), wanted)


def test_many_threads_at_once() -> None:
    pairs = [(normal(1500, 600, seed=i), normal(600, 700, seed=i + 50)) for i in range(6)]
    wanted = [there(a, b) for a, b in pairs]
    with ThreadPoolExecutor(6) as threads:
        for _ in range(5):
            found = threads.map(moved, *zip(*pairs, strict=True))
            for value, other in zip(found, wanted, strict=True):
                np.testing.assert_array_equal(value, other)
