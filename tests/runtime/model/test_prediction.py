"""Predicted times of whole products, against those that were measured."""

import json

import numpy as np
import pytest

from mixpert_py.errors import DeviceError
from mixpert_py.runtime.model import prediction
from mixpert_py.runtime.model.device_model import find
from mixpert_py.runtime.model.kernel_times import KernelTimes
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes import get
from tests.mixpert_py.command import ROOT

H200 = KernelTimes(find("NVIDIA H200"))
# Milliseconds of cuBLAS's float32 product of m × k × n, measured on one H200.
CUBLAS = {
    (256, 256, 256): 0.0081,
    (512, 512, 512): 0.0142,
    (1024, 1024, 1024): 0.0565,
    (2048, 2048, 2048): 0.343,
    (4096, 4096, 4096): 2.67,
    (8192, 8192, 8192): 21.6,
    (16384, 16384, 16384): 174.5,
    (4096, 4096, 16384): 10.81,
    (4096, 16384, 4096): 10.76,
    (16384, 1024, 16384): 10.75,
    (8192, 256, 8192): 0.834,
    (16384, 16384, 1): 0.30,
    (32768, 16384, 1): 0.58,
}
VECTORS = [shape for shape in CUBLAS if shape[2] == 1]
DTYPES = pytest.mark.parametrize("wide", [False, True], ids=["float32", "float64"])


def scheme(name: str) -> Scheme:
    entry = get(name)
    assert isinstance(entry, Scheme)
    return entry


def seconds(name: str, m: int, k: int, n: int, batch: int = 1, **more: bool | int) -> float:
    return prediction.product(H200, scheme(name), (m, k, n), batch, **more).seconds  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", CUBLAS, ids=str)
def test_the_vendors_product(shape: tuple[int, int, int]) -> None:
    assert prediction.native(H200, *shape) * 1e3 == pytest.approx(CUBLAS[shape], rel=0.25)


def test_the_vendors_product_of_a_float64_vector() -> None:
    found = prediction.native(H200, 32768, 32768, 1, wide=True)
    assert found == pytest.approx(1.93e-3, rel=0.25)


@pytest.mark.parametrize("n", [2048, 8192])
def test_complex_products_by_residues_take_little_more_than_two_products(n: int) -> None:
    real = [seconds("crt14", n, n, n, batch, wide=True) for batch in (2, 3)]
    joined = prediction.joined(H200, scheme("crt14"), (n, n, n)).seconds
    assert real[0] < joined < 0.8 * real[1]


def test_measured_products() -> None:
    """The committed measurements, by the model that is shipped."""
    text = (ROOT / "samples/papers/results.json").read_text("utf-8")
    rows = json.loads(text)["exhibits"]["raihan-correlation"]["rows"]
    found = [
        seconds(row["name"], row["m"], row["k"], row["n"], row["batch"]) / row["measured"]
        for row in rows
    ]
    assert len(found) >= 60
    assert np.median(np.abs(np.array(found) - 1)) <= 0.10
    assert max(found) < 1.6
    assert min(found) > 0.6


@DTYPES
@pytest.mark.parametrize("name", ["int8x1", "int8x6", "fp16", "tf32x3"])
@pytest.mark.parametrize("shape", [*VECTORS, (8, 8192, 8192), (16384, 1, 16384)], ids=str)
def test_nothing_that_is_split_takes_less_than_its_bytes(
    shape: tuple[int, int, int], name: str, wide: bool
) -> None:
    """Where the native product is bound by memory: emulation reads the same, and writes slices."""
    (m, k, n), size = shape, 8 if wide else 4
    moved = size * (m * k + k * n + m * n) / H200.model.dram.copy
    native = prediction.native(H200, m, k, n, wide=wide)
    assert native == pytest.approx(moved, rel=0.1)
    assert seconds(name, m, k, n, wide=wide) > native


@pytest.mark.parametrize("name", ["tesla-t4", "tesla-v100-sxm2-16gb"])
def test_a_device_without_kernels_is_named(name: str) -> None:
    with pytest.raises(DeviceError, match=r"compute capability 7\.\d; the kernels need 8\.0"):
        prediction.product(KernelTimes(find(name)), scheme("int8x6"), (512, 512, 512))


@pytest.mark.parametrize("name", ["fp16x3", "int8x6", "crt14"])
@pytest.mark.parametrize("n", [300, 2048, 8192])
def test_a_symmetric_product_takes_at_least_half(name: str, n: int) -> None:
    share = seconds(name, n, 4096, n, symmetric=True) / seconds(name, n, 4096, n)
    assert 0.5 <= share <= (0.6 if n > 4096 else 1)


def test_products_by_residues_fall_in_time_with_their_moduli() -> None:
    """Fourteen took 14.3 ms at 8192³ on one H200, by a prototype; FP64 20.4 ms."""
    found = [seconds(f"crt{count}", 8192, 8192, 8192, wide=True) for count in range(7, 17)]
    assert found == sorted(found)
    assert found[7] == pytest.approx(14.3e-3, rel=0.25)
    assert found[7] < prediction.native(H200, 8192, 8192, 8192, wide=True)
    assert seconds("crt14", 64, 64, 64, 3, wide=True) > seconds("crt14", 64, 64, 64, wide=True)
