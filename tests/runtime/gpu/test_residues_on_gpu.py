"""Residue schemes, `crt`, and complex products by them on a GPU: the bits of the reference."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.api import matmul
from mixpert_py.runtime.gpu import residues as products
from mixpert_py.runtime.gpu.device import Device, find, state_of
from mixpert_py.runtime.kernels import HOPPER, compile
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.reference import residues
from mixpert_py.runtime.reference.emulation import emulate
from mixpert_py.runtime.schemes import emulation_of
from mixpert_py.runtime.schemes.crt import moduli_for
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


M, K, N = 130, 1000, 70


@pytest.fixture(autouse=True)
def nothing_known() -> None:
    here = find()
    assert isinstance(here, Device)
    state_of(here.id).outlooks.clear()


def made_by_crt(a: Any, b: Any, **given: Any) -> tuple[Any, bool]:
    """The product, and whether `crt` made it; else it was native, for the operands' spread."""
    value, *how = ran(partial(matmul, scheme="crt", backend="cuda"), a, b, **given)
    assert how in (["crt", None], ["native", Reason.SPREAD])
    return value, how[0] == "crt"


def check_crt(a: Any, b: Any, order: str = "C") -> int | None:
    """The number of moduli that the reference takes, and the GPU with the same bits."""
    x, y = cupy.asarray(a, order=order), cupy.asarray(b, order=order)
    state_of(0).outlooks.clear()
    needed = moduli_for(residues.rows_of(a), residues.rows_of(b.T))
    value, by_residues = made_by_crt(x, y)
    assert by_residues == (needed is not None)
    if needed is None:
        np.testing.assert_array_equal(value.get(), cupy.matmul(x, y).get())
    elif not both_hold_integers(a, b):
        np.testing.assert_array_equal(value.get(), meant(a, b, f"crt{needed}"))
    return needed


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("family", ALL)
def test_every_family(family: str, order: str) -> None:
    with np.errstate(all="ignore"):
        check_crt(*ALL[family](np.random.default_rng(0), M, K, N), order)


@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_the_same_operands_have_the_same_bits_whatever_ran_before(library: str) -> None:
    rng = np.random.default_rng(3)
    put = cupy.asarray
    if library == "torch":
        put = partial(pytest.importorskip("torch").tensor, device="cuda")
    pairs, wanted = [], []
    for family in ("normal", "log-normal 1", "spread 4", "huge entry", "integers", "low-rank"):
        a, b = ALL[family](rng, 4 * M, K, N)
        pairs.append((put(a), put(b)))
        count = moduli_for(residues.rows_of(a), residues.rows_of(b.T))
        exact = 14 if both_hold_integers(a, b) else count
        wanted.append(None if exact is None else meant(a, b, f"crt{exact}"))
    are_native = [each is None for each in wanted]
    for which in rng.integers(0, len(pairs), 40):
        for _ in range(1 + which):
            value, by_residues = made_by_crt(*pairs[which])
            assert by_residues != are_native[which]
            bits = cupy.asarray(value).get()
            if wanted[which] is None:
                wanted[which] = bits
            np.testing.assert_array_equal(bits, wanted[which])


def test_products_are_native_in_a_graph() -> None:
    torch = pytest.importorskip("torch")
    a, b = (torch.randn(600, 600, dtype=torch.float64, device="cuda") for _ in "ab")
    for _ in range(5):
        assert made_by_crt(a, b)[1]
        matmul(a, b, scheme="crt", backend="cuda")  # whose launches are kept
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value, native = made_by_crt(a, b), a @ b
        other = matmul(a, b, scheme="crt", backend="cuda")
    assert not value[1]
    graph.replay()
    assert torch.equal(value[0], native)
    assert torch.equal(other, native)


INTEGERS = {
    "0/1": ((0, 1), "crt of integers 1s1s"),
    "[0, 255]": ((0, 255), "crt of integers 1u1u"),
    "signed bytes": ((-128, 127), "crt of integers 1s1s"),
    "±30,000": ((-30_000, 30_000), "crt of integers 2s2s"),
    "16 bits": ((0, 65_535), "crt of integers 2u2u"),
    "±2^21": ((1 - 2**21, 2**21 - 1), "crt of integers 7"),
}


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("kind", INTEGERS)
def test_integers_are_exact(kind: str, order: str) -> None:
    bounds, name = INTEGERS[kind]
    rng = np.random.default_rng(5)
    for m, k, n in ((M, K, N), (513, 700, 390), (5, 20_000, 3)):
        state_of(0).outlooks.clear()
        wide = [rng.integers(*bounds, shape, endpoint=True) for shape in ((m, k), (k, n))]
        x, y = (cupy.asarray(v.astype(float), order=order) for v in wide)
        exact = (wide[0].astype(object) @ wide[1].astype(object)).astype(float)
        for _ in range(3):
            value, by_residues = made_by_crt(x, y)
            assert by_residues
            np.testing.assert_array_equal(value.get(), exact)
        (outlook,) = state_of(0).outlooks.values()
        if (m, k, n) == (M, K, N):
            assert outlook.scheme.name == name
        x[m // 2, k - 1] = 0.5  # no integer any more
        value, _ = made_by_crt(x, y)
        np.testing.assert_allclose(value.get(), x.get() @ y.get(), rtol=1e-13)
        assert not outlook.scheme or outlook.scheme.name.startswith("crt1")


# What the imaginary parts of A, and of B, are multiplied by.
PARTS = {
    "alike": (1.0, 1.0),
    "small in A": (1e-5, 1.0),
    "small in both": (1e-5, 1e-5),
    "large in B": (1.0, 1e10),
    "real": (0.0, 0.0),
    "large in both": (1e10, 1e10),
}
OF_COMPLEX = ["crt14", "crt", "crt9", "crt16", "crt7", "crt12"]


def drawn(family: str, shape: Any, parts: str, dtype: str, seed: int = 0) -> tuple[Any, Any]:
    rng, found = np.random.default_rng(seed), []
    with np.errstate(all="ignore"):
        pairs = zip(ALL[family](rng, *shape), ALL[family](rng, *shape), PARTS[parts], strict=True)
        for re, im, factor in pairs:
            found.append(np.empty(re.shape, dtype))
            found[-1].real, found[-1].imag = re, im * factor
    return found[0], found[1]


def check_complex(a: Any, b: Any, scheme: str, x: Any, y: Any) -> None:
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
def test_bits_of_complex_products_are_those_of_the_reference(family: str, parts: str) -> None:
    cases = sweep(SHAPES, OF_COMPLEX, LAYOUTS, LAYOUTS, ["complex128", "complex64"], together=1)
    for shape, scheme, left, right, dtype in cases:
        a, b = drawn(family, shape, parts, dtype)
        if not both_hold_integers(a.view(a.real.dtype), b.view(b.real.dtype)):
            check_complex(a, b, scheme, left(a), right(b))


@pytest.mark.usefixtures("gemm_kernel")
def test_a_long_k_stacks_and_two_types() -> None:
    a, b = drawn("normal", (3, 70_000, 5), "alike", "complex128")
    for scheme in ("crt14", "crt7", "crt"):
        check_complex(a, b, scheme, cupy.asarray(a), cupy.asarray(b))
    a, b = drawn("uniform" if "uniform" in ALL else "normal", (300, 20_000, 200), "alike", "D")
    check_complex(a, b, "crt14", cupy.asarray(a), cupy.asarray(b))
    a, b = drawn("normal", (60, 90, 40), "alike", "complex128")
    check_complex(a, b.astype("F"), "crt14", cupy.asarray(a), cupy.asarray(b.astype("F")))
    stack = a.reshape(3, 20, 90)
    for scheme in ("crt14", "crt"):
        check_complex(stack, b, scheme, cupy.asarray(stack), cupy.asarray(b))
        turned = cupy.asarray(stack).conj().transpose(0, 2, 1)
        check_complex(stack, stack.conj().transpose(0, 2, 1), scheme, cupy.asarray(stack), turned)


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
