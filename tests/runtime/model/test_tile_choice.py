"""Which tile of our kernels each model takes."""

from typing import get_args

import pytest

from mixpert_py.runtime.model.kernel_times import KernelTimes
from mixpert_py.runtime.model.known_devices import find
from mixpert_py.runtime.model.prediction import depth_of
from mixpert_py.runtime.model.tile import candidates
from mixpert_py.runtime.model.tile_choice import ModelName, Wanted, choose, figures
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes import get
from tests.runtime.emulations import EMULATIONS

H200 = KernelTimes(find("NVIDIA H200"))
A100 = KernelTimes(find("NVIDIA A100-SXM4-80GB"))


def wanted(name: str, n: int, batch: int = 1) -> Wanted:
    scheme = get(name)
    assert isinstance(scheme, Scheme)
    return Wanted(scheme, n, n, batch, depth_of(scheme, n))


@pytest.mark.parametrize("name", EMULATIONS)
@pytest.mark.parametrize("times", [H200, A100], ids=["h200", "a100"])
@pytest.mark.parametrize("model", get_args(ModelName))
def test_every_model_takes_a_tile_that_fits(
    name: str, times: KernelTimes, model: ModelName
) -> None:
    for_all = wanted(name, 1000)
    tiles = candidates(for_all.scheme, for_all.depth, wide=False, chip=times.chip)
    assert choose(model, times, for_all) in tiles


def test_ours_is_the_quickest() -> None:
    for_all = wanted("int8x3", 2048)
    assert choose("ours", H200, for_all) == H200.best(*for_all)


@pytest.mark.parametrize(
    ("n", "batch", "width"), [(512, 1, 64), (1024, 2, 96), (1152, 2, 128), (1024, 4, 192)]
)
def test_threads_decide_for_legemm(n: int, batch: int, width: int) -> None:
    """`int8x3` has tiles 192, 128, 96 and 64 wide: the widest that fill 132 multiprocessors."""
    for_all = wanted("int8x3", n, batch)
    tile = choose("legemm", H200, for_all)
    assert tile.n == width
    assert (figures("legemm", H200, for_all, tile)["threads / needed"] >= 1) == (n != 512)


@pytest.mark.parametrize("n", [256, 8192])
def test_operations_a_byte_decide_for_egemm(n: int) -> None:
    for_all = wanted("int8x3", n)
    tile = choose("egemm", H200, for_all)
    assert tile.n == 192
    # Three products of two slices of each operand, of 128 rows and 192 columns.
    assert figures("egemm", H200, for_all, tile)["op/byte"] == pytest.approx(
        3 * 2 * 128 * 192 / (2 * (128 + 192))
    )


def test_what_breaks_a_constraint_has_more_memory_time_than_compute_time() -> None:
    for_all = wanted("int8x6", 4096)
    shares = {
        tile.n: figures("egemm", H200, for_all, tile)["memory / compute"]
        for tile in candidates(for_all.scheme, for_all.depth, wide=False, chip=H200.chip)
    }
    assert shares[128] < shares[96] < 1 < shares[64]
    assert figures("ours", H200, for_all, choose("ours", H200, for_all)) == {}
