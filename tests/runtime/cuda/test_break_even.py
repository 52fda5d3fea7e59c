"""Break-even sizes: what pays, and where the figures are kept."""

from pathlib import Path

import numpy as np
import pytest

from mixpert_py.runtime.cuda import break_even
from mixpert_py.runtime.cuda.break_even import (
    SHIPPED,
    BreakEven,
    Figures,
    figures,
    keep,
    moving_pays,
    small_pays,
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(break_even, "_user_folder", lambda: tmp_path / "cache")
    figures.cache_clear()
    yield tmp_path
    figures.cache_clear()


MEASURED = Figures(
    "Some GPU (80 GB)",
    9e9,
    2e12,
    {"faithful": BreakEven(1e8, 70.5), "int8x3": BreakEven(float("inf"), 12.0)},
)


def test_what_was_measured_is_found_again() -> None:
    assert figures(MEASURED.device) == figures(SHIPPED)
    path = keep(MEASURED)
    assert path.name == "some-gpu-80-gb.toml"
    assert figures(MEASURED.device) == MEASURED
    assert figures("Another GPU") == figures(SHIPPED)


@pytest.mark.parametrize(
    "text", ["", "not toml [", "device = 'x'", "[scheme.faithful]\nvolume = 'x'"]
)
def test_a_file_that_is_none_of_ours_is_as_none(text: str) -> None:
    keep(MEASURED).write_text(text)
    figures.cache_clear()
    assert figures(MEASURED.device) == figures(SHIPPED)


def test_the_shipped_figures_are_of_an_h200() -> None:
    assert figures("NVIDIA H200").device == "NVIDIA H200"


def test_schemes_that_were_not_measured_are_as_faithful() -> None:
    assert MEASURED.of("mixpert-IV") == MEASURED.of("faithful")
    assert not MEASURED.of("int8x3").pays((10**5, 10**5, 10**5))


@pytest.mark.parametrize(
    ("shape", "packed", "pays"),
    [
        ((100, 100, 100), 0, True),
        ((99, 100, 100), 0, False),
        ((10_000, 10_000, 30), 0, False),
        ((10_000, 10_000, 31), 0, True),
        ((1, 10_000, 10_000), 0, False),
        ((40, 10_000, 1000), 0, True),
        ((31, 10_000, 1000), 0, False),
        ((31, 10_000, 1000), 10_000 * 1000, True),
    ],
)
def test_what_pays_is_large_and_not_thin(
    shape: tuple[int, int, int], packed: int, pays: bool
) -> None:
    assert BreakEven(100**3, 30.5).pays(shape, packed) is pays


@pytest.mark.parametrize(
    ("size", "starting", "dtype", "pays"),
    [
        (8192, 0.0, np.float32, True),
        (8192, 3.0, np.float32, False),
        (16384, 3.0, np.float32, True),
        (1024, 0.0, np.float32, False),
        (16384, 3.0, np.float64, True),
    ],
)
def test_what_is_worth_moving(size: int, starting: float, dtype: type, pays: bool) -> None:
    a = np.broadcast_to(dtype(0), (size, size))
    known = Figures("x", 8e9, 1.2e12, {"faithful": BreakEven(1e6, 30)})
    assert moving_pays(a, a, (size,) * 3, "int8x6", known, starting) is pays


def test_what_does_not_pay_on_the_device_is_not_moved() -> None:
    a = np.broadcast_to(np.float32(0), (16384, 16384))
    known = Figures("x", 8e9, 1.2e12, {"faithful": BreakEven(1e15, 30)})
    assert not moving_pays(a, a, (16384,) * 3, "int8x6", known, 0.0)


@pytest.mark.parametrize(
    ("scheme", "a", "b", "pays"),
    [
        ("int8x6", (1000, 128, 128), (1000, 128, 128), True),
        ("int8x6", (128, 128), (4, 10, 128, 128), True),
        ("int8x6", (1000, 64, 64), (1000, 64, 64), False),
        ("int8x6", (31, 128, 128), (31, 128, 128), False),
        ("int8x6", (1000, 128, 128), (1000, 128, 300), False),
        ("int8x6", (128, 128), (128, 128), False),
        ("int8x10", (1000, 128, 128), (1000, 128, 128), False),
    ],
)
def test_stacks_of_small_products_have_a_kernel(
    scheme: str, a: tuple[int, ...], b: tuple[int, ...], pays: bool
) -> None:
    assert small_pays(scheme, a, b) is pays
