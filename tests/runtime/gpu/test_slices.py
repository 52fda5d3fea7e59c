"""The real thing: products on a GPU against FP64, whatever stream, thread, graph or process."""

import multiprocessing
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import mixpert_py
from mixpert_py.runtime import worth
from mixpert_py.runtime.api import matmul
from mixpert_py.runtime.context import Context, current, use
from mixpert_py.runtime.gpu import multiply as gpu_backend
from mixpert_py.runtime.gpu import prepared
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.request import Product
from mixpert_py.runtime.schemes import get
from mixpert_py.runtime.tracing.trace import Trace
from tests.runtime.emulations import EMULATIONS
from tests.runtime.gpu.fake import pays_from
from tests.runtime.gpu.fake.gpu import Unprepared
from tests.runtime.gpu.requested import multiplied

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy", reason="CuPy is not installed")


@pytest.fixture(autouse=True)
def everything_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """No product is too small here."""
    figures = pays_from(1, host=1e6)
    monkeypatch.setattr(worth, "figures", lambda name: figures)


def normal(*shape: int, dtype: Any = "float32", seed: int = 0) -> Any:
    return cupy.random.default_rng(seed).standard_normal(shape, dtype=dtype)


def error(value: Any, a: Any, b: Any) -> float:
    exact = cupy.matmul(a.astype("float64"), b.astype("float64"))
    return float(cupy.linalg.norm(value - exact) / cupy.linalg.norm(exact))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scheme", [*EMULATIONS, "faithful"])
def test_every_scheme_runs(scheme: str, dtype: str) -> None:
    a, b = normal(300, 1024, dtype=dtype), normal(1024, 200, dtype=dtype, seed=1)
    trace = Trace()
    with use(Context(scheme=scheme, trace=trace)):
        value = matmul(a, b, site="s")
    assert trace.sites["s"].schemes == {scheme: 1}, trace.sites["s"].reasons
    assert value.dtype == dtype
    # Tensor cores truncate what they add; the reference, which made these figures, rounds.
    assert error(value, a, b) < 2 * (get(scheme).error or 3e-7)


@pytest.mark.parametrize(
    "shapes",
    [
        ((5, 6), (6, 4)),
        ((1, 1), (1, 1)),
        ((129, 65), (65, 257)),
        ((6,), (6, 4)),
        ((5, 6), (6,)),
        ((6,), (6,)),
        ((3, 50, 60), (60, 40)),
        ((50, 60), (3, 60, 40)),
        ((2, 1, 50, 60), (3, 60, 40)),
        ((1000, 32, 48), (1000, 48, 16)),
        ((0, 6), (6, 4)),
        ((5, 0), (0, 4)),
        ((0, 5, 6), (6, 4)),
    ],
    ids=str,
)
@pytest.mark.parametrize("scheme", ["int8x8", "fp16x3"])
def test_shapes(shapes: Any, scheme: str) -> None:
    a, b = normal(*shapes[0]), normal(*shapes[1], seed=1)
    wanted = cupy.matmul(a, b)
    value = matmul(a, b, scheme=scheme, backend="cuda")
    assert (value.shape, value.dtype) == (wanted.shape, wanted.dtype)
    cupy.testing.assert_allclose(value, wanted, atol=3e-5)


@pytest.mark.parametrize("kind", ["C", "wide rows", "Fortran", "every other", "an operand"])
def test_out(kind: str) -> None:
    a, b = normal(64, 64), normal(64, 64, seed=1)
    wanted = matmul(a, b, scheme="int8x6")
    outs = {
        "C": cupy.empty((64, 64), "f"),
        "wide rows": cupy.empty((64, 99), "f")[:, 3:67],
        "Fortran": cupy.empty((64, 64), "f", order="F"),
        "every other": cupy.empty((64, 128), "f")[:, ::2],
        "an operand": a,
    }
    out = outs[kind]
    assert matmul(a, b, scheme="int8x6", out=out, native=cupy.matmul) is out
    cupy.testing.assert_array_equal(out, wanted)


def test_special_values_reach_what_they_reach() -> None:
    a, b = normal(300, 400), normal(400, 200, seed=1)
    a[7, 3], a[9, 5], b[11, 13], b[5, 17] = np.nan, np.inf, -np.inf, 0
    value, wanted = matmul(a, b, scheme="int8x6"), cupy.matmul(a, b)
    cupy.testing.assert_array_equal(cupy.isnan(value), cupy.isnan(wanted))
    infinite = cupy.isinf(wanted)
    cupy.testing.assert_array_equal(value[infinite], wanted[infinite])
    finite = cupy.isfinite(wanted)
    cupy.testing.assert_allclose(value[finite], wanted[finite], atol=1e-3)


@pytest.mark.parametrize("scheme", ["int8x6", "int8x10", "fp16x3"])
def test_parts_make_the_same_product(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = normal(700, 500), normal(500, 600, seed=1)
    whole = matmul(a, b, scheme=scheme)
    kernels, calls = gpu_backend.cuda_kernels(), []

    def short(left: Any, right: Any, *args: Any, **given: Any) -> Any:
        calls.append((left.rows, right.rows))
        if max(left.rows, right.rows) > 256:
            raise cupy.cuda.memory.OutOfMemoryError(1, 1)
        return kernels.pack(left, right, *args, **given)

    limited = replace(kernels, pack=short)
    monkeypatch.setattr(gpu_backend, "cuda_kernels", lambda: limited)
    monkeypatch.setattr(prepared, "prepare", lambda *_, **__: Unprepared())
    with use(replace(current())):  # which knows nothing of the signature
        cupy.testing.assert_array_equal(matmul(a, b, scheme=scheme), whole)
    assert len(calls) > 4


def test_no_memory_falls_back_and_then_says_so() -> None:
    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()  # `a` is to be no part of a larger one
    a = normal(2048, 2048)
    limit = pool.get_limit()
    trace = Trace()

    def allow(more: int) -> None:
        """The pool is to have so many bytes more than are in use, and none that it has kept."""
        pool.free_all_blocks()
        pool.set_limit(size=pool.total_bytes() + more)

    try:
        allow(a.nbytes + (1 << 20))
        with use(Context(scheme="int8x6", trace=trace)):
            value = matmul(a, a, site="s")
        allow(0)
        with use(Context(scheme="int8x6", trace=trace)), pytest.raises(MemoryError):
            matmul(a, a, site="t")
    finally:
        pool.set_limit(size=limit)
    assert error(value, a, a) < 5e-6
    assert set(trace.sites["s"].schemes) <= {"int8x6", "native"}


def test_outliers_are_in_the_trace() -> None:
    a, b = normal(8, 300), normal(300, 8, seed=1)
    a[3] = 110 / 256 / 127
    a[3, 0] = 1
    trace = Trace()
    with use(Context(scheme="int8x6", trace=trace)):
        matmul(a, b, site="s")
    assert trace.sites["s"].outliers == 1 / 16


def test_it_runs_on_the_callers_stream() -> None:
    a = normal(1024, 1024)
    wanted = matmul(a, a, scheme="int8x6")
    cupy.cuda.Device().synchronize()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        later = cupy.empty_like(a)
        for _ in range(20):
            later[...] = a  # what is multiplied is there only when the stream has come so far
        value = matmul(later, later, scheme="int8x6")
    stream.synchronize()
    cupy.testing.assert_array_equal(value, wanted)


@pytest.mark.parametrize("given", ["result", "out"])
@pytest.mark.parametrize("k", [700, 4096], ids=["tiles", "parts of tiles"])
def test_a_product_is_captured_in_a_graph(given: str, k: int) -> None:
    a, b, out = normal(512, k), normal(k, 300, seed=1), cupy.empty((512, 300), "f")
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        matmul(a, b, scheme="int8x6")  # compiles
        stream.begin_capture()
        if given == "out":
            value = matmul(a, b, scheme="int8x6", out=out, native=cupy.matmul)
        else:
            value = matmul(a, b, scheme="int8x6")
        graph = stream.end_capture()
        garbage = [cupy.full((1 << 18,), 7.0) for _ in range(20)]  # takes memory that is free
        for seed in range(3):
            a[...] = normal(512, k, seed=10 + seed)
            value[...] = 0
            graph.launch(stream)
            stream.synchronize()
            cupy.testing.assert_array_equal(value, matmul(a, b, scheme="int8x6"))
    assert len(garbage) == 20


def test_two_runs_give_the_same_bits() -> None:
    a, b = normal(777, 3333), normal(3333, 555, seed=1)
    for scheme in ("int8x6", "fp16x3", "mixpert-IV"):
        first = matmul(a, b, scheme=scheme)
        for _ in range(3):
            cupy.testing.assert_array_equal(matmul(a, b, scheme=scheme), first)


def test_threads_multiply_at_the_same_time() -> None:
    a, b = normal(500, 600), normal(600, 400, seed=1)
    wanted = {scheme: matmul(a, b, scheme=scheme) for scheme in ("int8x6", "int8x10", "fp16x3")}
    cupy.cuda.Device().synchronize()
    wrong: list[str] = []

    def work(scheme: str) -> None:
        with cupy.cuda.Stream(non_blocking=True) as stream:
            for _ in range(30):
                value = matmul(a, b, scheme=scheme)
            stream.synchronize()
            if not bool((value == wanted[scheme]).all()):
                wrong.append(scheme)

    threads = [threading.Thread(target=work, args=(scheme,)) for scheme in [*wanted] * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_packed_operand_is_multiplied_as_the_array() -> None:
    a, b = normal(300, 2048), normal(2048, 500, seed=1)
    for scheme in ("int8x6", "int8x10", "fp16x3", "mixpert-IV"):
        with use(Context(backend="cuda")):  # also where emulation does not pay
            wanted = matmul(a, b, scheme=scheme)
            cupy.testing.assert_array_equal(matmul(a, mixpert_py.pack(b, scheme)), wanted)
            left = mixpert_py.pack(a, scheme, side="left")
            cupy.testing.assert_array_equal(matmul(left, b), wanted)


@pytest.mark.parametrize("shape", [(3000, 1500, 2500), (100, 100, 100)], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numpy_arrays_are_moved(shape: tuple[int, int, int], dtype: str) -> None:
    m, k, n = shape
    a, b = normal(m, k, dtype=dtype), normal(k, n, dtype=dtype, seed=1)
    value = matmul(a.get(), b.get(), scheme="int8x6", backend="cuda")
    assert type(value) is np.ndarray
    np.testing.assert_array_equal(value, matmul(a, b, scheme="int8x6").get())


def child(pipe: Any) -> None:
    a = np.random.default_rng(0).standard_normal((300, 300)).astype("f")
    pipe.send(matmul(a, a, scheme="int8x6", backend="cuda"))


def test_a_spawned_child_multiplies() -> None:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=child, args=(theirs,))
    process.start()
    assert ours.poll(120)
    a = np.random.default_rng(0).standard_normal((300, 300)).astype("f")
    np.testing.assert_array_equal(ours.recv(), matmul(a, a, scheme="int8x6", backend="cuda"))
    process.join(60)


def forked(pipe: Any) -> None:
    trace = Trace()
    a = np.eye(2000, dtype="f")
    with use(Context(scheme="int8x6", trace=trace)):
        result = matmul(a, a, site="s")
    pipe.send((bool((result == a).all()), list(trace.sites["s"].reasons)))


def test_a_child_forked_too_late_multiplies_natively() -> None:
    matmul(normal(8, 8), normal(8, 8), scheme="int8x6", backend="cuda")
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=forked, args=(theirs,))
    process.start()
    assert ours.poll(120)
    assert ours.recv() == (True, [Reason.FORKED])
    process.join(60)


def test_nothing_is_refused() -> None:
    a = normal(64, 64)
    assert isinstance(multiplied(a, a, "int8x6"), Product)
    assert gpu_backend.refusals() == {}
