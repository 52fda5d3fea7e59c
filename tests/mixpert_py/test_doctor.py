"""What the doctor says of a GPU, and how it is measured: on one that is not there."""

import datetime
from pathlib import Path

import msgspec
import pytest

from mixpert_py.commands.doctor import MISSING, examine
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
