"""The speed of NumPy arrays' way to the device and back."""

import pytest

from mixpert_py.errors import DeviceError
from mixpert_py.runtime.probes import transfer
from tests.runtime.gpu.fake import FakeGpu


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    fake = FakeGpu()
    fake.install(monkeypatch)
    monkeypatch.setattr(transfer, "MOVED", 32)
    return fake


def test_products_are_made(gpu: FakeGpu) -> None:
    assert transfer.staged() > 0
    assert gpu.launches == [(1, 32, 32)] * 6


def test_no_product_is_no_speed(gpu: FakeGpu) -> None:
    gpu.memory = 0
    with pytest.raises(DeviceError, match="NumPy arrays: out of memory"):
        transfer.staged()
