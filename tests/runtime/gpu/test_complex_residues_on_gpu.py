"""Complex products by residues on a GPU: the bits of the reference, by the path of users."""

from functools import partial
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.api import matmul
from mixpert_py.runtime.gpu.device import Device, find, state_of
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.reference.emulation import emulate
from tests.every_check import some, sweep
from tests.runtime.families import EVERYDAY, FAMILIES
from tests.runtime.gpu.test_residues_on_gpu import LAYOUTS, both_hold_integers
from tests.runtime.gpu.test_residues_on_gpu import gemm_kernel as gemm_kernel
from tests.runtime.operands import ran

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy", reason="CuPy is not installed")

ALL = {**FAMILIES, **EVERYDAY}
# What the imaginary parts of A, and of B, are multiplied by.
PARTS = {
    "alike": (1.0, 1.0),
    "small in A": (1e-5, 1.0),
    "small in both": (1e-5, 1e-5),
    "large in B": (1.0, 1e10),
    "real": (0.0, 0.0),
    "large in both": (1e10, 1e10),
}
SHAPES = [(1, 1, 1), (130, 70, 66), (257, 300, 200), (64, 1000, 390), (300, 8, 5)]
SCHEMES = ["crt14", "crt", "crt9", "crt16", "crt7", "crt12"]


@pytest.fixture(autouse=True)
def nothing_known() -> None:
    here = find()
    assert isinstance(here, Device)
    state_of(here.id).outlooks.clear()


def drawn(family: str, shape: Any, parts: str, dtype: str, seed: int = 0) -> tuple[Any, Any]:
    rng, found = np.random.default_rng(seed), []
    with np.errstate(all="ignore"):
        pairs = zip(ALL[family](rng, *shape), ALL[family](rng, *shape), PARTS[parts], strict=True)
        for re, im, factor in pairs:
            found.append(np.empty(re.shape, dtype))
            found[-1].real, found[-1].imag = re, im * factor
    return found[0], found[1]


def check(a: Any, b: Any, scheme: str, x: Any, y: Any) -> None:
    """x, y: the operands on the device. Where the reference makes no product, it is native."""
    value, *how = ran(partial(matmul, scheme=scheme, backend="cuda"), x, y)
    with np.errstate(all="ignore"):
        wanted = emulate(a, b, scheme)
    assert how == (["native", Reason.SPREAD] if wanted is None else [scheme, None])
    if wanted is None:
        np.testing.assert_array_equal(value.get(), cupy.matmul(x, y).get())
        return
    value = value.get()
    finite = np.isfinite(a).all(axis=-1)[..., None] & np.isfinite(b).all(axis=-2)[..., None, :]
    for part, other in ((value.real, wanted.real), (value.imag, wanted.imag)):
        plain = finite & np.isfinite(other)
        np.testing.assert_array_equal(part[plain], other[plain])
        np.testing.assert_array_equal(np.isnan(part[~finite]), np.isnan(other[~finite]))


@pytest.mark.usefixtures("gemm_kernel")
@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("family", ALL)
def test_bits_are_those_of_the_reference(family: str, parts: str) -> None:
    cases = sweep(SHAPES, SCHEMES, LAYOUTS, LAYOUTS, ["complex128", "complex64"], together=1)
    for shape, scheme, left, right, dtype in cases:
        a, b = drawn(family, shape, parts, dtype)
        if not both_hold_integers(a.view(a.real.dtype), b.view(b.real.dtype)):
            check(a, b, scheme, left(a), right(b))


@pytest.mark.usefixtures("gemm_kernel")
def test_a_long_k_stacks_and_two_types() -> None:
    a, b = drawn("normal", (3, 70_000, 5), "alike", "complex128")
    for scheme in ("crt14", "crt7", "crt"):
        check(a, b, scheme, cupy.asarray(a), cupy.asarray(b))
    a, b = drawn("uniform" if "uniform" in ALL else "normal", (300, 20_000, 200), "alike", "D")
    check(a, b, "crt14", cupy.asarray(a), cupy.asarray(b))
    a, b = drawn("normal", (60, 90, 40), "alike", "complex128")
    check(a, b.astype("F"), "crt14", cupy.asarray(a), cupy.asarray(b.astype("F")))
    stack = a.reshape(3, 20, 90)
    for scheme in ("crt14", "crt"):
        check(stack, b, scheme, cupy.asarray(stack), cupy.asarray(b))
        turned = cupy.asarray(stack).conj().transpose(0, 2, 1)
        check(stack, stack.conj().transpose(0, 2, 1), scheme, cupy.asarray(stack), turned)


@pytest.mark.usefixtures("gemm_kernel")
@pytest.mark.parametrize("dtype", ["complex128", "complex64"])
@pytest.mark.parametrize("shape", [(2100, 130), (130, 2100), (2, 2050, 60)], ids=str)
def test_products_with_ones_own_transpose_and_conjugate(shape: Any, dtype: str) -> None:
    """To the bit what is made of two arrays in other layouts, and of one that differs in a bit."""
    x = cupy.asarray(drawn("normal", (*shape[-2:], 1), "alike", dtype)[0])
    x = cupy.stack([x, x[::-1]]) if len(shape) == 3 else x
    product = partial(matmul, scheme="crt14", backend="cuda")
    for one in (x, cupy.asfortranarray(x)):
        for conjugated in (False, True):
            other = one.conj() if conjugated else one
            other = other.swapaxes(-1, -2)
            for a, b in ((one, other), (other, one)):
                value = product(a, b)
                apart = cupy.zeros((*b.shape[:-1], b.shape[-1] + 1), dtype)[..., :-1]
                apart[...] = b
                cupy.testing.assert_array_equal(value, product(a, apart))
                image = value.swapaxes(-1, -2)
                cupy.testing.assert_array_equal(value, image.conj() if conjugated else image)
                nearly = b.copy("K")
                nearly.imag[..., 5, 7] = cupy.nextafter(nearly.imag[..., 5, 7], 9)
                apart[...] = nearly
                cupy.testing.assert_array_equal(product(a, nearly), product(a, apart))


@pytest.mark.parametrize("scheme", some(["crt14", "crt"], 2))
def test_results_go_where_they_are_wanted(scheme: str) -> None:
    a, b = drawn("normal", (90, 90, 90), "alike", "complex128")
    x, y = cupy.asarray(a), cupy.asarray(b)
    wanted = emulate(a, b, scheme)
    wide = cupy.zeros((100, 200), "D")
    for out in (wide[3:93, 5:95], wide[:90, ::2][:, :90], cupy.asfortranarray(x * 0), x, y):
        product = partial(matmul, scheme=scheme, backend="cuda", native=np.matmul)
        given = cupy.asarray(a) if out is not x else x, cupy.asarray(b) if out is not y else y
        assert product(*given, out=out) is out
        np.testing.assert_array_equal(out.get(), wanted)
        x[...], y[...] = cupy.asarray(a), cupy.asarray(b)
    a[3, 4] = complex(np.nan, 1)
    x[...] = cupy.asarray(a)
    matmul(x, y, scheme=scheme, backend="cuda", native=np.matmul, out=x)
    assert np.isnan(x.get()[3]).all()
    assert np.isfinite(np.delete(x.get(), 3, axis=0)).all()


def test_parts_of_different_size_are_as_accurate_as_natively() -> None:
    for parts in PARTS:
        for scheme in ("crt", "crt14"):
            a, b = drawn("normal", (200, 500, 150), parts, "complex128")
            value = matmul(cupy.asarray(a), cupy.asarray(b), scheme=scheme, backend="cuda").get()
            exact = a.astype(np.clongdouble) @ b.astype(np.clongdouble)
            ar, ai, br, bi = map(abs, (a.real, a.imag, b.real, b.imag))
            unit = (1 + 5 * np.sqrt(1000)) * 2.0**-53
            assert (abs(value.real - exact.real) <= unit * (ar @ br + ai @ bi)).all()
            assert (abs(value.imag - exact.imag) <= unit * (ar @ bi + ai @ br)).all()


def test_in_a_graph_parts_are_multiplied_each_by_itself() -> None:
    a, b = drawn("normal", (130, 200, 70), "alike", "complex128")
    x, y = cupy.asarray(a), cupy.asarray(b)
    matmul(x, y, scheme="crt14", backend="cuda")
    matmul(x.real.copy(), y.real.copy(), scheme="crt14", backend="cuda")
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        value = matmul(x, y, scheme="crt14", backend="cuda")
        graph = stream.end_capture()
        graph.launch()
    stream.synchronize()
    np.testing.assert_allclose(value.get(), a @ b, atol=1e-12)
