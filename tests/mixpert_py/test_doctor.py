"""What the doctor says of a GPU, and how it is measured: on one that is not there."""

import datetime
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from mixpert_py import matmul
from mixpert_py.commands.doctor import MISSING, arithmetic_of, examine
from mixpert_py.runtime.model import device_model
from tests.runtime.gpu.fake import CUDARuntimeError, FakeGpu


def said(what: str) -> str:
    return examine()[what]


@pytest.mark.parametrize(
    ("capability", "kernels"), [((9, 0), "sm_90a kernels"), ((8, 9), "portable kernels")]
)
def test_a_gpu_and_what_runs_on_it(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], kernels: str
) -> None:
    FakeGpu(capability=capability).install(monkeypatch)
    (major, minor), found = capability, examine()
    assert found["GPU"] == f"NVIDIA H200, compute capability {major}.{minor}, {kernels}"
    assert found["float32 products"].startswith("native; faithful on the GPU from about ")
    assert found["emulated schemes"].startswith(kernels)
    assert found["float64 products"].startswith("native")


def rounded(x: Any, bits: int) -> Any:
    """x with so many bits after the first."""
    significands, exponents = np.frexp(x)
    return np.ldexp(np.round(significands * 2.0 ** (bits + 1)) / 2 ** (bits + 1), exponents)


def bf16x3(a: Any, b: Any) -> Any:
    high, other = rounded(a, 7), rounded(b, 7)
    return high @ other + high @ rounded(b - other, 7) + rounded(a - high, 7) @ other


def by(scheme: str) -> Callable[[Any, Any], Any]:
    return partial(matmul, scheme=scheme, backend="reference:h200")


@pytest.mark.parametrize(
    ("multiply", "dtype", "name"),
    [
        (np.matmul, "float32", r"FP32"),
        (np.matmul, "float64", r"FP64"),
        (lambda a, b: rounded(a, 10) @ rounded(b, 10), "float32", r"TF32, not FP32: .*e-04"),
        (lambda a, b: rounded(a, 7) @ rounded(b, 7), "float32", r"BF16, not FP32: .*e-03"),
        (bf16x3, "float32", r"BF16x3, not FP32: .*e-0[56]"),
        (by("bf16x9"), "float32", r"BF16x9, or another emulation, not FP32: .*e-0[78]"),
        (by("int8x10"), "float64", r"FP64 emulated by the vendor: .*"),
        (lambda a, b: a.shape[7], "float32", r"unknown: tuple index out of range"),
    ],
)
def test_the_arithmetic_of_native_products_is_seen_in_them(
    multiply: Callable[[Any, Any], Any], dtype: str, name: str
) -> None:
    assert re.fullmatch(name, arithmetic_of(multiply, dtype, edge=64))


def test_each_library_on_a_gpu_shows_its_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeGpu().install(monkeypatch)
    found = examine()
    assert (found["float32 in CuPy"], found["float64 in CuPy"]) == ("FP32", "FP64")


def test_the_device_model_in_use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    FakeGpu().install(monkeypatch)
    shipped = device_model.find("NVIDIA H200")
    assert said("device model") == f"shipped, {shipped.origin}, of {shipped.date}"
    today = datetime.date.today()
    path = device_model.keep(msgspec.structs.replace(shipped, date=today))
    assert said("device model") == f"{path}, {shipped.origin}, of {today}"
    path.write_text("format = 3")
    assert "this version reads 1" in said("device model")
    path.chmod(0o622)  # others could have written it
    assert said("device model").startswith("shipped, ")


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("NVIDIA Nothing", "nvidia-h200"), ("NVIDIA GeForce RTX 4080", "nvidia-geforce-rtx-4090")],
)
def test_a_device_without_a_model(monkeypatch: pytest.MonkeyPatch, name: str, nearest: str) -> None:
    FakeGpu(name=name).install(monkeypatch)
    found = said("device model")
    assert found.startswith(f"{nearest} stands in: no device model is known for ")
    assert found.endswith("(`mixpert probe` makes one)")


def test_without_a_gpu_it_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeGpu(error=CUDARuntimeError(35), driver=11040).install(monkeypatch)
    found = examine()
    assert "the driver is for CUDA 11.4" in found["GPU"] != MISSING
    assert found["float32 products"] == "native"
    assert found["device model"].startswith("none in use; known are nvidia-a10, ")
    assert "float32 in CuPy" not in found
