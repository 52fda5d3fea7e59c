"""Large products whose operands the slices do not hold: decided on the device, each time."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime import worth
from mixpert_py.runtime.gpu import device, guard
from mixpert_py.runtime.schemes.floats import FP16X3
from mixpert_py.runtime.worth import emulation_on_gpu
from tests.runtime.emulations import EMULATIONS
from tests.runtime.kernels_on_host.host import kernels

UNIT = 2.0**-24


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
def test_a_matrix_is_compared_with_its_mirror_image(tmp_path: Path) -> None:
    look = kernels("guard.cu", (), tmp_path / "guard.so")["mirror"]
    n, leading = 150, 160
    x = np.random.default_rng(0).standard_normal((n, leading)).astype(np.float32)
    x[:, :n] += x[:, :n].T
    x[3, 140] = x[140, 3] = np.nan
    for place, before, after in (
        (None, guard.MIRRORED, guard.MIRRORED),
        (None, 1, 1),
        ((149, 0), guard.MIRRORED, 0),
        ((70, 71), guard.MIRRORED, 0),
        ((149, 0), 1, 1),
        ((10, 155), guard.MIRRORED, guard.MIRRORED),
    ):
        one = x.copy()
        if place is not None:
            one.view(np.int32)[place] ^= 1
        words = np.array([7, before], np.int32)
        given = one.ctypes.data, n, leading, words.ctypes.data, guard.MIRRORED
        look.launch_words(4, guard.MIRROR_THREADS, given, 0, None)
        assert words.tolist() == [7, after]


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_operands_are_compared_with_conjugates(dtype: str, tmp_path: Path) -> None:
    kernel = kernels("guard.cu", (), tmp_path / "guard.so")["conjugate"]
    x = np.random.default_rng(0).standard_normal((150, 140)).astype(dtype)
    x.imag, x[3, 4] = x.real[:, ::-1], complex(np.nan, -np.inf)
    single, general, hermitian = int(dtype == "complex64"), guard.GENERAL, guard.HERMITIAN
    for part, place in ((None, 0), ("real", 0), ("imag", 70), ("imag", 149), ("real", 149)):
        for before in (0, hermitian):
            other, word = x.conj(), np.array([before, 7], np.int32)
            if part is not None:
                numbers = getattr(other, part)
                numbers[place, 5] = np.nextafter(numbers[place, 5], 9)
            count = other.nbytes // 8
            given = x.ctypes.data, other.ctypes.data, count, single, word.ctypes.data
            kernel.launch_words(4, guard.MIRROR_THREADS, (*given, hermitian, general), 0, None)
            assert word.tolist() == [before if part is None else min(before, general), 7]


def array(*shape: int) -> Any:
    return SimpleNamespace(shape=shape, size=int(np.prod(shape)))


@pytest.mark.parametrize(
    ("a", "b", "wide"),
    [
        ((1024, 1024), (1024, 1025), True),
        ((1024, 1024), (1024, 1024), False),
        ((1 << 14, 16), (16, 1 << 14), True),
        ((2, 1024, 1024), (1024, 1024), True),
        ((1024, 1024), (2, 1024, 1024), True),
        ((2, 512, 1024), (1024, 1024), False),
    ],
)
def test_large_products_have_a_wider_scheme_beside(
    monkeypatch: pytest.MonkeyPatch, a: Any, b: Any, wide: bool
) -> None:
    """Of others the wider scheme makes all."""
    monkeypatch.setattr(device, "_states", {})
    x, y, six = array(*a), array(*b), EMULATIONS["int8x6"]
    assert guard.wider_of(FP16X3, x, y) is (FP16X3.wider if wide else None)
    assert guard.safe(FP16X3, x, y, 0) is (FP16X3 if wide else FP16X3.wider)
    count = max(x.size * b[-1], y.size * a[-2])
    assert emulation_on_gpu("faithful", count) is guard.safe(FP16X3, x, y, 0)
    assert emulation_on_gpu("fp16x3", count) is FP16X3
    assert guard.wider_of(six, x, y) is None
    assert guard.safe(six, x, y, 0) is six
    device.state_of(0).has_wider = False
    assert guard.safe(FP16X3, x, y, 0) is FP16X3
    device.state_of(1).refused["bf16x6"] = "does not compile"
    assert guard.safe(FP16X3, x, y, 1) is FP16X3


@pytest.fixture
def every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worth, "MIN_GUARDED", 1)


def wide(shape: tuple[int, ...], width: float, order: str = "C") -> Any:
    """(U − ½) · exp(width · N), float32."""
    import cupy

    rng = cupy.random.default_rng(sum(shape))
    x = (rng.random(shape) - 0.5) * cupy.exp(width * rng.standard_normal(shape))
    return cupy.asarray(x, "float32", order=order)


def made(a: Any, b: Any, **given: Any) -> Any:
    from mixpert_py.runtime.gpu import multiply as gpu_backend
    from mixpert_py.runtime.gpu import slices

    return slices.multiply(gpu_backend.cuda_kernels(), slices.Operands(a, b), FP16X3, **given)


def beyond(a: Any, b: Any, value: Any) -> int:
    """Elements that break the contract of `faithful`."""
    k, a, b = a.shape[-1], a.astype("d"), b.astype("d")
    return int((abs(value - a @ b) > (12 + k) * UNIT * (abs(a) @ abs(b))).sum())


@pytest.mark.gpu
@pytest.mark.parametrize("width", [0, 4, 10])
@pytest.mark.parametrize("orders", ["CC", "CF", "FC", "FF"])
@pytest.mark.parametrize("shape", [(300, 500, 260), (64, 20_000, 64), (129, 4500, 257)], ids=str)
@pytest.mark.usefixtures("every_size")
def test_every_way_to_pack(shape: Any, orders: str, width: float) -> None:
    m, k, n = shape
    a, b = wide((m, k), width, orders[0]), wide((k, n), width, orders[1])
    product = made(a, b)
    assert product.guard.flag() == (width > 0)
    assert not beyond(a, b, product.value)


@pytest.mark.gpu
@pytest.mark.parametrize("orders", ["CC", "CF", "FC", "FF"])
@pytest.mark.parametrize("k", [400, 4500])
@pytest.mark.usefixtures("every_size")
def test_a_graph_decides_each_time(k: int, orders: str) -> None:
    import cupy

    a, b = wide((300, k), 0, orders[0]), wide((k, 500), 0, orders[1])
    out = cupy.empty((300, 500), "float32")
    made(a, b, out=out)  # compiles
    with cupy.cuda.Stream(non_blocking=True) as stream:
        stream.begin_capture()
        kept = made(a, b, out=out)
        graph = stream.end_capture()
    for width in (0, 4, 0):
        a[...], b[...] = wide((300, k), width), wide((k, 500), width)
        cupy.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        assert kept.guard.flag() == (width > 0)
        assert not beyond(a, b, out)
