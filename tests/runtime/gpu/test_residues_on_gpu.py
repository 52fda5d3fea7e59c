"""Residue schemes on a GPU: the bits of the reference backend, by the path that users take."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.api import matmul
from mixpert_py.runtime.gpu import residues as products
from mixpert_py.runtime.gpu.device import Device, find
from mixpert_py.runtime.kernels import HOPPER, compile
from mixpert_py.runtime.reference import residues
from mixpert_py.runtime.schemes import emulation_of
from tests.every_check import some, sweep
from tests.runtime.families import EVERYDAY, FAMILIES
from tests.runtime.operands import ran

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy", reason="CuPy is not installed")

SCHEMES = ["crt14", "crt9", "crt16", "crt7", "crt12"]
ALL = {**FAMILIES, **EVERYDAY}


@pytest.fixture(params=["its own", "portable"])
def gemm_kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Both kernels on Hopper, which is asked for nothing else while the test runs."""
    here, files = find(), []
    assert isinstance(here, Device)
    if request.param == "portable":
        if here.capability != HOPPER:
            pytest.skip("its own kernel is the portable one")
        monkeypatch.setattr(products, "WGMMA", products.MMA)

    def cuda_kernel(file: str, *given: Any) -> Any:
        files.append(file)
        return compile.cuda_kernel(file, *given)

    monkeypatch.setattr(products, "cuda_kernel", cuda_kernel)
    products.prepare.cache_clear()
    yield
    products.prepare.cache_clear()
    hopper = here.capability == HOPPER and request.param != "portable"
    wanted = "residue_gemm.cu" if hopper else "residue_gemm_sm80.cu"
    assert set(files) <= {wanted, products.RESULT}  # none, of families of integers


def turned(x: Any) -> Any:
    return cupy.asfortranarray(cupy.asarray(x))


def apart(x: Any) -> Any:
    wide = cupy.full((2 * x.shape[0], 3 * x.shape[1]), np.nan, x.dtype)
    wide[::2, 1::3] = cupy.asarray(x)
    return wide[::2, 1::3]


LAYOUTS: list[Callable[[Any], Any]] = [
    cupy.asarray,
    turned,
    apart,
    lambda x: cupy.asarray(np.ascontiguousarray(x[::-1, ::-1]))[::-1, ::-1],
]
SHAPES = [(1, 1, 1), (130, 70, 66), (257, 300, 200), (64, 1000, 390), (300, 8, 5)]


def made(a: Any, b: Any, scheme: str, **given: Any) -> Any:
    """The product by the scheme, and no other."""
    value, *how = ran(partial(matmul, scheme=scheme, backend="cuda"), a, b, **given)
    assert how == [scheme, None]
    return value


def meant(a: Any, b: Any, scheme: str) -> Any:
    """The scheme's own product: zeros where an entry of the row or column is not finite."""
    with np.errstate(all="ignore"):
        pair = residues.pack(a, b, emulation_of(scheme))
        return residues.execute(pair, np.result_type(a, b))


def assert_same_bits(a: Any, b: Any, scheme: str, value: Any) -> None:
    """But where native products are made instead: of what is not finite, or overflows."""
    value, wanted = value.get(), meant(a, b, scheme)
    finite = np.isfinite(a).all(axis=1)[:, None] & np.isfinite(b).all(axis=0)
    plain = finite & np.isfinite(wanted)
    np.testing.assert_array_equal(value[plain], wanted[plain])
    with np.errstate(all="ignore"):
        native = a @ b
    np.testing.assert_array_equal(np.isnan(value[~finite]), np.isnan(native[~finite]))


@pytest.mark.usefixtures("gemm_kernel")
@pytest.mark.parametrize("family", ALL)
def test_bits_are_those_of_the_reference(family: str) -> None:
    rng = np.random.default_rng(1)
    cases = sweep(SHAPES, SCHEMES, LAYOUTS, LAYOUTS, ["float64", "float32"], together=1)
    for shape, scheme, left, right, dtype in cases:
        with np.errstate(all="ignore"):
            a, b = (x.astype(dtype) for x in ALL[family](rng, *shape))
        if both_hold_integers(a, b) and not fits_one(a, b):
            continue
        assert_same_bits(a, b, scheme, made(left(a), right(b), scheme))


def both_hold_integers(a: Any, b: Any) -> bool:
    return all(bool((x == np.rint(x)).all()) for x in (a, b) if np.isfinite(x).all())


def fits_one(a: Any, b: Any) -> bool:
    """Whether kernels, which scale integers too, lose nothing of these."""
    return max(abs(a).max(initial=0), abs(b).max(initial=0)) < 2**15


@pytest.mark.usefixtures("gemm_kernel")
@pytest.mark.parametrize("scheme", [f"crt{count}" for count in some(range(7, 17), 2)])
def test_every_number_of_moduli(scheme: str) -> None:
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((300, 500)), rng.standard_normal((500, 250))
    assert_same_bits(a, b, scheme, made(cupy.asarray(a), cupy.asarray(b), scheme))


@pytest.mark.usefixtures("gemm_kernel")
def test_mixed_types_and_a_long_k() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((70, 26000)), rng.standard_normal((26000, 40)).astype(np.float32)
    assert_same_bits(a, b, "crt14", made(cupy.asarray(a), cupy.asarray(b), "crt14"))
    # Sums of more than 2^16 are reduced more than once; those of one sign are largest.
    for draw in (rng.standard_normal, rng.random):
        a, b = draw((3, 150_000)), draw((150_000, 2))
        for scheme in ("crt14", "crt7"):
            assert_same_bits(a, b, scheme, made(cupy.asarray(a), turned(b), scheme))
