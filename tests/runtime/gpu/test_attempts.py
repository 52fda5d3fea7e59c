"""Products of residues that are launched again: kernels compiled for the host, launched by what a
recording has kept, at the addresses of each call.
"""

import ctypes
import shutil
import struct
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.gpu import device, guard, multiply, prepared, slices
from mixpert_py.runtime.gpu import residues as products
from mixpert_py.runtime.gpu.gemm import gemm
from mixpert_py.runtime.kernels.kernel import Kernel
from mixpert_py.runtime.packing import pack, pack_one
from mixpert_py.runtime.packing import residues as packed_residues
from mixpert_py.runtime.reference.emulation import emulate
from mixpert_py.runtime.request import Product, Request
from tests.runtime.gpu.fake import FakeGpu
from tests.runtime.gpu.fake.modules import cupy_of
from tests.runtime.gpu.test_residues import compiled as compiled
from tests.runtime.gpu.test_residues import on_a
from tests.runtime.gpu.test_speculation import KINDS
from tests.runtime.kernels_on_host.host import HostArray, Memory

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")


class HostDriver:
    """CUDA's driver for kernels on the host, which makes no graphs. launched: their names."""

    def __init__(self, compiled: Callable[..., Any]) -> None:
        self._compiled, self._kernels = compiled, list[Any]()
        self.launched: list[str] = []

    def kernel(self, file: str, name: str, definitions: Any, shared: int = 0) -> Kernel:
        self._kernels.append((name, self._compiled(file, name, definitions, shared)))
        return Kernel(name, len(self._kernels) - 1, None, self)

    def cuLaunchKernelEx(self, config: int, handle: int, where: int, extra: None) -> int:  # noqa: N802
        grid, _, _, block, _, _, shared = struct.unpack("7I", ctypes.string_at(config, 28))
        name, kernel = self._kernels[handle]
        pointers = (ctypes.c_void_p * kernel.count).from_address(where)
        words = tuple(ctypes.c_longlong.from_address(place).value for place in pointers)
        self.launched.append(name)
        kernel.launch_words(grid, block, words, shared, 0)
        return 0

    def cuMemsetD8Async(self, target: Any, byte: Any, size: Any, stream: Any) -> int:  # noqa: N802
        ctypes.memset(target.value, byte.value, size.value)
        return 0

    def __getattr__(self, name: str) -> Any:
        return lambda *_: 1


def array(shape: Any, dtype: Any, memory: int | None = None, strides: Any = None) -> HostArray:
    """cupy.ndarray, in the memory of the host, or at an address where there is none."""
    if memory is None:
        return np.full(shape, 7, dtype).view(HostArray)
    place = (ctypes.c_byte * (1 << 40)).from_address(memory)
    return np.ndarray(shape, dtype, place, 0, strides).view(HostArray)


@pytest.fixture
def driver(compiled: Any, monkeypatch: pytest.MonkeyPatch) -> HostDriver:
    driver, cupy = HostDriver(compiled), cupy_of(FakeGpu())
    cupy.ndarray, cupy.empty, cupy.may_share_memory = array, array, np.may_share_memory
    cupy.cuda.alloc, cupy.cuda.UnownedMemory = Memory, lambda base, *_: base
    cupy.cuda.MemoryPointer = lambda base, past: base + past
    cupy.cuda.Device = on_a("90").cuda.Device
    cupy.cuda.runtime.memsetAsync = lambda to, value, size, _: ctypes.memset(to, value, size)
    cupy.cuda.runtime.setDevice = lambda number: None
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(device, "_states", {})
    monkeypatch.setattr(prepared, "_products", {})
    for module in (packed_residues, products, guard):
        monkeypatch.setattr(module, "cuda_kernel", driver.kernel)
    monkeypatch.setattr(packed_residues, "shared_memory", lambda device: 227 * 1024)
    monkeypatch.setattr(prepared, "cuda_driver", lambda: driver)
    steps = slices.ProductSteps(cupy, pack, pack_one, gemm, *4 * [lambda *_, **__: None])
    monkeypatch.setattr(multiply, "cuda_kernels", lambda: steps)
    caches = packed_residues.prepare, packed_residues.longest_row, products.prepare
    for cache in caches:
        cache.cache_clear()
    yield driver
    for cache in caches:
        cache.cache_clear()


def product(a: Any, b: Any, scheme: str) -> Any:
    """A·B as `execute` makes it: by launches that are ready, else directly; None: it is native."""
    x, y = (np.array(v, order="K").view(HostArray) for v in (a, b))  # at addresses of its own
    request = Request(x, y, scheme)
    ready = prepared.prepare("cupy", request, is_chosen=True)
    value = ready(x, y)
    if value is None and ready.add(request, x, y):
        value = ready(x, y)
    if value is None:
        made = multiply.multiply(request)
        value = made.value if isinstance(made, Product) else None
    return value


def test_launches_that_are_ready_make_the_product_that_the_operands_need(
    driver: HostDriver,
) -> None:
    """With the reference's bits, whatever ran before; without a look where nothing changes."""
    kinds = "14", "native", "bytes", "native, hidden", "15"
    for turn, kind in enumerate((*(kind for kind in kinds for _ in range(3)), *kinds, *kinds)):
        (a, b), _, _, count = KINDS[kind]
        driver.launched.clear()
        value = product(a, b, "crt")
        if count is None:
            assert value is None
        else:
            wanted = emulate(a, b, f"crt{count}") if count else a @ b
            np.testing.assert_array_equal(value, wanted)
        if turn < 3:
            assert ("look" in driver.launched) == (turn == 0)


@pytest.mark.parametrize("scheme", ["crt", "crt9"])
def test_complex_products_are_launched_again_where_their_parts_are_alike(
    driver: HostDriver, scheme: str
) -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (20, 60, 2)).view("D")[..., 0]
    for turn, other in enumerate((x, x, x, 0 * x, x)):
        driver.launched.clear()
        value = product(x, other.T, scheme)
        np.testing.assert_array_equal(value, emulate(x, other.T, scheme))
        assert ("look" in driver.launched) == (turn == 0)
        assert driver.launched.count("residue_gemm") == 1
    for _ in range(2):  # zeros, of which kernels record nothing that tells them from integers
        assert not product(0 * x, 0 * x.T, scheme).any()
    y = (x.real + 0.1j * x.imag).T.copy()  # which needs 15 moduli, or four products of parts
    for _ in range(3):
        np.testing.assert_array_equal(product(x, y, "crt"), emulate(x, y, "crt"))
    operands = x.view(HostArray), y.view(HostArray)
    ready = prepared.prepare("cupy", Request(*operands, "crt9"), is_chosen=True)
    assert not ready.add(Request(*operands, "crt9"), *operands)
