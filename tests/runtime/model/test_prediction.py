"""Predicted times of whole products, against those that were measured."""

import json
from importlib.resources import files

import numpy as np
import pytest

from mixpert_py.errors import DeviceError
from mixpert_py.runtime.model import prediction
from mixpert_py.runtime.model.kernel_times import KernelTimes
from mixpert_py.runtime.model.known_devices import find
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes import get

H200 = KernelTimes(find("NVIDIA H200"))
# Milliseconds of cuBLAS's float32 product of n × n × n, measured on one H200.
CUBLAS = {256: 0.0081, 512: 0.0142, 1024: 0.0565, 2048: 0.343, 4096: 2.67, 8192: 21.6}


def scheme(name: str) -> Scheme:
    entry = get(name)
    assert isinstance(entry, Scheme)
    return entry


def seconds(name: str, m: int, k: int, n: int, batch: int = 1, **more: bool | int) -> float:
    return prediction.product(H200, scheme(name), m, k, n, batch, **more).seconds  # type: ignore[arg-type]


@pytest.mark.parametrize("size", CUBLAS)
def test_the_vendors_product(size: int) -> None:
    found = prediction.native(H200, size, size, size) * 1e3
    assert found == pytest.approx(CUBLAS[size], rel=0.25)


def test_measured_products() -> None:
    """The committed measurements, by the model that is shipped."""
    text = (files("mixpert_py.bench") / "results" / "model.json").read_text("utf-8")
    rows = json.loads(text)["rows"]
    found = [
        seconds(row["scheme"], row["m"], row["k"], row["n"], row["batch"]) / row["measured"]
        for row in rows
    ]
    assert len(found) >= 60
    assert np.median(np.abs(np.array(found) - 1)) <= 0.10
    assert max(found) < 1.6
    assert min(found) > 0.6


def test_packed_and_shared_operands_are_not_packed_again() -> None:
    whole = seconds("int8x6", 64, 4096, 4096)
    assert seconds("int8x6", 64, 4096, 4096, packed=4096 * 4096) < whole
    stack = seconds("int8x6", 64, 1024, 1024, 32)
    assert seconds("int8x6", 64, 1024, 1024, 32, shares_b=True) < stack


def test_double_precision_takes_longer_to_pack() -> None:
    single = prediction.product(H200, scheme("int8x6"), 4096, 4096, 4096)
    double = prediction.product(H200, scheme("int8x6"), 4096, 4096, 4096, wide=True)
    assert double.packing > single.packing


@pytest.mark.parametrize("name", ["tesla-t4", "tesla-v100-sxm2-16gb"])
def test_a_device_without_kernels_is_named(name: str) -> None:
    with pytest.raises(DeviceError, match=r"compute capability 7\.\d; the kernels need 8\.0"):
        prediction.product(KernelTimes(find(name)), scheme("int8x6"), 512, 512, 512)


def test_an_a100_is_slower_than_an_h200() -> None:
    a100 = KernelTimes(find("a100"))
    for name in ("int8x6", "fp16x3"):
        ours = prediction.product(a100, scheme(name), 4096, 4096, 4096).seconds
        assert 1.2 < ours / seconds(name, 4096, 4096, 4096) < 6
