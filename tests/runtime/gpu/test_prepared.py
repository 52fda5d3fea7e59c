"""Later calls of a signature: the bits of the first, on any stream, for any data."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.api import dot, matmul
from mixpert_py.runtime.context import Context, Modules, current, use
from mixpert_py.runtime.kernels import recording
from mixpert_py.runtime.modules import is_in_place, modules_covered, precision
from mixpert_py.runtime.products.tensors import torch_call
from mixpert_py.runtime.signatures import NATIVE
from mixpert_py.runtime.tracing.trace import Trace

pytestmark = pytest.mark.gpu

SCHEMES = ("faithful", "int8x1", "int8x6", "int8x10", "fp16x3", "bf16x6", "egemm", "mixpert-II")


@pytest.fixture(autouse=True)
def graphs_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Addresses that come again have a graph at once."""
    monkeypatch.setattr(recording, "USES", 2)


def random(shape: tuple[int, ...], seed: int, dtype: str = "float32") -> Any:
    import cupy

    return cupy.random.default_rng(seed).standard_normal(shape).astype(dtype)


def direct(x: Any, y: Any, scheme: str) -> Any:
    """The product as it is made where nothing is kept: a trace wants to know all."""
    with use(replace(current(), trace=Trace())):
        return matmul(x, y, scheme=scheme, backend="cuda")


def layouts_of(x: Any) -> list[Any]:
    """x as it is, with columns contiguous, in the middle of a larger array, backwards."""
    import cupy

    wide = cupy.zeros((*x.shape[:-1], x.shape[-1] + 3), x.dtype)
    wide[..., 1:-2] = x
    turned = cupy.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)
    return [x, turned, wide[..., 1:-2], cupy.ascontiguousarray(x[..., ::-1])[..., ::-1]]


def same_bits(make: Callable[[], Any], direct: Callable[[], Any]) -> None:
    wanted = direct().get()
    for _ in range(3):
        assert make().get().tobytes() == wanted.tobytes()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_prepared_products_are_the_direct_ones(scheme: str) -> None:
    """Whatever the layouts, each of which is prepared once for one signature."""
    a, b = random((1100, 1030), 1), random((1030, 1200), 2)
    with precision(scheme):
        for x in layouts_of(a):
            for y in layouts_of(b):
                same_bits(lambda: matmul(x, y, site="s"), lambda: direct(x, y, scheme))  # noqa: B023
        assert any(one is not NATIVE for one in current().known.values())  # but launches


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((64, 512, 512), (64, 512, 512)),
        ((300, 128, 128), (300, 128, 128)),
        ((300, 128, 128), (128, 128)),
        ((2, 9, 700, 900), (900, 800)),
        ((2, 9, 200, 900), (9, 900, 300)),
        ((1200, 1, 24, 20), (3, 20, 24)),
        ((4000, 24, 24), (4000, 24, 24)),
        ((4000, 24, 24), (24, 24)),
        ((4096,), (4096, 8192)),
        ((2048, 2048), (2048, 2048)),
        ((4096, 4096), (4096, 4096)),
        ((130, 1 << 20), (1 << 20, 140)),
        ((5000, 3000), (3000, 5100)),
    ],
    ids=str,
)
@pytest.mark.parametrize("scheme", ["faithful", "int8x6", "mixpert-IV"])
def test_shapes(a: tuple[int, ...], b: tuple[int, ...], scheme: str) -> None:
    x, y = random(a, 1), random(b, 2)
    with precision(scheme, backend="cuda"):  # small products too
        same_bits(lambda: matmul(x, y, site="s"), lambda: direct(x, y, scheme))


@pytest.mark.parametrize("library", ["cupy", "torch"])
@pytest.mark.parametrize(
    ("scheme", "dtype"),
    [("faithful", "F"), ("int8x6", "D"), ("crt14", "D"), ("crt9", "F"), ("crt", "D")],
)
@pytest.mark.parametrize("shape", [(1100, 1030), (3, 300, 700)], ids=str)
def test_complex_products(shape: tuple[int, ...], scheme: str, dtype: str, library: str) -> None:
    import cupy

    arrays = [
        sum(random(shape, 2 * seed + part, dtype) * 1j**part for part in range(2))
        for seed in range(2)
    ]
    operands = [(x, arrays[1].swapaxes(-1, -2)) for x in layouts_of(arrays[0])]
    operands += [(arrays[0], x.swapaxes(-1, -2)) for x in layouts_of(arrays[1])]
    if library == "torch":
        torch = pytest.importorskip("torch", reason="PyTorch is not installed")
        forward = [pair for pair in operands if min(*pair[0].strides, *pair[1].strides) > 0]
        operands = [tuple(map(torch.from_dlpack, pair)) for pair in forward]
        operands += [(x.conj(), y) for x, y in operands] + [(x, y.conj()) for x, y in operands]
    with precision(scheme, backend="cuda"):
        for x, y in operands:
            wanted = cupy.asarray(direct(x, y, scheme)).get()
            for _ in range(3):
                found = cupy.asarray(matmul(x, y, site="s")).get()
                assert found.dtype == wanted.dtype
                assert found.tobytes() == wanted.tobytes()
            a, b = (cupy.asarray(z.resolve_conj() if library == "torch" else z) for z in (x, y))
            exact = (a.astype("D") @ b.astype("D")).get()
            tolerance = {"faithful": 1e-3, "int8x6": 1e-2, "crt9": 1e-3}.get(scheme, 1e-10)
            np.testing.assert_allclose(found, exact, atol=tolerance)


def heads(x: Any) -> list[Any]:
    """Stacks of two axes as attention has them, and others: of CuPy's arrays or PyTorch's tensors.

    x: (2, 600, 3, 64), tokens before heads.
    """
    by_heads = x.swapaxes(1, 2)  # no axis steps through the stack's memory
    copied = by_heads.reshape(6, 600, 64).reshape(2, 3, 600, 64)
    return [by_heads, copied, by_heads[:, :2], copied[:, ::2], copied[:, :, 8:], by_heads[1:]]


@pytest.mark.parametrize("library", ["cupy", "torch"])
@pytest.mark.parametrize("scheme", ["faithful", "int8x6"])
def test_stacks_of_several_axes_in_any_order(scheme: str, library: str) -> None:
    """Those that kernels cannot walk are copied, of which the bits say nothing."""
    import cupy

    arrays = [random((2, 600, 3, 64), seed) for seed in (1, 2)]
    if library == "torch":
        torch = pytest.importorskip("torch", reason="PyTorch is not installed")
        arrays = [torch.from_dlpack(x) for x in arrays]
    queries, keys = map(heads, arrays)
    with precision(scheme, backend="cuda"):
        for x, y in zip(queries, keys, strict=True):
            across = y.swapaxes(-1, -2)
            scores = direct(x, across, scheme)
            for left, right in ((x, across), (scores, y)):
                wanted = cupy.asarray(direct(left, right, scheme)).get().tobytes()
                for _ in range(3):
                    found = cupy.asarray(matmul(left, right, site="s")).get().tobytes()
                    assert found == wanted


@pytest.mark.parametrize(
    "shape", [(1540, 700), (3, 300, 1100), (300, 20_000), (129, 70_000)], ids=str
)
@pytest.mark.parametrize(
    ("scheme", "dtype"),
    [
        *[(scheme, "float32") for scheme in ("faithful", "int8x3", "int8x6", "bf16x6")],
        *[(scheme, "float64") for scheme in ("int8x8", "crt14", "crt")],
    ],
)
def test_products_with_ones_own_transpose_are_symmetric(
    scheme: str, dtype: str, shape: tuple[int, ...]
) -> None:
    """To the last bit, and below the diagonal what two arrays make."""
    with precision(scheme, backend="cuda"):
        for x in layouts_of(random(shape, 1, dtype)):
            turned = x.swapaxes(-1, -2)
            apart = direct(x, turned.copy(), scheme).get()
            for _ in range(3):
                found = matmul(x, turned, site="s").get()
                assert found.tobytes() == found.swapaxes(-1, -2).tobytes()
                np.testing.assert_array_equal(np.tril(found), np.tril(apart))
            assert matmul(x, turned.copy(), site="s").get().tobytes() == apart.tobytes()


@pytest.mark.parametrize(("scheme", "dtype"), [("faithful", "d"), ("int8x6", "f"), ("crt14", "d")])
@pytest.mark.parametrize("rows", [3, 40, 1200])
def test_symmetric_products_of_rows_that_leave_the_slices(
    rows: int, scheme: str, dtype: str
) -> None:
    """One by one, many at once, or all of them; and where NaN and Inf are: no less accurate than
    the product of two arrays.
    """
    import cupy

    x = random((1200, 1300), 1, dtype)
    x[:: 1200 // rows] *= cupy.exp2(16 * random((1, 1300), 2, dtype))
    with precision(scheme, backend="cuda"), np.errstate(all="ignore"):
        for _ in range(2):
            found = matmul(x, x.T, site="s").get()
            assert found.tobytes() == found.T.tobytes()
            apart = matmul(x, x.T.copy(), site="s").get()
            size = np.abs(wide := x.get().astype("d")) @ np.abs(wide.T)
            errors = [np.abs(it - wide @ wide.T)[np.isfinite(size)] for it in (found, apart)]
            one, two = (np.max(it / size[np.isfinite(size)]) for it in errors)
            assert one <= max(1.5 * two, 1e-6)
            x[7, 9], x[601, 3] = np.nan, np.inf
        assert np.isnan(found[7]).all()


def test_squares_of_symmetric_matrices_are_symmetric() -> None:
    """To the last bit, where the matrix is; else the square is the product of two arrays."""
    import cupy

    for x in layouts_of(random((4130, 4130), 1))[:3]:  # not backwards, which is never looked at
        x += x.T.copy()
        with precision("faithful", backend="cuda"):
            for kind in ("symmetric", "one bit", "wide range", "symmetric"):
                if kind == "wide range":
                    kept = x.copy()
                    x *= cupy.exp2(20 * random((4130, 1), 2))
                elif kind == "one bit":
                    x.view("i4")[4, 4000] ^= 1
                found, apart = matmul(x, x, site="s").get(), matmul(x, x.copy("K"), site="s").get()
                assert direct(x, x, "faithful").get().tobytes() == found.tobytes()
                np.testing.assert_array_equal(np.tril(found), np.tril(apart))
                is_symmetric = found.tobytes() == found.T.tobytes()
                assert is_symmetric == (kind == "symmetric")
                assert is_symmetric or found.tobytes() == apart.tobytes()
                if kind == "one bit":
                    x.view("i4")[4, 4000] ^= 1
                elif kind == "wide range":
                    x[...] = kept


def test_other_data_of_a_signature() -> None:
    """Rows that leave the slices, NaN and Inf, a range that the guard finds too wide, and back."""
    import cupy

    n = 2304
    plain, y = random((n, n), 1), random((n, n), 2)
    holes, far = plain.copy(), plain * cupy.exp2(40 * random((n, n), 3))
    holes[7, 9], holes[11, 3], holes[5, 5] = np.nan, np.inf, 1e30
    for x in (plain, holes, far, plain, far, holes):
        wanted = direct(x, y, "faithful").get()
        assert matmul(x, y).get().tobytes() == wanted.tobytes()
    assert dot(plain, y).get().tobytes() == direct(plain, y, "faithful").get().tobytes()


@pytest.mark.parametrize("library", ["cupy", "torch"])
@pytest.mark.parametrize("dtype", "dD")
def test_operands_of_residues_that_need_other_moduli(dtype: str, library: str) -> None:
    """Normal and log-normal numbers, some that `crt` makes natively, integers and zeros: whatever
    was multiplied before.
    """
    import cupy

    a, b, k = random((700, 900), 1, dtype), random((900, 500), 2, dtype), 900
    lognormal = [cupy.exp(0.7 * random(x.shape, 3, "d")).astype(dtype) for x in (a, b)]
    pairs = [(a, b), tuple(lognormal), (a * cupy.exp2(12 * random((700, k), 3, "d")), b)]
    pairs += [(cupy.rint(20 * a.real).astype(dtype), cupy.rint(9 * b.real).astype(dtype))]
    pairs += [(0 * a, 0 * b), (a + 1j * a[::-1], b - 1j * b) if dtype == "D" else (-a, b)]
    if library == "torch":
        torch = pytest.importorskip("torch", reason="PyTorch is not installed")
        pairs = [tuple(map(torch.from_dlpack, pair)) for pair in pairs]
    with precision("crt", backend="cuda"):
        wanted = [cupy.asarray(direct(*pair, "crt")).get().tobytes() for pair in pairs]
        for which in np.random.default_rng(0).integers(0, len(pairs), 40):
            for _ in range(1 + which):
                found = cupy.asarray(matmul(*pairs[which], site="s")).get().tobytes()
                assert found == wanted[which]


@pytest.mark.parametrize(("scheme", "dtype"), [("faithful", "f"), ("crt", "d"), ("crt", "D")])
def test_streams_and_threads(scheme: str, dtype: str) -> None:
    import cupy

    x, y = random((1536, 1536), 1, dtype), random((1536, 1536), 2, dtype)
    if dtype == "D":
        x, y = x + 1j * y, y - 1j * x
    wide = x * cupy.exp2(9 * random(x.shape, 3, "d")) if scheme == "crt" else x  # native by `crt`
    wanted = [direct(one, y, scheme).get().tobytes() for one in (x, x, x, x, wide)]
    cupy.cuda.Device().synchronize()

    def works(number: int) -> bool:
        with cupy.cuda.Stream(non_blocking=number % 2 == 0), precision(scheme, backend="cuda"):
            found = [
                [matmul(one, y, site="s").get().tobytes() for one in (x, x, x, x, wide)]
                for _ in range(8)
            ]
        return found == [wanted] * 8

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(works, range(4)))


def test_products_of_a_loop() -> None:
    """Operands at addresses that come again, for which graphs are kept, and at others."""
    for n in (1024, 2048):
        x, y = random((n, n), 1), random((n, n), 2)
        z, exact = y, y
        for _ in range(20):
            z = matmul(x, z, site="g")
            z /= abs(z).max()
            exact = direct(x, exact, "faithful")
            exact /= abs(exact).max()
        assert z.get().tobytes() == exact.get().tobytes()


class TestTensors:
    def test_tensors_are_as_arrays(self) -> None:
        torch: Any = pytest.importorskip("torch")
        for shapes in (((1536, 1536), (1536, 1536)), ((3, 2304, 2304), (2304, 2304))):
            x, y = (torch.randn(*shape, device="cuda") for shape in shapes)
            wanted = direct(x, y, "faithful").cpu().numpy().tobytes()
            for _ in range(3):
                assert matmul(x, y, site="t").cpu().numpy().tobytes() == wanted
            for left in (x, torch.nn.Parameter(x, requires_grad=False)):
                assert matmul(left, y, site="t").cpu().numpy().tobytes() == wanted
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                value = matmul(x, y, site="t")
                side.synchronize()
            assert value.cpu().numpy().tobytes() == wanted
            turned = x.transpose(-1, -2).contiguous().transpose(-1, -2)
            for _ in range(2):
                assert matmul(turned, y, site="t").cpu().numpy().tobytes() == wanted

    def test_pytorchs_own_products(self) -> None:
        """By default, whoever calls; but for calls and blocks with a scheme of their own."""
        torch: Any = pytest.importorskip("torch")
        linear = torch.nn.functional.linear
        x, w = (torch.randn(2048, 2048, device="cuda") for _ in range(2))
        bias = torch.randn(2048, device="cuda")
        native, faithful, other = x @ w.T, *(direct(x, w.T, it) for it in ("faithful", "int8x3"))
        back = [direct(x.T, x, it) for it in ("faithful", "int8x3")]
        with use(Context(modules=Modules())), modules_covered(takes_small=False):
            for _ in range(3):
                assert torch.equal(linear(x, w, bias), faithful + bias)
                half = torch.addmm(bias, x, w.T, beta=2, alpha=0.5)
                assert torch.equal(half, bias * 2 + faithful / 2)
                parameter = torch.nn.Parameter(w)
                linear(x, parameter).backward(x)
                assert any(torch.equal(parameter.grad, it) for it in (back[0], back[0].T))
            assert torch.equal(matmul(x, w.T, scheme="native"), native)
            assert torch.equal(linear(x, w), faithful)
            assert torch.equal(torch_call(x, w, native=linear, site="s", scheme="int8x3"), other)
            with precision("int8x3"):
                later = linear(x, parameter)
            parameter.grad = None
            later.backward(x)
            assert any(torch.equal(parameter.grad, it) for it in (back[1], back[1].T))

    def test_pytorch_has_its_kernels_back_where_no_product_gains(self) -> None:
        torch: Any = pytest.importorskip("torch")
        if is_in_place() or threading.active_count() > 1:
            pytest.skip("an earlier test, or another thread, keeps ours for good")
        stack = torch.randn(4000, 48, 48, device="cuda")
        x = torch.randn(2048, 2048, device="cuda")
        sums = "bij,bjk,bkl->bil", stack, stack, stack
        wanted = torch.einsum(*sums)
        for _ in range(3):
            assert torch.equal(torch_call(*sums, native=torch.einsum, site="e"), wanted)
            assert not is_in_place()
        linear = torch.nn.functional.linear
        faithful = direct(x, x.T, "faithful")
        for _ in range(3):
            assert torch.equal(torch_call(x, x, native=linear, site="l"), faithful)
            assert is_in_place()
        assert torch.equal(torch_call(*sums, native=torch.einsum, site="e"), wanted)

    def test_derivatives_are_pytorchs(self) -> None:
        torch: Any = pytest.importorskip("torch")
        x, y = (torch.randn(1536, 1536, device="cuda") for _ in range(2))
        plain = matmul(x, y, site="t").clone()
        x.requires_grad_()
        value = matmul(x, y, site="t")
        value.sum().backward()
        assert torch.allclose(x.grad, y.sum(1).expand_as(x), rtol=1e-3, atol=1e-3)
        with torch.no_grad():
            assert torch.equal(matmul(x, y, site="t"), plain)
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x.detach(), torch.ones_like(x))
            found = torch.autograd.forward_ad.unpack_dual(matmul(dual, y, site="t"))
            assert found.tangent is not None
        with torch.autocast("cuda", torch.bfloat16):
            assert matmul(x, y, site="t").dtype == torch.bfloat16
        torch.set_float32_matmul_precision("high")
        try:
            x = x.detach()
            assert torch.equal(matmul(x, y, site="t"), x @ y)
        finally:
            torch.set_float32_matmul_precision("highest")
        assert torch.equal(matmul(x, y, site="t"), plain)
        mapped = torch.func.vmap(lambda one: matmul(one, y, site="t"))(torch.stack([x, x]))
        assert torch.allclose(mapped[1], x @ y, rtol=1e-3, atol=1e-2)
        assert torch.equal(matmul(x, y, site="t"), plain)
        sparse = x.to_sparse()
        assert torch.allclose(matmul(sparse, y, site="t"), sparse @ y, rtol=1e-3, atol=1e-2)
        assert torch.equal(matmul(x, y, site="t"), plain)
