"""What beats the vendor's products, by the device's model."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

from mixpert_py.runtime import own_files, processor, worth
from mixpert_py.runtime.model.device_model import Host
from mixpert_py.runtime.model.known_devices import find, keep, model_of
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.request import Array, Call, matmul_shape
from mixpert_py.runtime.worth import (
    SHIPPED,
    STARTING,
    Figures,
    Start,
    figures,
    moving_saves,
    native_pays,
    native_rows,
    tiny_pays,
)
from tests.runtime.emulations import EMULATIONS
from tests.runtime.gpu.fake import pays_from

H200 = "NVIDIA H200"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(own_files, "folder", lambda name: tmp_path / "cache")
    monkeypatch.setattr(processor, "cores", lambda: 16)  # of the shipped H200's host
    forget()
    yield tmp_path
    forget()


def forget() -> None:
    for cached in (model_of, figures, worth._times, worth._kernel_times):
        cached.cache_clear()


def is_faster(
    scheme: str, m: int, k: int, n: int, *, wide: bool = False, packed: int = 0, device: str = H200
) -> bool:
    return figures(device).faster(scheme, (m, k), (k, n), wide, packed)


@pytest.mark.parametrize("scheme", ["faithful", "int8x6", "int8x3", "fp16x3", "int8x10"])
def test_large_products_are_faster_and_small_ones_are_not(scheme: str) -> None:
    assert is_faster(scheme, 4096, 4096, 4096)
    assert not is_faster(scheme, 256, 256, 256)
    edges = [is_faster(scheme, n, n, n) for n in range(128, 4096, 128)]
    assert edges == sorted(edges), "once faster, always faster"


@pytest.mark.parametrize(
    ("k", "n"), [(384, 1536), (1024, 1024), (64, 4096), (8192, 16), (1024, 192)]
)
def test_rows_that_grow_are_judged_a_few_times(k: int, n: int) -> None:
    judged = up_to = gaining = 0
    for m in range(1, 4000):
        faster = figures(H200).faster("faithful", (m, k), (k, n), False, 0, by_default=True)
        gaining = gaining or m * faster
        if m <= up_to:
            assert not faster
        elif not faster:
            judged += not gaining
            up_to = native_rows(H200, m, k, n)
            assert up_to >= m if not gaining else up_to < gaining  # others may be so by chance
    assert judged <= 13


def test_thin_products_are_not_faster_unless_the_other_operand_is_packed() -> None:
    assert not is_faster("int8x6", 8, 8192, 8192)
    assert not is_faster("int8x6", 8192, 16, 8192)
    kept = 8192 * 8192
    edge = next(m for m in range(1, 999) if is_faster("int8x6", m, 8192, 8192))
    edge_kept = next(m for m in range(1, 999) if is_faster("int8x6", m, 8192, 8192, packed=kept))
    assert edge_kept < edge


@pytest.mark.parametrize(
    ("m", "k", "n"),
    [
        *((16384, 16384, 1), (32768, 16384, 1), (17024, 16384, 1), (8500, 16384, 1)),
        *((1024, k, 1) for k in (1024, 8192, 31744)),
        *((16, 4096, 4096), (8192, 8192, 8), (16384, 1, 16384), (16384, 3, 65536)),
    ],
)
@pytest.mark.parametrize("wide", [False, True], ids=["float32", "float64"])
def test_what_is_bound_by_memory_is_not_faster(m: int, k: int, n: int, wide: bool) -> None:
    """Or is short: emulation reads the same operands, and writes slices."""
    found = {
        scheme
        for scheme in [*EMULATIONS, "faithful"]
        if is_faster(scheme, m, k, n, wide=wide) or is_faster(scheme, n, k, m, wide=wide)
    }
    assert not found


@pytest.mark.parametrize(
    ("m", "k", "n"), [(16384, 512, 16384), (131072, 4096, 512), (4096, 131072, 512)]
)
@pytest.mark.parametrize("scheme", ["faithful", "int8x6", "int8x1"])
def test_what_is_bound_by_computing_is_faster(scheme: str, m: int, k: int, n: int) -> None:
    assert is_faster(scheme, m, k, n)
    assert is_faster(scheme, n, k, m)


def test_vectors_and_empty_operands_are_never_faster() -> None:
    faster = figures(H200).faster
    assert not faster("faithful", (16384, 16384), (16384,), False, 0)
    assert not faster("faithful", (16384,), (16384, 16384), False, 0)
    assert not faster("faithful", (4096,), (4096, 4096), False, 0)
    assert not faster("faithful", (4096, 4096), (4096,), False, 0)
    assert not faster("faithful", (4096, 0), (0, 4096), False, 0)
    assert not faster("faithful", (0, 512, 512), (0, 512, 512), False, 0)
    assert not faster("faithful", (0, 512, 512), (512, 512), False, 0)


def test_stacks_count_all_their_products() -> None:
    faster = figures(H200).faster
    assert not faster("int8x6", (512, 512), (512, 512), False, 0)
    assert faster("int8x6", (64, 512, 512), (64, 512, 512), False, 0)
    assert faster("int8x6", (64, 512, 512), (512, 512), False, 0)
    assert faster("int8x6", (8, 1, 512, 512), (8, 512, 512), False, 0)
    assert not faster("int8x6", (2, 512, 512), (2, 512, 512), False, 0)


def test_complex_products_take_four_real_ones() -> None:
    """And what takes operands apart, and puts the result together."""
    edge = (8192, 8192)
    for one, four in zip(
        figures(H200).times("int8x6", edge, edge, False, 0),
        figures(H200).times("int8x6", edge, edge, False, 0, 4),
        strict=True,
    ):
        assert 3 * one < four < 6 * one


def test_what_keeps_the_host_is_as_slow_as_the_host() -> None:
    model = find(H200)
    assert is_faster("int8x6", 2048, 2048, 2048)
    slow = msgspec.structs.replace(model.vendor, host=1e-5, product=1.0)
    keep(msgspec.structs.replace(model, vendor=slow))
    forget()
    assert not is_faster("int8x6", 2048, 2048, 2048)


@pytest.mark.parametrize("device", ["NVIDIA GeForce RTX 4080", "NVIDIA L4", "NVIDIA RTX A6000"])
def test_where_fp16_is_hardly_faster_only_float64_gains(device: str) -> None:
    assert not is_faster("faithful", 4096, 4096, 4096, device=device)
    assert is_faster("crt", 4096, 4096, 4096, wide=True, device=device)


def test_a_device_that_nobody_modelled_goes_by_another() -> None:
    assert figures("Some GPU").staging == figures(SHIPPED).staging
    assert is_faster("int8x6", 8192, 8192, 8192, device="Some GPU")


@pytest.mark.parametrize("text", ["", "not toml [", "device = 'x'", "\xff"])
def test_a_file_that_is_none_of_ours_is_as_none(text: str) -> None:
    path = keep(find(H200))
    path.write_text(text, "latin-1")
    forget()
    assert is_faster("int8x6", 8192, 8192, 8192)


@pytest.mark.parametrize(
    ("size", "dtype", "seconds"),
    [(8192, np.float32, 0.79), (1024, np.float32, 0.0), (16384, np.float64, 13.69)],
)
def test_what_is_worth_moving(size: int, dtype: type, seconds: float) -> None:
    a = np.broadcast_to(dtype(0), (size, size))
    known = pays_from(1e6, 30, staging=8e9, host=1.2e12)
    saved = moving_saves(a, a, (size,) * 3, "int8x6", known)
    assert saved == pytest.approx(seconds, abs=0.01)


def test_of_a_product_with_its_transpose_the_host_makes_half() -> None:
    def saved(a: Array, b: Array) -> float:
        shape = (len(a), a.shape[1], b.shape[1])
        return moving_saves(a, b, shape, "crt", pays_from(1, staging=1e10, host=1e12))

    x, y = np.empty((2, 4096, 2048))
    # 8 · 4096 · 2048 bytes of an operand, 8 · 2048² of the result, 4 · 4096 · 2048² operations.
    operand, result, here = 6.71e-3, 3.36e-3, 68.7e-3
    assert saved(x.T, y) == pytest.approx(here - 1.2 * (2 * operand + result), rel=0.01)
    alike = here / 2 - 1.2 * (operand + result)
    assert saved(x.T, x) == pytest.approx(alike, rel=0.01)
    assert saved(x[:, :1024].T, x[:, :1024]) < saved(x[:, :1024].T, x[:, 1024:])
    z = x[:2048]  # square, but not turned
    assert saved(z, z) == saved(z, y[:2048])


@pytest.mark.parametrize("device", [H200, "Tesla T4"])
def test_the_host_is_as_fast_as_its_cores(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sixteen = figures(device)
    assert sixteen.host == pytest.approx(1e12, rel=0.05)
    for cores, copying in ((64, 1.0), (3, 0.5)):  # six copiers are the most
        monkeypatch.setattr(processor, "cores", lambda cores=cores: cores)
        figures.cache_clear()
        assert figures(device).host == pytest.approx(cores / 16 * sixteen.host)
        staging = sixteen.staging * (copying if device == H200 else 1.0)
        assert figures(device).staging == pytest.approx(staging)


def test_what_was_measured_on_any_number_of_cores_is_believed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keep(msgspec.structs.replace(find(H200), host=Host(2e11)))
    monkeypatch.setattr(processor, "cores", lambda: 2)
    assert (figures(H200).host, figures(H200).staging) == (2e11, 1.8e10)


def test_the_device_itself_is_asked_less_for_a_product_with_its_transpose() -> None:
    def pays(a: Array, b: Array, back: float) -> bool:
        staging = 2048**2 * 8 / back
        return native_pays(a, b, Figures(staging, 0.0, 1e12, lambda *_: (0.0, 0.0)))

    x, y = np.empty((2, 4096, 2048))
    # The host takes 68.7 ms, or half of it.
    assert [pays(x.T, y, back) for back in (0.030, 0.060, 0.070)] == [True, True, False]
    assert [pays(x.T, x, back) for back in (0.030, 0.060, 0.070)] == [True, False, False]


def test_a_gpu_begins_once_it_would_have_saved_as_much() -> None:
    start = Start()
    assert [start.pays(0.4 * STARTING) for _ in range(4)] == [False, False, True, True]
    assert not start.pays(0.0)
    assert Start().pays(1.1 * STARTING)


def test_a_product_that_is_quicker_than_any_way_there_stays() -> None:
    a = np.broadcast_to(np.float32(0), (512, 512))
    pays = [
        moving_saves(a, a, (512,) * 3, "int8x6", pays_from(1, staging=5e10, latency=latency)) > 0
        for latency in (0.0, figures(H200).latency)
    ]
    assert pays == [True, False]


@pytest.mark.parametrize("order", [1, -1])
def test_operands_are_moved_as_the_results_type(order: int) -> None:
    a, b = (np.broadcast_to(dtype(0), (2048, 2048)) for dtype in (np.float32, np.float64)[::order])
    # 3 · 2048² elements of 8 bytes, 2 · 2048³ operations at half the rate.
    edge = 1.2 * 3 * 2048**2 * 8 / (4 * 2048**3 / 1e12)
    for staging, pays in ((0.99 * edge, False), (1.01 * edge, True)):
        known = pays_from(1, staging=staging)
        assert (moving_saves(a, b, (2048,) * 3, "int8x6", known) > 0) is pays


def test_what_takes_the_device_as_long_is_not_moved() -> None:
    a = np.broadcast_to(np.float32(0), (16384, 16384))
    assert moving_saves(a, a, (16384,) * 3, "int8x6", pays_from(1e15)) == 0.0


def test_what_the_vendor_multiplies_faster_may_be_worth_moving() -> None:
    """The way there is what it takes longest for."""
    m, k = 44800, 512
    a, b = (np.broadcast_to(np.float64(0), shape) for shape in ((m, k), (k, k)))
    assert not is_faster("int8x10", m, k, k, wide=True)
    assert moving_saves(a, b, (m, k, k), "int8x10", figures(H200)) > 10e-3


@pytest.mark.parametrize("shape", [(40000, 0, 4096), (0, 4096, 4096), (40000, 4096, 0)])
def test_nothing_is_not_moved(shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    a, b = np.empty((m, k)), np.empty((k, n))
    assert moving_saves(a, b, shape, "int8x6", figures(H200)) == 0.0


@pytest.mark.parametrize(
    ("shapes", "small"),
    [
        (((1023, 1024), (1024, 9)), True),
        (((1024, 1024), (1024, 9)), False),
        (((9, 1024), (1024, 1024)), True),  # the left operand decides
    ],
)
def test_small_numpy_operands(shapes: tuple[tuple[int, int], ...], small: bool) -> None:
    a, b = (np.broadcast_to(np.float32(0), shape) for shape in shapes)
    assert worth.is_small(a, b) is small
    assert not worth.is_small(a, b.tolist())
    assert worth.are_small(["ij,jk", a, [0, 1]]) is small


def test_a_float64_product_needs_some_thickness_for_float32() -> None:
    thick, thin = np.zeros((144, 144)), np.zeros((144, 40))
    assert worth.why_not_cast(thick, thick, (144, 144, 144)) is None
    assert worth.why_not_cast(thin.T, thick, (40, 144, 144)) is Reason.TOO_SMALL
    single = thin.astype(np.float32)
    assert worth.why_not_cast(single.T, single, (40, 144, 40)) is None
    assert [worth.is_small_cube(n**3) for n in (143, 144)] == [True, False]


def test_why_arrays_on_a_gpu_stay_native() -> None:
    def why(m: int, k: int, n: int, scheme: str = "faithful", **given: bool) -> Reason | None:
        a, b = (np.broadcast_to(np.float32(0), shape) for shape in ((m, k), (k, n)))
        call = Call(np.matmul, a, b, (), None, matmul_shape)
        return worth.why_not_on_device(call, scheme, H200, by_default=given.get("unasked", False))

    assert why(4096, 4096, 4096, unasked=True) is None
    assert why(256, 256, 256) is Reason.TOO_SMALL
    assert why(65536, 47, 65536, unasked=True) is Reason.TOO_SMALL


MANY = 1 << 20


@pytest.mark.parametrize(
    ("a", "b", "pays"),
    [
        ((MANY, 16, 16), (MANY, 16, 16), True),
        ((MANY, 4, 4), (MANY, 4, 4), True),
        ((MANY, 32, 5), (MANY, 5, 7), True),
        ((1024, 1024, 16, 16), (1024, 1024, 16, 1), True),
        ((MANY, 33, 16), (MANY, 16, 16), False),
        ((MANY, 16, 33), (MANY, 33, 16), False),
        ((MANY, 16, 16), (MANY, 16, 33), False),
        ((MANY, 16, 16), (16, 16), True),
        ((1, 16, 16), (MANY, 16, 16), True),
        ((1000, 16, 16), (1000, 16, 16), True),
        ((1024, 1, 16, 16), (1, 1024, 16, 16), False),
        ((MANY, 16, 16), (16,), False),
        ((999, 16, 16), (999, 16, 16), False),
        ((16, 16), (16, 16), False),
        ((0, 16, 16), (0, 16, 16), False),
        ((MANY, 16, 0), (MANY, 0, 16), False),
    ],
)
def test_stacks_of_tiny_products(a: tuple[int, ...], b: tuple[int, ...], pays: bool) -> None:
    assert tiny_pays("faithful", a, b) is pays
    assert not tiny_pays("int8x6", a, b)
