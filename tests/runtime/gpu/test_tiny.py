"""Stacks of tiny products under `faithful`: the host's part, and all on a GPU, to the bit."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mixpert_py.errors import DeviceError
from mixpert_py.runtime import worth
from mixpert_py.runtime.api import matmul
from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.gpu import multiply as gpu_backend
from mixpert_py.runtime.gpu.tiny import Stack, are_fours, memory_of, plan, suits
from mixpert_py.runtime.kernels.tiny_block import EDGE, Memory
from mixpert_py.runtime.packing.operand import Form
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.request import Product
from mixpert_py.runtime.schemes import emulation_of
from mixpert_py.runtime.tracing.trace import Trace
from tests.runtime.chains import chained
from tests.runtime.gpu.fake import FakeGpu, Stream, ndarray
from tests.runtime.gpu.requested import multiplied, transferred

Array = Any


def normal(*shape: int, seed: int = 0, dtype: Any = "f") -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    fake = FakeGpu()
    fake.install(monkeypatch)
    return fake


def made(a: Array, b: Array, scheme: str = "faithful", **given: Any) -> Product:
    found = multiplied(ndarray(a), ndarray(b), scheme, **given)
    assert isinstance(found, Product)
    assert found.scheme == scheme
    return found


# Shapes, and the launches that they take.
STACKS = [
    (((3, 5, 6), (3, 6, 4)), [(3, 5, 4)]),
    (((1, 32, 32), (1, 32, 32)), [(1, 32, 32)]),
    (((3, 5, 6), (6, 4)), [(3, 5, 4)]),
    (((5, 6), (3, 6, 4)), [(3, 5, 4)]),
    (((3, 5, 6), (6,)), [(3, 5, 1)]),
    (((6,), (3, 6, 4)), [(3, 1, 4)]),
    (((2, 3, 5, 6), (2, 3, 6, 4)), [(6, 5, 4)]),
    (((2, 1, 5, 6), (3, 6, 4)), [(3, 5, 4)] * 2),
    (((2, 3, 5, 6), (3, 6, 4)), [(3, 5, 4)] * 2),
]


@pytest.mark.parametrize(("shapes", "launches"), STACKS, ids=str)
@pytest.mark.parametrize("given", ["nothing", "out", "strided out"])
def test_stacks(gpu: FakeGpu, shapes: Any, launches: Any, given: str) -> None:
    a, b = normal(*shapes[0]), normal(*shapes[1], seed=1)
    rows, columns = a if a.ndim > 1 else a[None], b if b.ndim > 1 else b[:, None]
    wanted = chained(rows, columns).reshape(np.matmul(a, b).shape)
    out = None
    if given != "nothing":
        room = np.zeros((*wanted.shape[:-1], 2 * wanted.shape[-1]), "f")
        out = ndarray(room[..., ::2] if given == "strided out" else np.zeros_like(wanted))
    found = made(a, b, out=out).value
    np.testing.assert_array_equal(found.x, wanted)
    assert out is None or found is out
    assert gpu.tiny == launches
    assert not gpu.launches


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (np.moveaxis(normal(6, 6, 5), -1, 0), normal(5, 6, 6, seed=1)),
        (np.broadcast_to(normal(6, 6), (5, 6, 6)), normal(5, 6, 6, seed=1)[::-1]),
        (np.broadcast_to(normal(6, 6), (2, 5, 6, 6)), normal(2, 5, 6, 6, seed=1)),
        (normal(2, 5, 6, 6).swapaxes(0, 1), normal(5, 2, 6, 6, seed=1).swapaxes(2, 3)),
        (np.broadcast_to(normal(6, 6), (5, 6, 6)), np.broadcast_to(normal(6, 6), (5, 6, 6))),
    ],
    ids=range(5),
)
def test_views(gpu: FakeGpu, a: Array, b: Array) -> None:
    np.testing.assert_array_equal(made(a, b).value.x, chained(a, b))
    assert gpu.tiny


@pytest.mark.parametrize(
    ("a", "b", "suited"),
    [
        (normal(3, 5, 6), normal(6, 4), True),
        (normal(5, 6), normal(6, 4), False),
        (normal(3, EDGE, EDGE), normal(3, EDGE, EDGE), True),
        (normal(3, EDGE + 1, 4), normal(4, 4), False),
        (normal(3, 4, EDGE + 1), normal(EDGE + 1, 4), False),
        (normal(4, 4), normal(3, 4, EDGE + 1), False),
        (normal(3, 5, 6, dtype="d"), normal(6, 4), False),
        (normal(3, 5, 6, dtype="d"), normal(6, 4, dtype="d"), False),
        (normal(0, 5, 6), normal(6, 4), False),
        (normal(3, 5, 0), normal(0, 4), False),
    ],
    ids=range(10),
)
def test_what_suits(gpu: FakeGpu, a: Array, b: Array, suited: bool) -> None:
    assert suits(a, b) == suited
    found = made(a, b).value
    np.testing.assert_allclose(found.x, a.astype("d") @ b, rtol=1e-5, atol=1e-5)
    assert bool(gpu.tiny) == suited


def test_what_asks_for_more_is_emulated(gpu: FakeGpu) -> None:
    a, b = normal(3, 5, 6), normal(6, 4, seed=1)
    made(a, b, "int8x6")
    ready = gpu_backend.pack_operand(ndarray(b), emulation_of("int8x6"), "right")
    assert not isinstance(ready, Reason)
    made(a, b, right=ready)
    assert not gpu.tiny


def test_complex_operands_by_their_parts(gpu: FakeGpu) -> None:
    a, b = normal(3, 5, 6) + 1j * normal(3, 5, 6, seed=1), normal(6, 4, seed=2)
    found = made(a.astype("F"), b).value
    np.testing.assert_array_equal(found.x.real, chained(a.real.astype("f"), b))
    np.testing.assert_array_equal(found.x.imag, chained(a.imag.astype("f"), b))
    assert gpu.tiny == [(6, 5, 4)]  # the parts of a complex operand are a stack themselves


def test_numpy_arrays_are_moved(gpu: FakeGpu) -> None:
    a, b = normal(3, 5, 6), normal(3, 6, 4, seed=1)
    found = transferred(a, b, "faithful")
    assert isinstance(found, Product)
    np.testing.assert_array_equal(found.value, chained(a, b))
    assert gpu.tiny


@pytest.mark.parametrize("operand", [0, 1])
@pytest.mark.usefixtures("gpu")
def test_out_may_be_an_operand(operand: int) -> None:
    pair = [ndarray(normal(3, 6, 6)), ndarray(normal(3, 6, 6, seed=1))]
    wanted = chained(*(x.x for x in pair))
    found = multiplied(*pair, "faithful", out=pair[operand])
    assert isinstance(found, Product)
    assert found.value is pair[operand]
    np.testing.assert_array_equal(found.value.x, wanted)


def test_a_kernel_that_does_not_compile(gpu: FakeGpu) -> None:
    gpu.refuses = DeviceError("no such instruction")
    a = ndarray(normal(3, 6, 6))
    assert multiplied(a, a, "faithful") is Reason.KERNEL
    gpu.refuses = None
    assert isinstance(multiplied(a, a, "int8x6"), Product)


@pytest.mark.parametrize("kind", ["result", "out", "strided out", "copied operand"])
@pytest.mark.usefixtures("gpu")
def test_a_graph_keeps_what_it_uses(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    kept: list[Any] = []

    def finalize(owner: Any, function: Any, used: Any) -> Any:
        kept.append((owner, list(used)))
        return SimpleNamespace()

    monkeypatch.setattr("mixpert_py.runtime.gpu.slices.weakref.finalize", finalize)
    a, b = normal(2, 3, 6, 6), normal(2, 3, 6, 6, seed=1)
    if kind == "copied operand":
        a = normal(3, 2, 6, 6).swapaxes(0, 1)
    out = {
        "out": np.zeros((2, 3, 6, 6), "f"),
        "strided out": np.zeros((2, 3, 6, 12), "f")[..., ::2],
    }
    with Stream(ptr=99) as stream:
        stream.capturing = True
        target = ndarray(out[kind]) if kind in out else None
        value = made(a, b, out=target).value
    ((owner, used),) = kept
    assert owner is value
    assert len(used) == (kind in ("strided out", "copied operand"))
    assert all(x is not owner for x in used)


@pytest.mark.parametrize(
    ("dtype", "given", "wanted"),
    [
        ("f", {}, ("faithful", [])),
        ("f", {"scheme": "float32"}, ("float32", [])),
        ("f", {"scheme": "int8x6"}, ("native", [Reason.TOO_SMALL])),
        ("d", {"scheme": "faithful"}, ("native", [Reason.TOO_SMALL])),
        ("F", {"scheme": "faithful"}, ("native", [Reason.TOO_SMALL])),
    ],
    ids=str,
)
def test_what_is_chosen_where_it_pays(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, dtype: str, given: Any, wanted: Any
) -> None:
    asked: list[Any] = []

    def pays(*question: Any) -> bool:
        asked.append(question)
        return question[0] == "faithful"

    monkeypatch.setattr(worth, "tiny_pays", pays)
    a, trace = ndarray(normal(3, 6, 6, dtype=dtype)), Trace()
    with use(Context(trace=trace)):
        matmul(a, a, site="s", **given)
    record = trace.sites["s"]
    assert ([*record.schemes], [*record.reasons]) == ([wanted[0]], wanted[1])
    assert bool(gpu.tiny) == (wanted[0] == "faithful")
    if gpu.tiny:
        assert asked == [("faithful", (3, 6, 6), (3, 6, 6))]


def dense(lines: int, length: int) -> Stack:
    return Stack(lines, length, lines * length, length, 1, True)


@pytest.mark.parametrize(
    ("x", "order", "wide"),
    [
        (dense(16, 16), "along", True),
        (dense(5, 7), "along", True),
        (dense(16, 1), "along", True),
        (dense(1, 7), "along", True),
        (dense(16, 16)._replace(aligned=False), "along", False),
        (dense(5, 7)._replace(aligned=False), "along", False),
        (dense(16, 16)._replace(product=0), "along", True),
        (dense(5, 7)._replace(product=0), "along", False),
        (dense(16, 16)._replace(product=300), "along", True),
        (dense(16, 16)._replace(product=301), "along", False),
        (dense(5, 7)._replace(product=36), "along", False),
        (dense(16, 16)._replace(line=20, product=400), "along", True),
        (dense(16, 16)._replace(line=18), "along", False),
        (dense(1, 16)._replace(line=18), "along", True),
        (dense(16, 16)._replace(line=-16, product=-256), "along", True),
        (dense(16, 16)._replace(place=-1), "along", False),
        (dense(16, 16)._replace(line=1, place=16), "across", True),
        (dense(5, 7)._replace(line=1, place=5), "across", True),
        (dense(5, 7)._replace(line=1, place=6), "across", False),
        (dense(16, 1)._replace(line=1, place=99, product=20), "across", True),
        (dense(16, 16)._replace(line=1600, place=100, product=1), "stack", False),
        (dense(16, 16)._replace(line=32, place=2), "along", False),
        (dense(16, 16)._replace(line=2, place=32), "across", False),
        (Stack(1, 1, 0, 5, 5, True), "along", False),
    ],
    ids=str,
)
def test_how_operands_are_read(x: Stack, order: Any, wide: bool) -> None:
    assert memory_of(x) == Memory(order, wide)


def test_how_results_are_written() -> None:
    assert are_fours(dense(5, 8)._replace(line=12, product=64), "along")
    assert not are_fours(dense(5, 8)._replace(line=9), "along")
    assert are_fours(dense(8, 5), "along")
    assert not are_fours(dense(8, 5)._replace(line=8, product=64), "along")
    assert not are_fours(dense(8, 8)._replace(line=1, place=8), "along")


def test_words_of_a_launch() -> None:
    a = Form("float32", 1000, 16, 16, 256, 16, 1, True)
    b = Form("float32", 1, 16, 16, 999, 1, 16, True)
    constants, grid, threads, words = plan(a, b, 1000, (1024, 64, 4), True)
    along = Memory("along", True)
    assert constants == (16, 16, 16, along, along, True)
    assert (grid, threads) == (125, 128)
    assert words == (1000, 256, 16, 1, 0, 16, 1, 256, 16, 1)
    assert plan(a, b, 1001, (1024, 64, 4), True)[1] == 126
    largest = a._replace(batch=1 << 31)
    assert plan(largest, b, 1 << 31, (1024, 64, 4), True)[1] < 1 << 31


def emulated(a: Any, b: Any, **given: Any) -> Any:
    """By the kernel, however few they are."""
    trace = Trace()
    with use(Context(trace=trace)):
        value = matmul(a, b, scheme="faithful", backend="cuda", site="s", **given)
    assert dict(trace.sites["s"].schemes) == {"faithful": 1}
    return value


def same_bits(found: Any, wanted: Array) -> None:
    host = np.ascontiguousarray(found.get())
    nowhere = np.isnan(wanted)
    np.testing.assert_array_equal(np.isnan(host), nowhere)
    np.testing.assert_array_equal(host.view(np.uint32)[~nowhere], wanted.view(np.uint32)[~nowhere])


def check(a: Any, b: Any, out: Any = None) -> None:
    """Device arrays a and b, to the bit but for NaN's."""
    import cupy

    given = {} if out is None else {"out": out, "native": cupy.matmul}
    found = emulated(a, b, **given)
    assert out is None or found is out
    same_bits(found, chained(a.get(), b.get()))


VIEWS: dict[str, Callable[[Any], Any]] = {
    "dense": lambda x: x,
    "transposed": lambda x: x.swapaxes(1, 2).copy().swapaxes(1, 2),
    "gaps": lambda x: x.repeat(2, 1)[:, ::2],
    "odd gaps": lambda x: x.repeat(2, 2)[:, :, ::2],
    "unaligned": lambda x: x.copy().ravel().repeat(2)[1 : x.size + 1].reshape(x.shape),
    "reversed": lambda x: x[::-1, ::-1, ::-1],
    "stack reversed": lambda x: x[::-1],
    "stack inside": lambda x: x.transpose(1, 2, 0).copy().transpose(2, 0, 1),
    "one for all": lambda x: x[7],
}


@pytest.mark.gpu
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("size", [(16, 16, 16), (5, 7, 6), (32, 12, 20)], ids=str)
def test_bits_in_any_layout(view: str, size: tuple[int, int, int]) -> None:
    import cupy

    m, k, n = size
    a, b = cupy.asarray(normal(211, m, k)), cupy.asarray(normal(211, k, n, seed=1))
    check(VIEWS[view](a), b)
    check(a, VIEWS[view](b))
    if view == "one for all":
        check(cupy.broadcast_to(a[7], a.shape), b)
    else:
        check(VIEWS[view](a), VIEWS[view](b))


@pytest.mark.gpu
@pytest.mark.parametrize("m", [1, 3, 8, 32])
@pytest.mark.parametrize("k", [1, 6, 16, 31])
def test_bits_of_any_size(m: int, k: int) -> None:
    import cupy

    for n in (1, 2, 4, 29):
        a, b = cupy.asarray(normal(131, m, k)), cupy.asarray(normal(131, k, n, seed=1))
        check(a, b)


@pytest.mark.gpu
@pytest.mark.parametrize("n", [16, 6])
def test_bits_in_any_out(n: int) -> None:
    import cupy

    a, b = cupy.asarray(normal(50, 8, 16)), cupy.asarray(normal(50, 16, n, seed=1))
    room = cupy.full((50, 9, n + 4), 7, "f")
    check(a, b, room[:, 1:, 4:])
    assert bool((room[:, 0] == 7).all())
    assert bool((room[:, :, :4] == 7).all())
    check(a, b, cupy.empty((50, n, 8), "f").swapaxes(1, 2))
    check(a, b, cupy.empty((8, n, 50), "f").transpose(2, 0, 1))
    check(a, b, cupy.empty((50, 8, n), "f")[::-1, ::-1, ::-1])
    check(a.reshape(5, 10, 8, 16), b[:10], cupy.empty((5, 10, 8, n), "f"))
    if n == 16:
        square = cupy.asarray(normal(50, 16, 16))
        wanted = chained(square.get(), b.get())
        emulated(square, b, out=square, native=cupy.matmul)
        same_bits(square, wanted)


@pytest.mark.gpu
def test_what_is_not_finite_or_not_normal() -> None:
    import cupy

    a, b = normal(64, 16, 16), normal(64, 16, 16, seed=1)
    a[0, 1, 2], a[1, 3, 4], a[2, 5, 6], b[3, 7, 8] = np.nan, np.inf, -np.inf, np.nan
    a[4, 2, 2], b[4, 2, 3] = np.inf, 0
    a[5] *= np.float32(1e-30)
    b[5] *= np.float32(1e-12)
    a[6] *= np.float32(1e30)
    b[6] *= np.float32(1e12)
    a[7], b[7, :4] = 0, -0.0
    a[8] *= np.float32(-1e-40)
    b[8] *= np.float32(1e-20)
    check(cupy.asarray(a), cupy.asarray(b))


@pytest.mark.gpu
def test_a_graph_computes_anew() -> None:
    import cupy

    a, b = cupy.asarray(normal(3, 40, 16, 16)), cupy.asarray(normal(3, 1, 16, 16, seed=1))
    room = cupy.empty((3, 40, 16, 32), "f")[..., ::2]
    emulated(a, b)  # compiles
    with cupy.cuda.Stream(non_blocking=True) as stream:
        stream.begin_capture()
        value = matmul(a, b, scheme="faithful", backend="cuda")
        matmul(a, b, scheme="faithful", backend="cuda", out=room, native=cupy.matmul)
        graph = stream.end_capture()
        garbage = [cupy.full((1 << 14,), 7.0) for _ in range(20)]  # takes memory that is free
        for seed in range(3):
            a[...] = cupy.asarray(normal(3, 40, 16, 16, seed=10 + seed))
            value[...] = room[...] = 0
            graph.launch(stream)
            stream.synchronize()
            wanted = chained(a.get(), b.get())
            same_bits(value, wanted)
            same_bits(room, wanted)
    assert len(garbage) == 20


@pytest.mark.gpu
def test_many_products_pay_and_two_runs_give_the_same_bits() -> None:
    import cupy

    draw = cupy.random.default_rng(0)
    a, b = (draw.standard_normal((200_000, 16, 16), dtype="f") for _ in range(2))
    trace = Trace()
    with use(Context(trace=trace)):
        first, second = (matmul(a, b, site="s") for _ in range(2))
        matmul(a[:300], b[:300], site="few")
    assert dict(trace.sites["s"].schemes) == {"faithful": 2}
    assert dict(trace.sites["few"].schemes) == {"native": 1}
    assert bool((first.view("u4") == second.view("u4")).all())
    few = slice(None, None, 997)
    same_bits(first[few], chained(a[few].get(), b[few].get()))
