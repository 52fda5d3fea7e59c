"""Products of GPU arrays, on a GPU that is not there: stacks, memory, kernels that do not compile,
graphs, and rows that slices do not hold.
"""

from dataclasses import replace
from itertools import permutations
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mixpert_py.errors import DeviceError
from mixpert_py.runtime import plan_guard, worth
from mixpert_py.runtime.gpu import device
from mixpert_py.runtime.gpu import multiply as gpu_backend
from mixpert_py.runtime.gpu.native import VendorGemm, gemm_of
from mixpert_py.runtime.gpu.stacks import batches, is_one_stack, matrices, stack_sizes
from mixpert_py.runtime.plan_guard import whole_error
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.request import Product
from mixpert_py.runtime.schemes.floats import FP16X3
from tests.runtime.gpu.fake import (
    CUDADriverError,
    FakeGpu,
    Stream,
    ndarray,
    normal,
)
from tests.runtime.gpu.fake import gpu as gpu_module
from tests.runtime.gpu.fake.product import slices_product
from tests.runtime.gpu.requested import multiplied


def made(*args: Any, **given: Any) -> Product:
    result = multiplied(*args, **given)
    assert isinstance(result, Product)
    return result


@pytest.mark.parametrize("shapes", [((700, 40), (40, 300)), ((5, 300, 40), (40, 260))], ids=str)
@pytest.mark.parametrize("scheme", ["int8x6", "mixpert-IV"])
def test_short_memory_makes_parts_of_the_same_product(
    gpu: FakeGpu, shapes: Any, scheme: str
) -> None:
    a, b = normal(*shapes[0]), normal(*shapes[1], seed=1)
    whole = made(a, b, scheme).value.get()
    gpu.launches.clear()
    gpu.memory = 200_000
    np.testing.assert_array_equal(made(a, b, scheme).value.get(), whole)
    assert len(gpu.launches) > 2


LOADED = DeviceError("kernel 'gemm' was not loaded")  # as `compile.cuda_kernel` passes this on
LOADED.__cause__ = CUDADriverError(2)
NO_SUCH = "no such instruction"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (DeviceError(NO_SUCH), Reason.KERNEL),
        (CUDADriverError(218, NO_SUCH), Reason.KERNEL),
        (ImportError(NO_SUCH), Reason.KERNEL),
        (CUDADriverError(2), Reason.MEMORY),
        (LOADED, Reason.MEMORY),
    ],
    ids=["NVRTC", "driver", "no Numba", "launch", "load"],
)
def test_a_kernel_is_asked_for_again_only_where_it_found_no_memory(
    gpu: FakeGpu, error: Any, reason: Reason
) -> None:
    gpu.refuses, is_full = error, reason is Reason.MEMORY
    a = normal(6, 6)
    assert multiplied(a, a, "int8x6") is reason
    assert gpu.freed == is_full  # what the pool keeps is the driver's to have
    gpu.refuses = None
    again = multiplied(a, a, "int8x6")
    assert isinstance(again, Product) if is_full else again is Reason.KERNEL
    refused = gpu_backend.refusals()
    assert not refused if is_full else NO_SUCH in refused[0, "int8x6"]
    assert isinstance(multiplied(a, a, "int8x8"), Product)


@pytest.mark.parametrize("scheme", ["int8x6", "float64"])
@pytest.mark.parametrize("kind", ["result", "out", "strided out", "vector"])
@pytest.mark.usefixtures("gpu")
def test_a_captured_product_keeps_what_its_graph_uses(
    monkeypatch: pytest.MonkeyPatch, scheme: str, kind: str
) -> None:
    kept: list[Any] = []

    def finalize(owner: Any, function: Any, used: Any) -> Any:
        kept.append((owner, list(used)))
        return SimpleNamespace()

    monkeypatch.setattr("mixpert_py.runtime.gpu.slices.weakref.finalize", finalize)
    a = normal(6, 6)
    out: Any = {
        "result": None,
        "out": normal(6, 6),
        "strided out": ndarray(np.zeros((6, 12), np.float32)[:, ::2]),
        "vector": ndarray(np.zeros(6, np.float32)),
    }[kind]
    b = a[0] if kind == "vector" else a
    with Stream(ptr=99) as stream:
        made(a, b, scheme, out=out)
        assert not kept
        stream.capturing = True
        value = made(a, b, scheme, out=out).value
    ((owner, used),) = kept
    assert owner is (value.base if value.base is not None else value)
    packs = [x for x in used if isinstance(x, tuple)]
    assert len(packs) == (scheme == "int8x6")
    assert len(used) - len(packs) == (
        3 if scheme == "float64" else kind in ("strided out", "vector")
    )


def wide(*shape: int, seed: int = 0, rows: int = 0) -> ndarray:
    """Normal, and a first element that is far larger, in so many rows."""
    x = normal(*shape, seed=seed).x
    x[:rows, 0] = 2.0**60
    return ndarray(x)


def is_faithful(a: ndarray, b: ndarray, value: Any) -> bool:
    """Whether a product keeps the contract of `faithful`."""
    x, y = a.x.astype(float), b.x.astype(float)
    allowed = (12 + a.shape[1]) * 2.0**-24 * (np.abs(x) @ np.abs(y))
    return bool((np.abs(value - x @ y) <= allowed).all())


@pytest.mark.parametrize("k", [16, 128])
@pytest.mark.parametrize("rows", [0, 1, 40])
@pytest.mark.parametrize("traced", [False, True])
def test_many_outliers_are_made_by_the_wider_scheme(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, k: int, rows: int, traced: bool
) -> None:
    monkeypatch.setattr(worth, "MIN_GUARDED", 1)
    schemes = []
    monkeypatch.setattr(gpu_module, "slices_product", seen(schemes))
    a, b = wide(40, k, rows=rows), normal(k, 40, seed=1)
    found = made(a, b, "faithful", traced=traced)
    assert is_faithful(a, b, found.value.get())
    widened = rows == 40
    assert schemes == ["bf16x6" if widened else "fp16x3"]
    assert found.outliers() == (0 if widened or not traced else rows / 80)


@pytest.mark.parametrize("step", ["pack", "gemm"])
def test_a_wider_scheme_that_does_not_compile_is_not_asked_for_again(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    monkeypatch.setattr(worth, "MIN_GUARDED", 1)
    monkeypatch.setattr(device, "_states", {})
    tried = []

    def refused(*given: Any, **named: Any) -> Any:
        scheme = given[2]
        if scheme == FP16X3.wider:
            tried.append(scheme)
            raise DeviceError("kernel 'gemm' does not compile")
        return getattr(gpu, step)(*given, **named)

    kernels = replace(gpu_backend.cuda_kernels(), **{step: refused})
    monkeypatch.setattr(gpu_backend, "cuda_kernels", lambda: kernels)
    a, b = wide(40, 128, rows=40), normal(128, 40, seed=1)
    for _ in range(2):
        assert is_faithful(a, b, made(a, b, "faithful").value.get())
    assert len(tried) == 1


def seen(schemes: list[str]) -> Any:
    def product(a: Any, b: Any, scheme: Any, *given: Any) -> Any:
        schemes.append(scheme.name)
        return slices_product(a, b, scheme, *given)

    return product


STACKS = [
    ((), (), 1),
    ((4,), (), 1),
    ((), (4,), 1),
    ((4,), (4,), 1),
    ((1,), (4,), 1),
    ((2, 3), (2, 3), 1),
    ((2, 3), (3,), 2),
    ((2, 1), (3,), 2),
    ((2, 3), (2, 1), 2),
    ((2, 1, 4), (3, 1), 6),
    ((1, 1), (1,), 1),
]


@pytest.mark.parametrize(("a", "b", "launches"), STACKS)
def test_operands_meet_as_numpy_broadcasts_them(
    a: tuple[int, ...], b: tuple[int, ...], launches: int
) -> None:
    c = np.broadcast_shapes(a, b)
    of_a, of_b = (
        np.broadcast_to(np.arange(np.prod(s, dtype=int)).reshape(s), c).ravel() for s in (a, b)
    )
    found = batches(a, b, c)
    assert len(found) == launches
    for some in found:
        for i in range(some.count):
            assert of_a[some.c + i] == some.a + (0 if some.shares_a else i)
            assert of_b[some.c + i] == some.b + (0 if some.shares_b else i)
    assert sorted(some.c + i for some in found for i in range(some.count)) == [*range(of_a.size)]


def test_a_stack_whose_axes_step_as_one_is_taken_without_a_copy() -> None:
    whole = np.zeros((4, 3, 2, 6, 5))
    found = set()
    for axes in permutations(range(5)):
        turned = whole.transpose(axes)
        repeated = np.broadcast_to(turned[:, :1], (turned.shape[0], 7, *turned.shape[2:]))
        for x in (turned, turned[1:2], turned[:, :2], turned[::2], turned[..., 1:], repeated):
            assert is_one_stack(x) == np.shares_memory(matrices(x), whole)
            found.add(is_one_stack(x))
    assert found == {True, False}


def test_a_stack_that_repeats_itself_is_taken_once() -> None:
    x = np.arange(24.0).reshape(2, 1, 3, 4)
    wide = np.broadcast_to(x, (2, 5, 3, 4))
    assert stack_sizes(wide) == (2, 1)
    assert matrices(wide).shape == (2, 3, 4)
    assert np.shares_memory(matrices(wide), x)
    np.testing.assert_array_equal(matrices(wide), x[:, 0])


def operands(dtype: str) -> tuple[Any, Any]:
    a, b = np.random.default_rng(2).standard_normal((2, 96, 96)).astype(dtype)
    return a, b


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("dtype", ["f", "d", "F", "D"])
def test_it_is_what_the_host_finds(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_guard, "PART", 1000)  # of ten rows
    a, b = operands(dtype)
    product = a @ b * np.asarray(1 + 1e-4, dtype)
    found = whole_error(ndarray(a), ndarray(b), ndarray(product), turn=3)
    assert found == pytest.approx(1e-4, rel=1e-2)
    assert found == pytest.approx(plan_guard.whole_error(a, b, product, 3), rel=1e-9)


Array = np.ndarray[Any, Any]


def by_columns(memory: Array, rows: int, columns: int, leading: int) -> Array:
    """The matrix that cuBLAS sees in memory: columns `leading` elements apart."""
    last = leading * (columns - 1) + rows
    assert last <= memory.size
    return np.array([memory[j * leading : j * leading + rows] for j in range(columns)]).T


def called(gemm: VendorGemm, a: Array, b: Array) -> Array:
    """What cuBLAS makes of a call, as CuPy's rows."""
    n, m, k = gemm.n, gemm.m, gemm.k
    left, right = a.ravel(order="K"), b.ravel(order="K")
    x = by_columns(right, *((k, n) if gemm.transposes_b else (n, k)), gemm.b_leading)
    y = by_columns(left, *((m, k) if gemm.transposes_a else (k, m)), gemm.a_leading)
    return ((x.T if gemm.transposes_b else x) @ (y.T if gemm.transposes_a else y)).T


@pytest.mark.parametrize("shape", [(2, 3, 4), (5, 2, 2), (7, 64, 3)])
@pytest.mark.parametrize("orders", ["CC", "CF", "FC", "FF"])
@pytest.mark.parametrize("kind", ["matrices", "row", "column"])
def test_the_call_is_the_product(shape: tuple[int, int, int], orders: str, kind: str) -> None:
    m, k, n = shape
    rng = np.random.default_rng(0)
    a = np.asarray(rng.integers(-9, 9, (m, k)), "d", order=orders[0])
    b = np.asarray(rng.integers(-9, 9, (k, n)), "d", order=orders[1])
    a, b = a[0].copy() if kind == "row" else a, b[:, 0].copy() if kind == "column" else b
    gemm = gemm_of(a.shape, a.strides, b.shape, b.strides, 8)
    assert gemm is not None
    wanted = a @ b
    assert (gemm.shape, gemm.matrices) == (wanted.shape, 0)
    np.testing.assert_array_equal(called(gemm, a, b).reshape(wanted.shape), wanted)


def test_the_call_of_stacks_is_that_of_each_matrix() -> None:
    a, b = np.arange(48.0).reshape(2, 2, 4, 3), np.arange(60.0).reshape(2, 2, 3, 5)
    gemm = gemm_of(a.shape, a.strides, b.shape, b.strides, 8)
    assert gemm is not None
    assert (gemm.shape, gemm.matrices) == ((2, 2, 4, 5), 4)
    np.testing.assert_array_equal(called(gemm, a[0, 1], b[0, 1]), a[0, 1] @ b[0, 1])


X = np.zeros((6, 6), "f")


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (X[0], X[0]),
        (X[:, 0], X),
        (X, X[:, 0]),
        (X[:1], X),
        (X, X[:, :1]),
        (X[:, :1], X[:1]),
        (X[:, :4], X[:4]),
        (X, X[:5]),
        (X[::2], X),
        (X, X[::-1]),
        (X[:0], X),
        (X[None], X),
        (X[None], X.T[None]),
        (np.zeros((6, 6, 6), "f"), X[0]),
        (X[0], np.zeros((6, 6, 6), "f")),
        (X[None], X[0, 0]),
    ],
    ids=str,
)
def test_what_cupy_has_to_make_as_a_whole(a: Array, b: Array) -> None:
    assert gemm_of(a.shape, a.strides, b.shape, b.strides, 4) is None
