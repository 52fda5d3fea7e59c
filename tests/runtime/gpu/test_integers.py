"""Products of CuPy's integers, and parts of complex arrays, have NumPy's bits: by the CUDA kernels
on the host, and on a GPU.
"""

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime import worth
from mixpert_py.runtime.api import dot, matmul
from mixpert_py.runtime.complex_product import join, split
from mixpert_py.runtime.gpu import complex_parts, integers
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.request import Request
from tests.contract.table import normal
from tests.every_check import some, sweep
from tests.runtime.gpu.fake import FakeGpu
from tests.runtime.integers import PAIRS, entries
from tests.runtime.kernels_on_host.host import HostArray, HostKernel, Memory, kernels, seen
from tests.runtime.operands import ran

WHOLE = [pair for pair in PAIRS if "?" not in pair]
KINDS = ("small", "full", "ends", "11")
LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "C order": lambda x: x,
    "Fortran order": lambda x: x.copy(order="F"),
    "reversed": lambda x: x[::-1, ::-1].copy()[::-1, ::-1],
    "every other": lambda x: x.repeat(2, axis=0).repeat(3, axis=1)[::2, ::3],
}


@pytest.fixture
def every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Digits are taken for the fastest at every size."""
    monkeypatch.setattr(worth, "MIN_DIGITS", 0)
    monkeypatch.setattr(worth, "MIN_K_OF_DIGITS", dict.fromkeys((1, 2, 4, 8), 0))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """`cuda_kernel`, for the host."""
    if shutil.which("g++") is None:
        pytest.skip("there is no g++")
    folder: Path = tmp_path_factory.mktemp("kernels")
    made: dict[Any, dict[str, HostKernel]] = {}

    def cuda_kernel(file: str, name: str, definitions: Any, shared: int = 0) -> Any:
        key = file, definitions
        if key not in made:
            given = ("ALL_ARRIVE", 1), *definitions  # threads of a warpgroup go on one by one here
            made[key] = kernels(file, given, folder / f"{len(made)}.so", "-O2")
        return made[key][name]

    return cuda_kernel


@pytest.fixture
def on_host(compiled: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    attributes = {"MaxSharedMemoryPerBlockOptin": 227 * 1024, "MultiProcessorCount": 2}
    cuda = SimpleNamespace(
        Device=lambda number: SimpleNamespace(attributes=attributes),
        get_current_stream=lambda: SimpleNamespace(ptr=0),
    )
    empty = lambda shape, dtype: np.empty(shape, dtype).view(HostArray)  # noqa: E731
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda, empty=empty))
    monkeypatch.setattr(integers, "cuda_kernel", compiled)
    monkeypatch.setattr(integers, "allocate", lambda size, stream: Memory(size))
    cleared = lambda address, size, stream: seen(address, (size,), np.uint8).fill(0)  # noqa: E731
    monkeypatch.setattr(integers, "clear", cleared)
    for cache in (integers.packing, integers.gemm):
        cache.cache_clear()
    yield
    for cache in (integers.packing, integers.gemm):
        cache.cache_clear()


SIZES = ((40, 70, 3), (3, 130, 195), (258, 20, 194))
OF_LAYOUTS = list(zip(LAYOUTS, ("u1", "i2", "i4", "i8"), ("u1", "i2", "u2", "i4"), strict=True))


@pytest.mark.usefixtures("on_host")
@pytest.mark.parametrize(("layout", "left", "right"), some(OF_LAYOUTS, 2) + OF_LAYOUTS[-1:])
def test_products_of_digits_have_every_bit(layout: str, left: str, right: str) -> None:
    rng = np.random.default_rng(len(layout))
    for (m, k, n), kind in sweep(SIZES, KINDS, together=1):
        a, b = entries(rng, left, (m, k), kind), entries(rng, right, (k, n), kind)
        x, y = (LAYOUTS[layout](one).view(HostArray) for one in (a, b))
        product = integers.multiply(Request(x, y, "exact"))
        assert product.scheme == "exact"
        assert product.value.dtype == np.result_type(a, b)
        np.testing.assert_array_equal(product.value, a @ b)


@pytest.mark.usefixtures("on_host")
def test_a_result_of_ones_own_is_written() -> None:
    a = np.arange(12, dtype="i4").reshape(3, 4).view(HostArray)
    out = np.zeros((3, 6), "i4").view(HostArray)[:, ::2]
    product = integers.multiply(Request(a, a.T, "exact", out=out))
    assert product.value is out
    np.testing.assert_array_equal(out, np.asarray(a) @ np.asarray(a).T)


def test_which_products_take_digits(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    xp: Any = sys.modules["cupy"]
    monkeypatch.setattr(
        integers, "multiply", lambda request, _: Reason.KERNEL if request.a.ndim == 2 else None
    )
    ones = np.ones((300, 800), "i8")

    def reason(a: Any, b: Any, **given: Any) -> Reason | None:
        result, scheme, why = ran(matmul, xp.asarray(a), xp.asarray(b), **given)
        assert scheme == "native"
        np.testing.assert_array_equal(result.get(), a @ b)
        return why

    assert reason(ones, ones.T, scheme="exact") is Reason.KERNEL
    assert reason(ones.astype("u1"), ones.T, scheme="int8x6") is Reason.KERNEL
    assert reason(ones[:20], ones[:20].T, scheme="exact") is Reason.TOO_SMALL
    assert reason(ones.T, ones, scheme="exact") is Reason.TOO_SMALL
    assert reason(ones, ones[0], scheme="exact") is Reason.INTEGER
    assert reason(ones[None], ones.T, scheme="exact") is Reason.INTEGER
    assert reason(ones > 0, ones.T > 0, scheme="exact") is Reason.INTEGER
    assert reason(ones, ones.T.astype("u8"), scheme="exact") is Reason.INTEGER
    assert reason(ones, ones.T) is Reason.KERNEL
    long = np.ones((30, worth.TOO_LONG_FOR_DIGITS), "i8")
    assert reason(long, long.T, scheme="exact") is Reason.TOO_SMALL
    assert reason(long.astype("i4"), long.T.astype("i4"), scheme="exact") is Reason.KERNEL


@pytest.mark.usefixtures("every_size")
def test_other_gpus_have_no_kernel_of_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    xp = FakeGpu("NVIDIA A100", (8, 0)).install(monkeypatch)
    a = xp.asarray(np.ones((300, 300), "i8"))
    assert ran(matmul, a, a, scheme="exact")[1:] == ("native", Reason.NO_KERNEL)


def random_pair(rng: Any, left: str, right: str, m: int, k: int, n: int) -> tuple[Any, Any]:
    kinds = rng.choice(KINDS, 2)
    return entries(rng, left, (m, k), kinds[0]), entries(rng, right, (k, n), kinds[1])


@pytest.mark.gpu
@pytest.mark.usefixtures("every_size")
def test_bits_on_a_gpu_are_those_of_the_host() -> None:
    xp = pytest.importorskip("cupy", reason="CuPy is not installed")
    rng = np.random.default_rng(0)
    for left, right in WHOLE:
        for m, k, n in ((1, 1, 1), (300, 200, 250), (65, 1000, 33), (500, 70, 391), (7, 9000, 5)):
            a, b = random_pair(rng, left, right, m, k, n)
            for layout in ("C order", "Fortran order", "every other"):
                x, y = (LAYOUTS[layout](xp.asarray(one)) for one in (a, b))
                result, scheme, _ = ran(matmul, x, y)
                assert scheme == "exact"
                assert result.dtype == np.result_type(a, b)
                np.testing.assert_array_equal(result.get(), a @ b)


@pytest.mark.gpu
@pytest.mark.usefixtures("every_size")
def test_prepared_products_and_results_of_ones_own() -> None:
    xp = pytest.importorskip("cupy", reason="CuPy is not installed")
    rng = np.random.default_rng(1)
    for left, right in (("i8", "i8"), ("u4", "i2"), ("i4", "i4"), ("u1", "u1")):
        out = xp.zeros((301, 391), np.result_type(left, right))
        for _ in range(5):  # ranges change from call to call
            a, b = random_pair(rng, left, right, 301, 500, 391)
            x, y = map(xp.asarray, (a, b))
            for result in (
                matmul(x, y, site="i"),
                dot(x, y, site="d", native=xp.dot),
                matmul(x, y, out=out, site="o", native=xp.matmul),
            ):
                np.testing.assert_array_equal(result.get(), a @ b)
        assert result is out
    square = xp.asarray(entries(rng, "i8", (300, 300), "full"))
    wanted = square.get() @ square.get()
    matmul(square, square, out=square, site="own", native=xp.matmul)
    np.testing.assert_array_equal(square.get(), wanted)


@pytest.mark.gpu
@pytest.mark.usefixtures("every_size")
def test_a_graph_multiplies_what_is_there_when_it_runs() -> None:
    xp = pytest.importorskip("cupy", reason="CuPy is not installed")
    rng = np.random.default_rng(2)
    a, b = (xp.asarray(entries(rng, "i8", (600, 600), "small")) for _ in range(2))
    matmul(a, b, site="g")
    with xp.cuda.Stream(non_blocking=True) as stream:
        stream.begin_capture()
        result = matmul(a, b, site="g")
        graph = stream.end_capture()
        for kind in ("full", "small"):
            a.set(entries(rng, "i8", (600, 600), kind))
            graph.launch(stream)
            stream.synchronize()
            np.testing.assert_array_equal(result.get(), a.get() @ b.get())


@pytest.fixture
def parts_on_host(compiled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def empty(shape: Any, dtype: Any, device: int, stream: object) -> Any:
        return np.full(shape, np.nan, dtype).view(HostArray)

    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace())
    monkeypatch.setattr(complex_parts, "cuda_kernel", compiled)
    monkeypatch.setattr(complex_parts, "empty", empty)


OF_PARTS: dict[str, Callable[[Any], Any]] = {
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


@pytest.mark.usefixtures("parts_on_host")
@pytest.mark.parametrize("dtype", ["F", "D"])
@pytest.mark.parametrize("layout", OF_PARTS)
def test_parts_and_products(layout: str, dtype: str) -> None:
    """Subnormal numbers included."""
    for shape in ((7, 150), (1, 1), (3, 40, 9), (2, 2, 5, 6), (0, 4)):
        check_parts(shape, layout, dtype)


def check_parts(shape: tuple[int, ...], layout: str, dtype: str) -> None:
    x = normal(*shape, dtype=dtype)
    x[..., :1] *= 1e-42
    z = OF_PARTS[layout](x).view(HostArray)
    real = x.real.dtype
    np.testing.assert_array_equal(complex_parts.split(z, stream=0), split(x))
    for count in ((2, 2), (2,)):
        products = normal(*count, *shape, dtype=real, seed=1).view(HostArray)
        wanted = np.empty(shape, dtype)
        join(products, wanted)
        complex_parts.join(products, z, stream=0)
        np.testing.assert_array_equal(z, wanted)
