"""The speed of NumPy arrays' way to the device and back."""

from unittest.mock import MagicMock

import msgspec
import pytest

from mixpert_py.errors import DeviceError
from mixpert_py.runtime import processor
from mixpert_py.runtime.model.device_model import Host, Launch, Transfer
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


def test_tables_are_those_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = MagicMock()
    gpu.cupy.cuda.get_elapsed_time.return_value = 1.0
    [(name, launch)] = transfer.launch(gpu).tables.items()
    assert name == "launch"
    assert msgspec.convert(launch, Launch).device == 1e-3 / transfer.COUNT
    monkeypatch.setattr(transfer, "_pinned", lambda gpu: (5e10, 4e10))
    monkeypatch.setattr(transfer, "staged", lambda: 1e10)
    monkeypatch.setattr(transfer, "host_rate", lambda: 3e11)
    monkeypatch.setattr(processor, "cores", lambda: 4)
    tables = transfer.transfer(gpu).tables
    assert msgspec.convert(tables["transfer"], Transfer) == Transfer(5e10, 4e10, 1e10)
    assert msgspec.convert(tables["host"], Host) == Host(3e11, 4)
