"""Which GPU is here: every way in which none is, said in one line."""

import os

import pytest

from mixpert_py.errors import DeviceError
from mixpert_py.runtime.gpu.device import Absent, Device, find
from mixpert_py.runtime.modules import precision
from mixpert_py.runtime.reasons import Reason
from tests.runtime.gpu.fake import CUDARuntimeError, FakeGpu, on_device


@pytest.mark.parametrize(
    ("capability", "kernels"), [((9, 0), "sm_90a"), ((8, 0), "portable"), ((10, 0), "portable")]
)
def test_a_gpu_and_its_kernels(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], kernels: str
) -> None:
    FakeGpu(capability=capability).install(monkeypatch)
    found = find()
    assert found == Device(0, "NVIDIA H200", 10 * capability[0] + capability[1])
    assert found.kernels == kernels
    with on_device(1):
        assert find() == Device(1, "NVIDIA H200", found.capability)
    assert find(0) == found


@pytest.mark.parametrize(
    ("gpu", "reason", "sentence"),
    [
        (FakeGpu(count=0), Reason.NO_TENSOR_CORE, "there is no GPU"),
        (FakeGpu(capability=(7, 5)), Reason.OLD_GPU, "compute capability 7.5"),
        (
            FakeGpu(error=CUDARuntimeError(35), driver=0),
            Reason.NO_TENSOR_CORE,
            "there is no NVIDIA driver",
        ),
        (
            FakeGpu(error=CUDARuntimeError(35), driver=11040),
            Reason.OLD_DRIVER,
            "the driver is for CUDA 11.4 and CuPy for 13.1: update",
        ),
        (FakeGpu(error=CUDARuntimeError(3)), Reason.FORKED, "forked after CUDA began"),
        (FakeGpu(error=CUDARuntimeError(999)), Reason.NO_TENSOR_CORE, "CUDA said no"),
    ],
    ids=["none", "old", "no driver", "old driver", "forked", "unknown"],
)
def test_no_usable_gpu(
    monkeypatch: pytest.MonkeyPatch, gpu: FakeGpu, reason: Reason, sentence: str
) -> None:
    gpu.install(monkeypatch)
    found = find()
    assert isinstance(found, Absent)
    assert found.reason is reason
    assert sentence in found.sentence
    with pytest.raises(DeviceError) as caught, precision("int8x6", backend="cuda"):
        pass
    assert str(caught.value) == f"backend 'cuda': {found.sentence}; use 'reference'"
    assert "\n" not in str(caught.value)


def test_a_process_asks_once_and_a_child_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = FakeGpu()
    gpu.install(monkeypatch)
    assert isinstance(find(), Device)
    gpu.count = 0
    assert isinstance(find(), Device)
    child = os.fork()
    if child == 0:
        os._exit(0 if isinstance(find(), Absent) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert isinstance(find(), Device)


def test_without_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cupy", None)
    found = find()
    assert isinstance(found, Absent)
    assert found.sentence.startswith("CuPy cannot be imported (")
