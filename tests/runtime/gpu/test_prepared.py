"""Later calls of a signature: the bits of the first, on any stream, for any data."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.api import dot, matmul
from mixpert_py.runtime.context import current, use
from mixpert_py.runtime.precision import precision
from mixpert_py.runtime.products.einsum import einsum
from mixpert_py.runtime.products.tensordot import tensordot
from mixpert_py.runtime.signatures import NATIVE
from mixpert_py.runtime.tracing.trace import Trace

pytestmark = pytest.mark.gpu

SCHEMES = ("faithful", "int8x1", "int8x6", "int8x10", "fp16x3", "bf16x6", "egemm", "mixpert-II")


def random(shape: tuple[int, ...], seed: int, dtype: str = "float32") -> Any:
    import cupy

    return cupy.random.default_rng(seed).standard_normal(shape).astype(dtype)


def direct(x: Any, y: Any, scheme: str) -> Any:
    """The product as it is made where nothing is kept: a trace wants to know all."""
    with use(replace(current(), trace=Trace())):
        return matmul(x, y, scheme=scheme, backend="cuda")


def prepared() -> list[Any]:
    """What the context in force knows of signatures that are made by launches."""
    return [one for one in current().known.values() if one is not NATIVE]


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
        assert len(prepared()) == 1
        assert len(prepared()[0]._ready) == 16


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
        assert len(prepared()) == 1


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
        layouts = [ready for one in prepared() for ready in one._ready.values()]
    assert len(layouts) == 12
    assert {ready.a.is_copy for ready in layouts} == {True, False}
    assert {ready.b.is_copy for ready in layouts} == {True, False}


def test_an_out_takes_what_is_prepared() -> None:
    """Also one that is an operand, and a view; the library judges one that does not fit."""
    import cupy

    x, y = random((1100, 1100), 1), random((1100, 1100), 2)
    wanted = direct(x, y, "faithful").get()
    wide = cupy.zeros((1100, 2200), np.float32)
    with use(replace(current())):
        for out in (cupy.empty_like(x), wide[:, ::2], x.copy()):
            for _ in range(2):
                left = out if out.strides == x.strides and out[0, 0] == x[0, 0] else x
                assert matmul(left, y, site="s", native=cupy.matmul, out=out) is out
                assert out.get().tobytes() == wanted.tobytes()
                if left is out:
                    out[...] = x
        assert len(prepared()) == 1
        for bad in (cupy.empty((3, 3), np.float32), cupy.empty((1100, 1100), np.int8)):
            with pytest.raises((ValueError, TypeError)):
                matmul(x, y, site="s", native=cupy.matmul, out=bad)


@pytest.mark.parametrize("shape", [(640, 640), (1100, 1100)])
def test_contractions_that_are_native_are_known_to_be(shape: tuple[int, int]) -> None:
    import cupy

    x, y = random(shape, 1), random(shape, 2)
    is_small = shape[0] == 640
    with use(replace(current())) as context:
        for words in ("ij,jk->ik", "ij,ij->i", "ij,ij->"):
            for _ in range(3):
                found = einsum(words, x, y, site="s", native=cupy.einsum)
                wanted = cupy.einsum(words, x.astype("f8"), y.astype("f8"))
                cupy.testing.assert_allclose(found, wanted, rtol=1e-3, atol=2e-3)
        for axes in (1, ([1], [0]), 2):
            for _ in range(3):
                found = tensordot(x, y, axes, site="s", native=cupy.tensordot)
                wanted = cupy.tensordot(x.astype("f8"), y.astype("f8"), axes)
                cupy.testing.assert_allclose(found, wanted, rtol=1e-3, atol=0.5)
        known = [key[2] for key, one in context.known.items() if one is NATIVE and len(key) == 9]
    products = ["ij,jk->ik", "1", "([1], [0])"]
    others = ["ij,ij->i", "ij,ij->", "2"]
    assert {*others} <= {*known}
    assert {*products} <= {*known} if is_small else not {*products} & {*known}


@pytest.mark.parametrize("types", [("float64", "float64"), ("float32", "float64")])
def test_types(types: tuple[str, str]) -> None:
    x, y = random((2100, 2100), 1, types[0]), random((2100, 2100), 2, types[1])
    with precision("int8x10"):
        same_bits(lambda: matmul(x, y, site="s"), lambda: direct(x, y, "int8x10"))
        assert prepared()


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


def test_what_lies_elsewhere_is_found() -> None:
    """Each call's own operands and result; the results before it stay as they are."""
    y = random((1536, 1536), 2)
    operands = [random((1536, 1536), seed) for seed in range(6)]
    found = [matmul(x, y, site="s") for x in operands]
    for x, value in zip(operands, found, strict=True):
        assert value.get().tobytes() == direct(x, y, "faithful").get().tobytes()


def test_streams_and_threads() -> None:
    import threading

    import cupy

    x, y = random((1536, 1536), 1), random((1536, 1536), 2)
    wanted = direct(x, y, "faithful").get().tobytes()
    cupy.cuda.Device().synchronize()
    failed: list[int] = []

    def work(number: int) -> None:
        stream = cupy.cuda.Stream(non_blocking=number % 2 == 0)
        with stream:
            for _ in range(20):
                if matmul(x, y, site="s").get().tobytes() != wanted:
                    failed.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_a_graph_is_made_the_direct_way() -> None:
    """It holds what it uses, also where the signature was prepared before."""
    import cupy

    x, y = random((2304, 2304), 1), random((2304, 2304), 2)
    cupy.cuda.Device().synchronize()  # such a stream does not wait for the one that made them
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        for _ in range(2):
            wanted = matmul(x, y, site="s")
        stream.begin_capture()
        value = matmul(x, y, site="s")
        graph = stream.end_capture()
        x *= 2
        for _ in range(3):
            matmul(y, y, site="other")  # takes memory that is free
            graph.launch()
        stream.synchronize()
        assert value.get().tobytes() == (2 * wanted).get().tobytes()


def test_who_asks_for_tf32_keeps_it() -> None:
    import cupy

    linalg = cupy._core._routines_linalg
    x, y = random((1536, 1536), 1), random((1536, 1536), 2)
    matmul(x, y, site="s")
    before = linalg.get_compute_type("f")
    linalg.set_compute_type("f", linalg.COMPUTE_TYPE_TF32)
    try:
        assert matmul(x, y, site="s").get().tobytes() == (x @ y).get().tobytes()
    finally:
        linalg.set_compute_type("f", before)
    faithful = direct(x, y, "faithful").get()
    assert matmul(x, y, site="s").get().tobytes() == faithful.tobytes()


def test_small_products_are_known_to_be_native() -> None:
    x, y = random((64, 64), 1), random((64, 64), 2)
    same_bits(lambda: matmul(x, y, site="small"), lambda: x @ y)
    assert any(one is NATIVE for one in current().known.values())


def test_launches_at_addresses_that_come_again_are_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    import cupy

    from mixpert_py.runtime.kernels.launch_graphs import LaunchGraphs

    launched = []
    launch = LaunchGraphs.launch

    def watched(self: LaunchGraphs, addresses: tuple[int, ...], stream: int) -> bool:
        launched.append(launch(self, addresses, stream))
        return launched[-1]

    monkeypatch.setattr(LaunchGraphs, "launch", watched)
    side = cupy.cuda.Stream(non_blocking=True)
    for n in (1024, 2048):
        x, y = random((n, n), 1), random((n, n), 2)
        wanted = direct(x, y, "faithful").get().tobytes()
        for _ in range(12):
            value = matmul(x, y, site="g")
            cupy.cuda.Device().synchronize()
            assert value.get().tobytes() == wanted
        assert launched[-2:] == [True, True]
        with side:
            for _ in range(4):
                value = matmul(x, y, site="g")
                assert value.get().tobytes() == wanted
        # Other operands at the same addresses, in a loop in which the device idles now and then.
        z, exact = y, y
        for step in range(20):
            z = matmul(x, z, site="g")
            z /= cupy.abs(z).max()
            exact = direct(x, exact, "faithful")
            exact /= cupy.abs(exact).max()
            if step % 3:
                cupy.cuda.Device().synchronize()
        assert z.get().tobytes() == exact.get().tobytes()


def test_short_of_memory_the_direct_way_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It makes products in parts."""
    import cupy

    from mixpert_py.runtime.kernels.recording import Replay

    x, y = random((1536, 1536), 1), random((1536, 1536), 2)
    wanted = matmul(x, y, site="s").get()

    def fails(*_: int) -> None:
        raise cupy.cuda.memory.OutOfMemoryError(1, 1)

    monkeypatch.setattr(Replay, "enqueue", fails)
    assert matmul(x, y, site="s").get().tobytes() == wanted.tobytes()


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

    def test_negated_views(self) -> None:
        torch: Any = pytest.importorskip("torch")
        z = torch.randn(1536, 1536, device="cuda", dtype=torch.complex64)
        y = torch.randn(1536, 1536, device="cuda")
        x = z.conj().imag
        for _ in range(2):
            found = matmul(x, y, site="t")
            assert torch.equal(found, direct(x.resolve_neg(), y, "faithful"))
