"""Stacks of tiny products under `faithful`: the host's part, and all on a GPU, to the bit."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.api import matmul
from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.gpu.tiny import Stack, memory_of, plan, suits
from mixpert_py.runtime.kernels.tiny_block import EDGE, Memory
from mixpert_py.runtime.packing.operand import Form
from mixpert_py.runtime.request import Product
from mixpert_py.runtime.tracing.trace import Trace
from tests.contract.table import normal
from tests.runtime.gpu.fake import FakeGpu, ndarray
from tests.runtime.gpu.requested import multiplied
from tests.runtime.operands import chained, ran

Array = Any


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


def dense(lines: int, length: int) -> Stack:
    return Stack(lines, length, lines * length, length, 1, True)


@pytest.mark.parametrize(
    ("x", "order", "wide"),
    [
        (dense(16, 16), "along", True),
        (dense(5, 7), "along", True),
        (dense(1, 7), "along", True),
        (dense(16, 16)._replace(aligned=False), "along", False),
        (dense(16, 16)._replace(product=0), "along", True),
        (dense(5, 7)._replace(product=0), "along", False),
        (dense(16, 16)._replace(product=301), "along", False),
        (dense(5, 7)._replace(product=36), "along", False),
        (dense(16, 16)._replace(line=20, product=400), "along", True),
        (dense(16, 16)._replace(line=18), "along", False),
        (dense(16, 16)._replace(place=-1), "along", False),
        (dense(16, 16)._replace(line=1, place=16), "across", True),
        (dense(5, 7)._replace(line=1, place=6), "across", False),
        (dense(16, 1)._replace(line=1, place=99, product=20), "across", True),
        (dense(16, 16)._replace(line=1600, place=100, product=1), "stack", False),
        (dense(16, 16)._replace(line=32, place=2), "along", False),
        (Stack(1, 1, 0, 5, 5, True), "along", False),
    ],
    ids=str,
)
def test_how_operands_are_read(x: Stack, order: Any, wide: bool) -> None:
    assert memory_of(x) == Memory(order, wide)


def test_one_matrix_for_all_has_no_stride() -> None:
    a = Form("float32", 1000, 16, 16, 256, 16, 1, True)
    b = Form("float32", 1, 16, 16, 999, 1, 16, True)
    _, grid, _, words = plan(a, b, 1000, (1024, 64, 4), True)
    assert (grid, words) == (125, (1000, 256, 16, 1, 0, 16, 1, 256, 16, 1))


def emulated(a: Any, b: Any, **given: Any) -> Any:
    """By the kernel, however few they are."""
    value, scheme, _ = ran(partial(matmul, scheme="faithful", backend="cuda"), a, b, **given)
    assert scheme == "faithful"
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
