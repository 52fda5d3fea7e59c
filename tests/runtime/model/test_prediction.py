"""Predicted times of kernels and of products."""

import json
import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path

import msgspec
import numpy as np
import pytest

from mixpert_py.errors import DeviceError
from mixpert_py.runtime.kernels.compile import source_text
from mixpert_py.runtime.model import prediction
from mixpert_py.runtime.model.device_model import KernelCost, find
from mixpert_py.runtime.model.kernel_times import (
    HOPPER,
    PORTABLE,
    Depth,
    KernelTimes,
    TargetChip,
    Tile,
    candidates,
    is_grouped,
    tiles_to_diagonal,
)
from mixpert_py.runtime.model.prediction import depth_of
from mixpert_py.runtime.scheme import Scheme, triangle
from mixpert_py.runtime.schemes import get
from mixpert_py.runtime.splitter import INT8, Digits
from tests.mixpert_py.command import ROOT
from tests.runtime.emulations import EMULATIONS
from tests.runtime.kernels_on_host.host import library

TIMES = KernelTimes(find("NVIDIA H200"))
ROW = KernelCost("int8x6", 128, 128, base=2e-6, tile=3e-6, step=1e-6)


def scheme(name: str) -> Scheme:
    entry = get(name)
    assert isinstance(entry, Scheme)
    return entry


def of_row(row: KernelCost = ROW, **chip: int) -> tuple[KernelTimes, Tile]:
    """Times by one row, and its tile; on a device of 100 multiprocessors."""
    model = msgspec.structs.replace(TIMES.model, kernel=[row])
    times = KernelTimes(model, TargetChip(TIMES.chip.family, 100, TIMES.chip.shared))
    tiles = candidates(scheme(row.scheme), Depth(16, 1, 16), wide=False, chip=times.chip)
    return times, next(tile for tile in tiles if (tile.m, tile.n) == (row.m, row.n))


@pytest.mark.parametrize(
    ("m", "batch", "waves"),
    [(128 * 100, 1, 1), (128 * 99, 1, 1), (128 * 151, 1, 2), (128 * 50, 4, 2)],
)
def test_a_product_takes_whole_waves(m: int, batch: int, waves: int) -> None:
    times, tile = of_row()
    found = times.seconds(scheme("int8x6"), tile, m, 128, batch, Depth(16, 1, 16))
    assert found == pytest.approx(2e-6 + waves * (3e-6 + 16e-6))


def test_every_segment_of_k_is_added_in_memory() -> None:
    times, tile = of_row()
    whole = times.seconds(scheme("int8x6"), tile, 12800, 128, 1, Depth(64, 1, 64))
    parts = times.seconds(scheme("int8x6"), tile, 12800, 128, 1, Depth(64, 4, 16))
    assert parts == pytest.approx(whole + 3 * 3e-6)


def test_a_scheme_that_no_tile_holds_is_an_error_that_says_so() -> None:
    """13 INT8 products: five accumulators, and float64 totals beside them."""
    digits = Digits(4, block=128)
    wide = Scheme("int8x13", INT8, digits, digits, triangle(4, 4, 4, 8), error=1e-7)
    assert wide.products == 13
    depth = depth_of(wide, 4096)
    assert TIMES.best(wide, 4096, 4096, 1, depth, False)
    with pytest.raises(DeviceError, match=r"'int8x13': no tile holds 5 accumulators of a float64"):
        TIMES.best(wide, 4096, 4096, 1, depth, True)


H200 = TargetChip(HOPPER, 132, 232448)
A100 = TargetChip(PORTABLE, 108, 163 * 1024)
RTX = TargetChip(PORTABLE, 128, 99 * 1024)


def tiles(
    name: str,
    chip: TargetChip = H200,
    wide: bool = False,
    blocks: int = 1,
    steps_per_block: int = 8,
) -> tuple[Tile, ...]:
    depth = Depth(blocks * max(1, steps_per_block), blocks, steps_per_block)
    return candidates(scheme(name), depth, wide=wide, chip=chip)


@pytest.mark.parametrize("name", EMULATIONS)
def test_every_scheme_has_tiles_that_fit(name: str) -> None:
    scheme = EMULATIONS[name]
    depths = ((256, 0),) if name.startswith("mixpert") else ((1, 128), (64, 2))
    for chip, wide, (blocks, steps) in product((H200, A100, RTX), (False, True), depths):
        found = tiles(name, chip, wide, blocks, steps)
        assert found
        assert found == tuple(sorted(found, key=lambda it: (-it.m, -it.n))), "the largest first"
        for it in found:
            stage = 64 * (scheme.left.count * it.m + scheme.right.count * it.n)
            assert it.shared == it.stages * stage
            assert it.stages >= 2
            # What gemm_sm90.cu has beside its ring, which begins at a multiple of 1024 bytes.
            beside = 2 * 8 * it.stages + 4
            if not (it.promote and scheme.exact):
                beside += it.m // 64 * (64 + it.n) * (16 if wide else 8)
            ours = chip.family is HOPPER
            assert it.shared + (-(-beside // 1024) * 1024 if ours else 0) <= chip.shared


def test_only_tiles_of_16_by_8_share_powers_of_two() -> None:
    assert is_grouped(scheme("mixpert-IV"))
    assert not is_grouped(scheme("int8x6"))
    grouped = scheme("mixpert-IV")
    assert not is_grouped(replace(grouped, left=replace(grouped.left, group=8)))  # type: ignore[arg-type]


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
def test_a_symmetric_product_is_made_of_the_tiles_up_to_its_diagonal(tmp_path: Path) -> None:
    """Each once, in the order in which kernels take them."""
    shapes = [*product(HOPPER.heights, HOPPER.widths), (256, 192), (64, 96)]
    places = "".join(
        f'extern "C" int at_{m}_{n}(int index, int rows) '
        f"{{ int2 tile = Triangle<{m}, {n}>::at(index, rows); return tile.x << 16 | tile.y; }}\n"
        for m, n in shapes
    )
    loaded = library(source_text("triangle.cuh", ()) + places, tmp_path / "triangle.so")
    for (m, n), length in product(shapes, (1, 64, 129, 1000, 1153, 2305, 9000)):
        rows, columns = -(-length // m), -(-length // n)
        wanted = {(r, c) for r in range(rows) for c in range(columns) if c * n < r * m + m}
        at = getattr(loaded, f"at_{m}_{n}")
        found = [divmod(at(i, rows), 1 << 16) for i in range(tiles_to_diagonal(m, n, length))]
        assert len(found) == len(wanted)
        assert set(found) == wanted


CHIP = KernelTimes(find("NVIDIA H200"))
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


def seconds(name: str, m: int, k: int, n: int, batch: int = 1, **more: bool | int) -> float:
    return prediction.product(CHIP, scheme(name), (m, k, n), batch, **more).seconds  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", CUBLAS, ids=str)
def test_the_vendors_product(shape: tuple[int, int, int]) -> None:
    assert prediction.native(CHIP, *shape) * 1e3 == pytest.approx(CUBLAS[shape], rel=0.25)


def test_the_vendors_product_of_a_float64_vector() -> None:
    found = prediction.native(CHIP, 32768, 32768, 1, wide=True)
    assert found == pytest.approx(1.93e-3, rel=0.25)


@pytest.mark.parametrize("n", [2048, 8192])
def test_complex_products_by_residues_take_little_more_than_two_products(n: int) -> None:
    real = [seconds("crt14", n, n, n, batch, wide=True) for batch in (2, 3)]
    joined = prediction.joined(CHIP, scheme("crt14"), (n, n, n)).seconds
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
    moved = size * (m * k + k * n + m * n) / CHIP.model.dram.copy
    native = prediction.native(CHIP, m, k, n, wide=wide)
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
    assert found[7] < prediction.native(CHIP, 8192, 8192, 8192, wide=True)
    assert seconds("crt14", 64, 64, 64, 3, wide=True) > seconds("crt14", 64, 64, 64, wide=True)
