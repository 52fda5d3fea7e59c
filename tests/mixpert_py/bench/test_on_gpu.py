"""The benchmarks' own parts on a GPU: clock, casts, random numbers, cuBLAS, packed slices."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mixpert_py.bench.arrays import Numbers, narrow, wide
from mixpert_py.bench.contract import Sums, errors
from mixpert_py.bench.families import EVERYDAY
from mixpert_py.bench.gemm import run as gemm_run
from mixpert_py.bench.gemm import vendor
from mixpert_py.bench.gemm.result import read
from mixpert_py.bench.judgement import Exact
from mixpert_py.runtime.gpu.event_clock import EventClock
from tests.soak.random_products import examine as product_examine
from tests.soak.random_products import examine_pair, pair
from tests.soak.random_products.case import NAMES, draw

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy", reason="CuPy is not installed")


def test_casts_keep_subnormals() -> None:
    x = np.array([2.0**-149, -(2.0**-130), 2.0**-126, 1.5, np.inf, np.nan])
    narrowed = narrow(cupy.asarray(x), np.dtype(np.float32))
    assert narrowed.dtype == np.float32
    np.testing.assert_array_equal(narrowed.get(), x.astype(np.float32))
    np.testing.assert_array_equal(wide(narrowed).get(), x)


def test_random_numbers_are_numpys() -> None:
    one, other = (Numbers(xp, 7) for xp in (np, cupy))
    np.testing.assert_array_equal(one.random((50, 40)), other.random((50, 40)).get())
    normal = one.standard_normal(100), other.standard_normal(100).get()
    np.testing.assert_allclose(*normal, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(one.integers(-3, 9, 100), other.integers(-3, 9, 100).get())


@pytest.mark.parametrize("family", EVERYDAY)
def test_families_and_their_contract_are_numpys(family: str) -> None:
    one, other = (
        [narrow(x, np.float32) for x in EVERYDAY[family](Numbers(xp, 7), 30, 50, 40)]
        for xp in (np, cupy)
    )
    exacts = Exact.of(*one), Exact.of(*other)
    for x, y in zip(one, other, strict=True):
        assert y.dtype == np.float32
        np.testing.assert_allclose(y.get(), x, rtol=1e-6, atol=2.0**-148)
    found = [Sums.of(exact) for exact in exacts]
    assert found[1].terms == pytest.approx(found[0].terms, rel=1e-4)
    assert found[1].floor == pytest.approx(found[0].floor, rel=1e-4)
    worse = errors(exacts[1], exacts[1].product * (1 + 1e-5))
    assert worse.frobenius == pytest.approx(1e-5)


def test_the_clock() -> None:
    clock = EventClock(cupy)

    def wait() -> None:
        clock._spin((1,), (1,), (cupy.uint64(1_000_000),))

    clock.sample(wait, 1, 1e-3)
    sample = clock.sample(wait, 5, 1e-3)
    assert sample.device == pytest.approx(1e-3, rel=0.05)
    assert sample.ahead
    assert sample.host < 1e-3


@pytest.mark.parametrize("mode", vendor.MODES.values(), ids=vendor.MODES)
def test_modes_of_cublas(mode: vendor.Mode) -> None:
    why = vendor.offered(mode)
    if why is not None:
        assert why.startswith("not offered: ")
        return
    a, b = (np.random.default_rng(i).standard_normal((3, 130, 130)) for i in (1, 2))
    a, b = a.astype(np.float32), np.asfortranarray(b.astype(np.float32))
    exact = a.astype(np.float64) @ b.astype(np.float64)
    most = {"float64": 1e-15, "float16": 1e-3}.get(mode.element, 1e-6)
    most = 1e-3 if mode.name == "cuBLAS TF32" else most
    for x, y, expected in ((a, b.copy(), exact), (a[0], b[0], exact[0])):
        value = vendor.contender(mode).prepare(cupy.asarray(x), cupy.asarray(y)).whole().get()
        assert np.linalg.norm(value - expected) <= most * np.linalg.norm(expected)


@pytest.mark.parametrize("scheme", NAMES)
def test_random_products(scheme: str) -> None:
    drawn = [one for one in (draw(seed, 600) for seed in range(400)) if one.scheme == scheme]
    with_complex = [one for one in drawn if 2 in (one.left.parts, one.right.parts)]
    for one in (*drawn[:6], *with_complex[:2]):
        assert product_examine.examine_seed("cuda", one.seed, 600).failures == [], one


def test_random_pairs_of_families() -> None:
    ran = set()
    for seed in range(150):
        outcome = examine_pair.examine_seed("cuda", seed, pair.LARGEST)
        assert outcome.failures == [], pair.draw(seed)
        ran.add(outcome.ran)
    assert {"faithful", "faithful, guarded"} < ran


@pytest.mark.parametrize(
    ("suite", "only"),
    [("sizes", ("speed", "accuracy normal", "families")), ("targets", ("batched",))],
)
def test_a_run(tmp_path: Path, suite: Any, only: tuple[str, ...]) -> None:
    path = tmp_path / "r.json"
    options = gemm_run.Options(suite, ((512, 512, 512),), ("int8x6",), (), ("normal",), 256, 3)
    assert gemm_run.run(options, path, only, resume=False) == 0
    rows = [row for found in read(path)["sections"].values() for row in found]
    assert rows
    assert not [row for row in rows if "failed" in row or row.get("measured", 1) is None]
