"""Complex arrays taken apart and put together: the CUDA kernels, run on the host."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.complex_product import join, split
from mixpert_py.runtime.gpu import complex_parts
from tests.contract.table import normal
from tests.runtime.kernels_on_host.host import HostArray, kernels

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """`cuda_kernel`, for the host."""
    folder: Path = tmp_path_factory.mktemp("kernels")
    made: dict[Any, Any] = {}

    def cuda_kernel(file: str, name: str, definitions: Any) -> Any:
        if definitions not in made:
            made[definitions] = kernels(file, definitions, folder / f"{len(made)}.so")
        return made[definitions][name]

    return cuda_kernel


@pytest.fixture(autouse=True)
def on_host(compiled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def empty(shape: Any, dtype: Any, device: int, stream: object) -> Any:
        return np.full(shape, np.nan, dtype).view(HostArray)

    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace())
    monkeypatch.setattr(complex_parts, "cuda_kernel", compiled)
    monkeypatch.setattr(complex_parts, "empty", empty)


LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "C order": lambda x: x.copy(),
    "by columns": lambda x: x.swapaxes(-1, -2).copy().swapaxes(-1, -2),
    "every other": lambda x: x.repeat(2, -1).repeat(3, -2)[..., ::3, ::2],
    "backwards": lambda x: x[..., ::-1, ::-1].copy()[..., ::-1, ::-1],
    "a stack backwards": lambda x: x[::-1].copy()[::-1],
    "not aligned": lambda x: shifted(x),
}


def shifted(x: Any) -> Any:
    memory = np.empty(x.nbytes + 4, np.uint8)
    memory[4:] = np.frombuffer(x.tobytes(), np.uint8)
    return memory[4:].view(x.dtype).reshape(x.shape)


@pytest.mark.parametrize("dtype", ["F", "D"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_parts_and_products(layout: str, dtype: str) -> None:
    """Subnormal numbers included."""
    for shape in ((7, 150), (1, 1), (3, 40, 9), (2, 2, 5, 6), (0, 4)):
        check(shape, layout, dtype)


def check(shape: tuple[int, ...], layout: str, dtype: str) -> None:
    x = normal(*shape, dtype=dtype)
    x[..., :1] *= 1e-42
    z = LAYOUTS[layout](x).view(HostArray)
    real = x.real.dtype
    np.testing.assert_array_equal(complex_parts.split(z, stream=0), split(x))
    for count in ((2, 2), (2,)):
        products = normal(*count, *shape, dtype=real, seed=1).view(HostArray)
        wanted = np.empty(shape, dtype)
        join(products, wanted)
        complex_parts.join(products, z, stream=0)
        np.testing.assert_array_equal(z, wanted)
