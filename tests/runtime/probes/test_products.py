"""From timed products to the rows of a device model."""

import pytest

from mixpert_py.errors import DeviceError
from mixpert_py.runtime.model.device_model import KernelCost
from mixpert_py.runtime.model.kernel_times import Tile
from mixpert_py.runtime.probes import products as probe
from mixpert_py.runtime.probes.gpu import Gpu, memory, resources
from mixpert_py.runtime.probes.products import WAVES, kernel_row, line, products, rates
from tests.runtime.gpu.fake import FakeGpu


def test_a_line_has_no_part_below_zero() -> None:
    assert line((1, 3), (5, 9)) == (3, 2)
    assert line((1, 3), (9, 5)) == (9, 0)
    assert line((1, 2), (1, 4)) == (0, 3)


def test_a_kernels_row_gives_its_times_back() -> None:
    base, tile, step = 2e-6, 3e-6, 0.5e-6

    def seconds(waves: int, steps: int) -> float:
        return base + waves * (tile + steps * step)

    times = [seconds(1, 16), seconds(1, 64), seconds(WAVES, 16)]
    row = kernel_row("int8x6", Tile(128, 96, 5, 1, promote=False), (16, 64), times)
    assert (row.scheme, row.m, row.n) == ("int8x6", 128, 96)
    assert (row.base, row.tile, row.step) == pytest.approx((base, tile, step))


def test_rates_are_those_of_the_quickest_kernels() -> None:
    slow, quick = (KernelCost("int8x3", 128, 64, 0.0, 0.0, step) for step in (3e-6, 1e-6))
    half = KernelCost("fp16", 64, 64, 0.0, 0.0, 1e-6)
    assert rates([slow, quick, half], 10) == pytest.approx(
        {"int8": 10 * 3 * 2 * 128 * 64 * 64 / 1e-6, "float16": 10 * 2 * 64 * 64 * 32 / 1e-6}
    )


@pytest.mark.gpu
def test_measuring_one_scheme() -> None:
    tables = products(Gpu.current(), ["int8x6"])
    assert tables["rates"].keys() == {"int8", "float32", "float64"}
    assert {(k["scheme"], k["m"]) for k in tables["kernel"]} == {("int8x6", 128)}
    assert all(1e-8 < k["step"] < 1e-5 for k in tables["kernel"])
    assert 1e11 < tables["packing"][0]["rate"] < 2e13
    assert tables["vendor"]["float32"] > 1e12


@pytest.mark.gpu
def test_figures_of_a_device() -> None:
    """Facts that hold of any."""
    gpu = Gpu.current()
    found = {**resources(gpu), **memory(gpu), **probe.transfer(gpu)}
    assert found["device"] == gpu.device.name
    assert found["chip"]["multiprocessors"] > 1
    assert 5e8 < found["chip"]["clock"] < 4e9
    assert 48 * 1024 < found["shared"]["per_block"] < 1 << 18
    assert found["cuda"].count(".") == 1
    assert 1e9 < found["dram"]["bandwidth"] < 1e14
    assert 1e9 < found["dram"]["copy"] < 1e14
    assert 1e8 < found["transfer"]["staged"] < 1e12
    assert found["host"]["float32"] > 1e9


@pytest.fixture
def gpu(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    monkeypatch.setattr(probe, "MOVED", 32)
    return gpu


def test_products_are_made(gpu: FakeGpu) -> None:
    assert probe.staged() > 0
    assert gpu.launches == [(1, 32, 32)] * 6


def test_no_product_is_no_speed(gpu: FakeGpu) -> None:
    gpu.memory = 0
    with pytest.raises(DeviceError, match="NumPy arrays: out of memory"):
        probe.staged()
