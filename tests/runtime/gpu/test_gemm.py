"""Packing and the GEMM kernels on a GPU, both families, against the reference engine."""

from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.model.kernel_times import HOPPER, PORTABLE, Family
from mixpert_py.runtime.packing import by_columns, by_rows, pack
from mixpert_py.runtime.reference import reference
from mixpert_py.runtime.reference.engine import execute
from mixpert_py.runtime.scheme import Scheme
from tests.runtime.emulations import EMULATIONS, kept, with_block

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy", reason="CuPy is not installed")

SHAPES = [(1, 1, 1), (130, 70, 66), (257, 300, 129)]
FAMILIES = [HOPPER, PORTABLE]


def product(a: Any, b: Any, scheme: Scheme, family: Family) -> Any:
    """By slices that no row leaves."""
    from mixpert_py.runtime.gpu.gemm import KernelChoice, chip, gemm

    if family is HOPPER and chip(0).family is not HOPPER:
        pytest.skip("kernels for compute capability 9.0")
    whole = kept(scheme)
    left, right = pack(by_rows(cupy.asarray(a)), by_columns(cupy.asarray(b)), whole)
    out = cupy.full((1, a.shape[0], b.shape[1]), np.nan, a.dtype)
    gemm(left, right, whole, out, choice=KernelChoice(family))
    return out.get()[0]


def expected(a: Any, b: Any, scheme: Scheme) -> Any:
    left, right = reference.pack(a, b, kept(scheme))
    return execute(scheme, a.shape[1], left, right, a.dtype)


def normal(m: int, k: int, n: int, dtype: type = np.float32) -> tuple[Any, Any]:
    rng = np.random.default_rng(m + k + n)
    return rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.file)
@pytest.mark.parametrize("name", EMULATIONS)
def test_integer_terms_have_the_same_bits_and_others_their_bound(name: str, family: Family) -> None:
    scheme = EMULATIONS[name]
    for shape in SHAPES:
        a, b = normal(*shape)
        value, wanted = product(a, b, scheme, family), expected(a, b, scheme)
        if scheme.exact:
            np.testing.assert_array_equal(value, wanted)
        else:
            size = abs(a) @ abs(b)
            assert (abs(value - a.astype(np.float64) @ b) <= 8 * scheme.error * size).all()


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.file)
@pytest.mark.parametrize("block", [8, 20, 32, 64, 128, 200, 300, 512, 900, 1000, 2048])
def test_blocks_of_any_length(block: int, family: Family) -> None:
    scheme = with_block(EMULATIONS["int8x6"], block)
    a, b = normal(100, 5000 if block > 64 else 500, 70)
    np.testing.assert_array_equal(product(a, b, scheme, family), expected(a, b, scheme))


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.file)
def test_k_beyond_what_int32_holds(family: Family) -> None:
    scheme = with_block(EMULATIONS["int8x10"], 40000)
    a, b = (np.full(shape, -128.0, np.float32) for shape in ((65, 33000), (33000, 40)))
    np.testing.assert_array_equal(product(a, b, scheme, family), expected(a, b, scheme))


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.file)
@pytest.mark.parametrize("name", ["int8x6", "int8x10", "mixpert-II", "mixpert-IV"])
@pytest.mark.parametrize("power", [66, 69, 70, 71, 72, 75, 78])
def test_units_whose_product_overflows(power: int, name: str, family: Family) -> None:
    """The largest entries of a block, or of a tile, meet none of each other's."""
    entry = EMULATIONS[name]
    scheme = entry if "mixpert" in name else with_block(entry, 64)
    a, b = normal(70, 200, 40)
    a[::3, 5], b[9, ::3] = 2.0**power, -(2.0**power)
    value, wanted = product(a, b, scheme, family), expected(a, b, scheme)
    assert np.isfinite(wanted).all()
    np.testing.assert_array_equal(value, wanted)


@pytest.mark.parametrize("shape", [(130, 9000, 70), (1540, 2000, 1450)])
@pytest.mark.parametrize("name", ["int8x3", "int8x6"])
def test_tiles_that_do_not_fill_the_chip_are_cut_along_k(
    name: str, shape: tuple[int, int, int]
) -> None:
    a, b = normal(*shape)
    scheme = EMULATIONS[name]
    np.testing.assert_array_equal(product(a, b, scheme, HOPPER), expected(a, b, scheme))
