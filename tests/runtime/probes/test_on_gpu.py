"""The probes on a real GPU: facts that hold of any, and some of Hopper."""

from itertools import chain
from typing import Any

import pytest

from mixpert_py.runtime.probes.gpu import Gpu
from mixpert_py.runtime.probes.instructions import specs, timed
from mixpert_py.runtime.probes.products import transfer
from mixpert_py.runtime.probes.resources import memory, resources

pytestmark = pytest.mark.gpu

MORE_TRIES = 5


@pytest.fixture(scope="module")
def gpu() -> Gpu:
    return Gpu.current()


@pytest.fixture(scope="module")
def rows(gpu: Gpu) -> dict[str, Any]:
    """The largest instruction of each kind, not all widths of wgmma."""
    found = {}
    for spec in specs(gpu.device.capability):
        if "wgmma" not in spec.name or "n256" in spec.name:
            found[spec.name] = timed(gpu, spec)
    return found


def test_resources(gpu: Gpu) -> None:
    tables = resources(gpu).tables
    assert tables["device"] == gpu.device.name
    assert tables["chip"]["multiprocessors"] > 1
    assert 5e8 < tables["chip"]["clock"] < 4e9
    assert 48 * 1024 < tables["shared"]["per_block"] < 1 << 18
    assert tables["cuda"].count(".") == 1


def test_memory(gpu: Gpu) -> None:
    tables = memory(gpu).tables
    # Others may use the device meanwhile, which makes it slower, and never quicker than it is.
    assert 0 < tables["shared"]["bandwidth"] < 130
    assert 1e9 < tables["dram"]["bandwidth"] < tables["l2"]["bandwidth"]
    assert 1e9 < tables["dram"]["copy"] < 1e14


def test_transfer(gpu: Gpu) -> None:
    tables = transfer(gpu).tables
    assert 1e8 < tables["transfer"]["staged"] < 1e12
    assert tables["host"]["float32"] > 1e9


def test_latencies_of_matrix_instructions(rows: dict[str, Any], gpu: Gpu) -> None:
    for spec in specs(gpu.device.capability):
        if row := rows.get(spec.name):
            # What another process computes on the GPU makes the chains of this one take longer.
            tries = chain([row], (timed(gpu, spec) for _ in range(MORE_TRIES)))
            assert any(map(is_plausible, tries)), row


def is_plausible(row: Any) -> bool:
    """Whether a row's cycles can be those of such an instruction: many of them that do not wait for
    one another take no longer than a chain in which they do.
    """
    if row.name.startswith("mma.sync"):
        return 10 < row.latency < 200 and row.interval < row.chain
    if row.name.startswith("wgmma"):
        return 30 < row.latency < 500 and row.interval < 1.1 * row.chain
    if row.name == "fma float32":
        return 3 <= row.chain < 10 and row.latency > 0
    return True


def test_rates_and_intervals_agree(rows: dict[str, Any], gpu: Gpu) -> None:
    """Both are of the same launches: the clock that they amount to is one of a GPU."""
    for spec in specs(gpu.device.capability):
        if row := rows.get(spec.name):
            a_cycle = gpu.multiprocessors * spec.operations / row.interval
            assert 5e8 < row.rate / a_cycle < 4e9, row


def test_rates_of_elements(rows: dict[str, Any]) -> None:
    best: dict[str, float] = {}
    for row in rows.values():
        element = row.name.removesuffix(" registers").rpartition(" ")[2]
        best[element] = max(best.get(element, 0.0), row.rate)
    assert best["int8"] > 1.9 * best["float16"]
    assert best["float16"] == pytest.approx(best["bfloat16"], rel=0.15)
    assert best["float16"] > 1.5 * best["tf32"] > 1.5 * best["float32"]


def test_hopper(rows: dict[str, Any], gpu: Gpu) -> None:
    if gpu.device.capability != 90:
        pytest.skip("wgmma is of compute capability 9.0")
    name = "wgmma m64n256k32 int8"
    # 4,096 multiply-adds a cycle and multiprocessor; fewer where others use the device meanwhile.
    for row in (rows[name], rows[f"{name} registers"]):
        assert row.interval > 128 * 0.95
