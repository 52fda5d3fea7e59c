"""Times of kernels: waves of tiles, by measured figures or by a chip's rates."""

import msgspec
import pytest

from mixpert_py.errors import DeviceError
from mixpert_py.runtime.model.device_model import Kernel
from mixpert_py.runtime.model.kernel_times import (
    Chip,
    Depth,
    KernelTimes,
    Tile,
    candidates,
    chip_of,
)
from mixpert_py.runtime.model.known_devices import find, names
from mixpert_py.runtime.model.prediction import depth_of
from mixpert_py.runtime.scheme import Scheme, triangle
from mixpert_py.runtime.schemes import get
from mixpert_py.runtime.splitter import INT8, Digits

H200 = KernelTimes(find("NVIDIA H200"))
ROW = Kernel("int8x6", 128, 128, base=2e-6, tile=3e-6, step=1e-6)


def scheme(name: str) -> Scheme:
    entry = get(name)
    assert isinstance(entry, Scheme)
    return entry


def of_row(row: Kernel = ROW, **chip: int) -> tuple[KernelTimes, Tile]:
    """Times by one row, and its tile; on a device of 100 multiprocessors."""
    model = msgspec.structs.replace(H200.model, kernel=[row])
    times = KernelTimes(model, Chip(H200.chip.family, 100, H200.chip.shared))
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


def test_tiles_that_are_cut_along_k_take_less_than_a_wave() -> None:
    times, tile = of_row()
    deep = Depth(256, 1, 256)
    one = times.seconds(scheme("int8x6"), tile, 128, 128, 1, deep)
    assert 2e-6 + 3e-6 + 256e-6 / 32 < one < 2e-6 + 3e-6 + 256e-6 / 8
    many = times.seconds(scheme("int8x6"), tile, 128 * 101, 128, 1, deep)
    assert 259e-6 < many < 259e-6 + one + 20e-6


def test_every_segment_of_k_is_added_in_memory() -> None:
    times, tile = of_row()
    whole = times.seconds(scheme("int8x6"), tile, 12800, 128, 1, Depth(64, 1, 64))
    parts = times.seconds(scheme("int8x6"), tile, 12800, 128, 1, Depth(64, 4, 16))
    assert parts == pytest.approx(whole + 3 * 3e-6)


def test_a_product_that_does_not_fill_the_chip_takes_narrower_tiles() -> None:
    depth = depth_of(scheme("int8x6"), 1024)
    assert H200.best(scheme("int8x6"), 1024, 1024, 1, depth, False).n == 64
    assert H200.best(scheme("int8x6"), 1024, 1024, 100, depth, False).n == 128


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("emulated", ["int8x6", "fp16x3", "mixpert-IV"])
def test_every_known_device_has_times(name: str, emulated: str) -> None:
    times = KernelTimes(find(name))
    depth = depth_of(scheme(emulated), 1024)
    tiles = candidates(scheme(emulated), depth, wide=False, chip=chip_of(times.model))
    small, large = (times.seconds(scheme(emulated), tiles[0], n, n, 1, depth) for n in (1024, 8192))
    assert 1e-6 < small < large < 1


def test_a_scheme_that_no_tile_holds_is_an_error_that_says_so() -> None:
    """13 INT8 products: five accumulators, and float64 totals beside them."""
    digits = Digits(4, block=128)
    wide = Scheme("int8x13", INT8, digits, digits, triangle(4, 4, 4, 8), error=1e-7)
    assert wide.products == 13
    depth = depth_of(wide, 4096)
    assert H200.best(wide, 4096, 4096, 1, depth, False)
    with pytest.raises(DeviceError, match=r"'int8x13': no tile holds 5 accumulators of a float64"):
        H200.best(wide, 4096, 4096, 1, depth, True)
