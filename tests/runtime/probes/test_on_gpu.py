"""The probes on a real GPU: facts that hold of any, and some of Hopper."""

import pytest

from mixpert_py.runtime.probes import memory, resources
from mixpert_py.runtime.probes.gpu import Gpu
from mixpert_py.runtime.probes.products import transfer

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def gpu() -> Gpu:
    return Gpu.current()


def test_resources(gpu: Gpu) -> None:
    tables = resources(gpu)
    assert tables["device"] == gpu.device.name
    assert tables["chip"]["multiprocessors"] > 1
    assert 5e8 < tables["chip"]["clock"] < 4e9
    assert 48 * 1024 < tables["shared"]["per_block"] < 1 << 18
    assert tables["cuda"].count(".") == 1


def test_memory(gpu: Gpu) -> None:
    tables = memory(gpu)
    assert 1e9 < tables["dram"]["bandwidth"] < 1e14
    assert 1e9 < tables["dram"]["copy"] < 1e14


def test_transfer(gpu: Gpu) -> None:
    tables = transfer(gpu)
    assert 1e8 < tables["transfer"]["staged"] < 1e12
    assert tables["host"]["float32"] > 1e9
