"""Sums of a product with another array in one pass, on a GPU, against the operators' steps."""

from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.api import matmul
from mixpert_py.runtime.products.fused import fused
from tests.runtime.gpu.test_addend import ONE_PASS, by_steps
from tests.runtime.gpu.test_addend import signs as signs
from tests.runtime.products.test_fused import FORMS, arguments

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy", reason="CuPy is not installed")

KINDS = [("int8x6", "f"), ("fp16x3", "f"), ("mixpert-IV", "f"), ("int8x10", "d")]
ALPHA, BETA = -1.5, 0.5  # beta · c is exact: one pass has the bits of the operators


def host(*shape: int, dtype: str = "f", seed: int = 0) -> Any:
    return np.random.default_rng((*shape, seed)).standard_normal(shape).astype(dtype)


def normal(*shape: int, dtype: str = "f", seed: int = 0) -> Any:
    return cupy.asarray(host(*shape, dtype=dtype, seed=seed))


@pytest.fixture(autouse=True)
def kernels_have_run() -> None:
    """A sum in place waits until they have."""
    for dtype in "fd":
        matmul(normal(8, 8, dtype=dtype), normal(8, 8, dtype=dtype), **given())


def given(scheme: str = "int8x6", **more: Any) -> dict[str, Any]:
    return {"scheme": scheme, "backend": "cuda", **more}


@pytest.mark.parametrize(("scheme", "dtype"), KINDS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", [(300, 1000, 200), (257, 300, 129)], ids=str)
def test_every_form(
    form: str, scheme: str, dtype: str, shape: tuple[int, int, int], signs: list[str]
) -> None:
    m, k, n = shape
    a, b, c = (normal(*s, dtype=dtype) for s in ((m, k), (k, n), (m, n)))
    wanted = by_steps(form, a, b, c.copy(), ALPHA, BETA, **given(scheme))
    value = fused(*arguments(form, a, b, c, ALPHA, BETA), form=form, **given(scheme))
    assert not signs
    assert (type(value), value.shape, value.dtype) == (cupy.ndarray, (m, n), dtype)
    assert (value is c) == ("=" in form)
    cupy.testing.assert_array_equal(value, wanted)


@pytest.mark.parametrize("scheme", ["int8x6", "fp16x3"])
def test_beta_times_c_is_not_rounded_by_itself(scheme: str, signs: list[str]) -> None:
    a, b, c = normal(300, 400), normal(400, 200), normal(300, 200)
    x = np.float32(1.3) * matmul(a, b, **given(scheme)).get()
    value = fused(1.3, (a, b), 0.3, c, form="alpha*ab+beta*c", **given(scheme)).get()
    exact = np.float64(np.float32(0.3)) * c.get().astype("d") + x
    assert not signs
    assert np.mean(value != exact.astype("f")) < 1e-5  # rounded twice here, very seldom otherwise
    np.testing.assert_array_max_ulp(value, exact.astype("f"), 1)


@pytest.mark.parametrize("case", ONE_PASS)
@pytest.mark.parametrize("scheme", ["int8x6", "fp16x3"])
def test_what_c_may_be_broadcast_from(case: str, scheme: str, signs: list[str]) -> None:
    shapes, _ = ONE_PASS[case]
    a, b, c = (normal(*shape, seed=i) for i, shape in enumerate(shapes))
    wanted = by_steps("alpha*ab-beta*c", a, b, c, ALPHA, BETA, **given(scheme))
    value = fused(ALPHA, (a, b), BETA, c, form="alpha*ab-beta*c", **given(scheme))
    assert not signs
    cupy.testing.assert_array_equal(value, wanted)


def test_small_products_keep_their_kernel(signs: list[str]) -> None:
    a, b, c = normal(64, 100, 90), normal(64, 90, 110), normal(64, 100, 110)
    wanted = by_steps("ab-beta*c", a, b, c, 1, 0.3, **given())
    cupy.testing.assert_array_equal(fused(a, b, 0.3, c, form="ab-beta*c", **given()), wanted)
    assert signs == ["-"]


@pytest.mark.parametrize("place", ["wide rows", "odd rows", "a", "a transposed"])
@pytest.mark.parametrize("special", [False, True])
def test_sums_in_place(place: str, special: bool, signs: list[str]) -> None:
    a, b = normal(300, 300), normal(300, 300, seed=1)
    if special:
        a[2, 3], a[5, 1], b[4, 6] = np.nan, np.inf, -np.inf
    c = {
        "wide rows": normal(300, 320)[:, 8:308],
        "odd rows": normal(300, 303)[:, 1:301],
        "a": a,
        "a transposed": a.T,
    }[place]
    wanted = by_steps("c-=ab", a, b, c.copy(), 1, 1, **given())
    assert fused(c, a, b, form="c-=ab", **given()) is c
    assert bool(signs) == place.startswith("a")
    cupy.testing.assert_array_equal(c, wanted)


@pytest.mark.parametrize("shape", [(130, 9000, 70), (1540, 2000, 1450)], ids=str)
def test_tiles_that_are_cut_along_k(shape: tuple[int, int, int], signs: list[str]) -> None:
    m, k, n = shape
    a, b, c = normal(m, k), normal(k, n), normal(m, n)
    wanted = by_steps("c+=ab", a, b, c.copy(), 1, 1, **given())
    fused(c, a, b, form="c+=ab", **given())
    assert not signs
    cupy.testing.assert_array_equal(c, wanted)


def test_segments_of_k_meet_in_c(signs: list[str]) -> None:
    a, b, c = normal(100, 5000), normal(5000, 70), normal(100, 70)
    blocks = given(block=2048)
    wanted = by_steps("c+=ab", a, b, c.copy(), 1, 1, **blocks)
    cupy.testing.assert_array_equal(fused(c, a, b, form="c+ab", **blocks), wanted)
    assert not signs
    cupy.testing.assert_array_equal(fused(c, a, b, form="c+=ab", **blocks), wanted)
    assert signs == ["+="]


@pytest.mark.parametrize(("scheme", "dtype"), KINDS)
@pytest.mark.parametrize("form", ["alpha*ab+beta*c", "c-alpha*ab", "c+=alpha*ab"])
def test_outliers_and_special_values_are_scaled_too(form: str, scheme: str, dtype: str) -> None:
    a, b, c = (normal(*s, dtype=dtype) for s in ((300, 900), (900, 200), (300, 200)))
    a[2, 3], a[5, 1], b[4, 6] = np.nan, np.inf, -np.inf
    a[3] = b[:, 2] = 110 / 256 / 127  # second digits are large, one entry most of the norm
    a[3, 0] = b[0, 2] = 1
    c[0, 0], c[5, 3] = np.nan, -np.inf
    wanted = by_steps(form, a, b, c.copy(), -1.5, 0.3, **given(scheme)).get()
    value = fused(*arguments(form, a, b, c, -1.5, 0.3), form=form, **given(scheme)).get()
    np.testing.assert_array_equal(np.isnan(value), np.isnan(wanted))
    infinite = np.isinf(wanted)
    np.testing.assert_array_equal(value[infinite], wanted[infinite])
    rounding = 1e-5 if dtype == "f" else 1e-13
    np.testing.assert_allclose(value, wanted, rtol=rounding, atol=10 * rounding)


@pytest.mark.parametrize("form", ["alpha*ab+beta*c", "c+=ab"])
@pytest.mark.parametrize("k", [700, 4096], ids=["tiles", "parts of tiles"])
def test_a_sum_is_captured_in_a_graph(form: str, k: int, signs: list[str]) -> None:
    a, b, before = normal(512, k), normal(k, 300), normal(512, 300)
    c = before.copy()
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        # The first, on something else, compiles.
        fused(*arguments(form, a, b, c.copy(), ALPHA, BETA), form=form, **given())
        stream.begin_capture()
        value = fused(*arguments(form, a, b, c, ALPHA, BETA), form=form, **given())
        graph = stream.end_capture()
        assert not signs
        garbage = [cupy.full((1 << 18,), 7.0) for _ in range(20)]  # takes memory that is free
        for seed in range(3):
            a[...] = normal(512, k, seed=10 + seed)
            c[...] = before
            graph.launch(stream)
            stream.synchronize()
            wanted = by_steps(form, a, b, before.copy(), ALPHA, BETA, **given())
            cupy.testing.assert_array_equal(value, wanted)
    assert len(garbage) == 20
