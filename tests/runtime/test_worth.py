"""What beats the vendor's products, by the device's model."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime import own_files, processor, worth
from mixpert_py.runtime.arrays import Array
from mixpert_py.runtime.model.device_model import model_of
from mixpert_py.runtime.reasons import Reason, Shape
from mixpert_py.runtime.request import Call, matmul_shape
from mixpert_py.runtime.worth import (
    figures,
    is_small_anywhere,
    layer_gains,
    moving_saves,
    tiny_pays,
    why_not_on_device,
)
from tests.runtime.emulations import EMULATIONS
from tests.runtime.gpu.fake import pays_from

H200 = "NVIDIA H200"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(own_files, "folder", lambda name: tmp_path / "cache")
    monkeypatch.setattr(processor, "cores", lambda: 16)  # of the shipped H200's host
    forget()
    yield tmp_path
    forget()


def forget() -> None:
    for cached in (model_of, figures, layer_gains, worth._times, worth._kernel_times):
        cached.cache_clear()


def is_faster(
    scheme: str, m: int, k: int, n: int, *, wide: bool = False, device: str = H200
) -> bool:
    return figures(device).faster(scheme, (m, k), (k, n), wide)


@pytest.mark.parametrize("scheme", ["faithful", "int8x6", "int8x3", "fp16x3", "int8x10"])
def test_large_products_are_faster_and_small_ones_are_not(scheme: str) -> None:
    assert is_faster(scheme, 4096, 4096, 4096)
    assert not is_faster(scheme, 256, 256, 256)
    edges = [is_faster(scheme, n, n, n) for n in range(128, 4096, 128)]
    assert edges == sorted(edges), "once faster, always faster"


@pytest.mark.parametrize(
    ("device", "single", "double"),
    [
        ("NVIDIA A10", "native", "crt"),
        ("NVIDIA A100-SXM4-80GB", "faithful", "crt"),
        ("NVIDIA B200", "faithful", "crt"),
        ("NVIDIA GB10", "native", "crt"),
        ("NVIDIA GeForce RTX 3090", "native", "crt"),
        ("NVIDIA GeForce RTX 4080", "native", "crt"),
        ("NVIDIA GeForce RTX 4090", "native", "crt"),
        ("NVIDIA GeForce RTX 5090", "native", "crt"),
        ("NVIDIA H100 80GB HBM3", "faithful", "crt"),
        ("NVIDIA H200", "faithful", "crt"),
        ("NVIDIA L4", "native", "crt"),
        ("NVIDIA L40S", "native", "crt"),
        ("NVIDIA RTX A6000", "native", "crt"),
    ],
)
def test_what_runs_by_default_follows_from_the_devices_model(
    device: str, single: str, double: str
) -> None:
    """Where FP16 is hardly faster than FP32, only float64 gains; vectors never do."""
    kinds = ("float32", single), ("float64", double), ("complex128", double)
    for dtype, default in kinds:
        scheme = "faithful" if dtype == "float32" else "crt"
        matrix, vector = (np.broadcast_to(np.zeros(1, dtype), n * (4096,)) for n in (2, 1))

        def why_not(a: Any, b: Any, scheme: str = scheme) -> Reason | None:
            call = Call(np.matmul, a, b, (), None, matmul_shape)
            return why_not_on_device(call, scheme, device, by_default=True)

        other = np.broadcast_to(np.ones(1, dtype), matrix.shape)
        assert (why_not(matrix, other) is None) == (default == scheme)
        for a, b in ((matrix, vector), (vector, matrix), (vector, vector)):
            assert why_not(a, b) is Reason.TOO_SMALL


def test_a_product_of_a_training_has_to_gain_more() -> None:
    def pays(k: int, n: int, is_trained: bool) -> bool:
        a, b = (SimpleNamespace(shape=it, dtype="float32") for it in ((1024, k), (k, n)))
        call = Call(np.matmul, a, b, (), None, matmul_shape, is_trained=is_trained)
        return why_not_on_device(call, "faithful", H200, by_default=True) is None

    assert pays(1024, 1024, False)
    assert not pays(1024, 1024, True)
    assert pays(1024, 4096, True)


def test_a_product_with_its_own_transpose_pays_earlier() -> None:
    x = np.broadcast_to(np.arange(3000.0), (3000, 3000))
    for b, wanted in ((x.T, None), (x.T + 1, Reason.TOO_SMALL)):
        call = Call(np.matmul, x, b, (), None, matmul_shape)
        assert why_not_on_device(call, "crt", "NVIDIA H200", by_default=True) is wanted


def test_thin_products_of_float32_are_native_but_not_stacks_of_tiny_ones() -> None:
    def is_small(a: tuple[int, ...], b: tuple[int, ...], dtype: str = "float32") -> bool:
        a_, b_ = (SimpleNamespace(shape=shape, dtype=dtype) for shape in (a, b))
        return is_small_anywhere(Call(np.matmul, a_, b_, (), None, matmul_shape))

    for thin in ((15000, 5000), (5000, 64)), ((64, 5000), (5000, 15000)), ((5000, 5000), (5000,)):
        assert is_small(*thin)
        assert not is_small(*thin, "float64")
    assert not is_small((15000, 5000), (5000, 65))
    assert not is_small((100000, 16, 16), (100000, 16, 16))


@pytest.mark.parametrize(
    ("shape", "is_trained", "gains"),
    [
        ((1024, 1024, 1024), False, True),
        ((1024, 1024, 1024), True, False),
        ((100, 4000, 3000), False, False),  # nine launches for 31 µs
        ((512, 1024, 8192), False, True),
        ((512, 1024, 8192), True, True),
    ],
)
def test_a_default_gains_more_than_it_costs_the_host(
    shape: Shape, is_trained: bool, gains: bool
) -> None:
    m, k, n = shape
    a, b = (SimpleNamespace(shape=shape, dtype="float32") for shape in ((m, k), (k, n)))
    call = Call(np.matmul, a, b, (), None, matmul_shape, is_trained=is_trained)
    why_not = why_not_on_device(call, "faithful", H200, by_default=True)
    assert (why_not is None) == gains
    assert why_not_on_device(call, "faithful", H200, by_default=False) is None
    gain, native = layer_gains(H200, "float32", shape, is_trained=is_trained)
    assert (gain > 0.0) == gains
    assert gain < native


def test_a_compiler_asks_by_shapes_and_types() -> None:
    a, b = (SimpleNamespace(shape=shape, dtype="float64") for shape in ((4096, 5000), (5000, 4096)))
    call = Call(np.matmul, a, b, (), None, matmul_shape)
    assert why_not_on_device(call, "crt", "NVIDIA H200", by_default=True) is None


@pytest.mark.parametrize(
    ("m", "k", "n"),
    [
        *((16384, 16384, 1), (32768, 16384, 1), (17024, 16384, 1), (8500, 16384, 1)),
        *((1024, k, 1) for k in (1024, 8192, 31744)),
        *((16, 4096, 4096), (8192, 8192, 8), (16384, 1, 16384), (16384, 3, 65536)),
    ],
)
@pytest.mark.parametrize("wide", [False, True], ids=["float32", "float64"])
def test_what_is_bound_by_memory_is_not_faster(m: int, k: int, n: int, wide: bool) -> None:
    """Or is short: emulation reads the same operands, and writes slices."""
    found = {
        scheme
        for scheme in [*EMULATIONS, "faithful"]
        if is_faster(scheme, m, k, n, wide=wide) or is_faster(scheme, n, k, m, wide=wide)
    }
    assert not found


@pytest.mark.parametrize(
    ("size", "dtype", "seconds"),
    [(8192, np.float32, 0.79), (1024, np.float32, 0.0), (16384, np.float64, 13.69)],
)
def test_what_is_worth_moving(size: int, dtype: type, seconds: float) -> None:
    a = np.broadcast_to(dtype(0), (size, size))
    known = pays_from(1e6, 30, staging=8e9, host=1.2e12)
    saved = moving_saves(a, a, (size,) * 3, "int8x6", known)
    assert saved == pytest.approx(seconds, abs=0.01)


def test_of_a_product_with_its_transpose_the_host_makes_half() -> None:
    def saved(a: Array, b: Array) -> float:
        shape = (len(a), a.shape[1], b.shape[1])
        return moving_saves(a, b, shape, "crt", pays_from(1, staging=1e10, host=1e12))

    x, y = np.empty((2, 4096, 2048))
    # 8 · 4096 · 2048 bytes of an operand, 8 · 2048² of the result, 4 · 4096 · 2048² operations.
    operand, result, here = 6.71e-3, 3.36e-3, 68.7e-3
    assert saved(x.T, y) == pytest.approx(here - 1.2 * (2 * operand + result), rel=0.01)
    alike = here / 2 - 1.2 * (operand + result)
    assert saved(x.T, x) == pytest.approx(alike, rel=0.01)
    assert saved(x[:, :1024].T, x[:, :1024]) < saved(x[:, :1024].T, x[:, 1024:])
    every_second = x[:, ::2]  # NumPy copies it, and makes all
    assert saved(every_second.T, every_second) > 1.5 * saved(x[:, :1024].T, x[:, :1024])
    assert saved(x.T, y[:, :1]) == 0.0  # a vector: all time goes into moving
    z = x[:2048]  # square, but not turned
    assert saved(z, z) == saved(z, y[:2048])


@pytest.mark.parametrize(
    ("shapes", "small"),
    [
        (((1023, 1024), (1024, 9)), True),
        (((1024, 1024), (1024, 9)), False),
        (((9, 1024), (1024, 1024)), True),  # the left operand decides
    ],
)
def test_small_numpy_operands(shapes: tuple[tuple[int, int], ...], small: bool) -> None:
    a, b = (np.broadcast_to(np.float32(0), shape) for shape in shapes)
    assert worth.is_small(a, b) is small
    assert not worth.is_small(a, b.tolist())
    assert worth.are_small(["ij,jk", a, [0, 1]]) is small


def test_a_float64_product_needs_some_thickness_for_float32() -> None:
    thick, thin = np.zeros((144, 144)), np.zeros((144, 40))
    assert worth.why_not_cast(thick, thick, (144, 144, 144)) is None
    assert worth.why_not_cast(thin.T, thick, (40, 144, 144)) is Reason.TOO_SMALL
    single = thin.astype(np.float32)
    assert worth.why_not_cast(single.T, single, (40, 144, 40)) is None


MANY = 1 << 20


@pytest.mark.parametrize(
    ("a", "b", "pays"),
    [
        ((MANY, 16, 16), (MANY, 16, 16), True),
        ((MANY, 4, 4), (MANY, 4, 4), True),
        ((MANY, 32, 5), (MANY, 5, 7), True),
        ((1024, 1024, 16, 16), (1024, 1024, 16, 1), True),
        ((MANY, 33, 16), (MANY, 16, 16), False),
        ((MANY, 16, 33), (MANY, 33, 16), False),
        ((MANY, 16, 16), (MANY, 16, 33), False),
        ((MANY, 16, 16), (16, 16), True),
        ((1, 16, 16), (MANY, 16, 16), True),
        ((1000, 16, 16), (1000, 16, 16), True),
        ((1024, 1, 16, 16), (1, 1024, 16, 16), False),
        ((MANY, 16, 16), (16,), False),
        ((999, 16, 16), (999, 16, 16), False),
        ((16, 16), (16, 16), False),
        ((0, 16, 16), (0, 16, 16), False),
        ((MANY, 16, 0), (MANY, 0, 16), False),
    ],
)
def test_stacks_of_tiny_products(a: tuple[int, ...], b: tuple[int, ...], pays: bool) -> None:
    assert tiny_pays("faithful", a, b) is pays
    assert not tiny_pays("int8x6", a, b)


def test_moving_counts_four_products_of_complex_numbers() -> None:
    known = worth.Figures(8e9, 0.0, 1e12, lambda *_: (0.0, 1.0))
    real, both = (np.broadcast_to(np.zeros((), t), (500, 500)) for t in "fF")
    shape = (500, 500, 500)
    assert not moving_saves(real, real, shape, "int8x6", known)
    assert moving_saves(both, both, shape, "int8x6", known)


def test_integers_gain_from_smaller_sizes_on_outside_of_einsum() -> None:
    x = np.ones((100, 100), np.int64)  # np.einsum's loop is quicker than np.matmul's
    assert not worth.are_small([x, x])
    assert worth.are_small(["ij,jk", x, x], worth.MIN_IN_EINSUM)
