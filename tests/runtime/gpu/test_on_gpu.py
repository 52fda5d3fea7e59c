"""Products of CuPy, PyTorch and NumPy on a GPU: accurate, and as the program's own, whatever the
stream, graph, thread or process.
"""

import itertools
import multiprocessing
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime import worth
from mixpert_py.runtime.api import dot, dot_method, matmul
from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.gpu import device, staging, transfer
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.tracing.trace import Trace
from tests.mixpert_py.command import ROOT
from tests.runtime.emulations import EMULATIONS
from tests.runtime.gpu.fake import pays_from
from tests.runtime.operands import ran

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy", reason="CuPy is not installed")

EDGE = 2048  # large enough to pay on any device
UNIT = 2.0**-24


@pytest.fixture
def everything_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """No product is too small here."""
    figures = pays_from(1, host=1e6)
    monkeypatch.setattr(worth, "figures", lambda name: figures)


def normal(*shape: int, dtype: Any = "f", seed: int = 0) -> Any:
    draw = cupy.random.default_rng(seed)
    x = draw.standard_normal(shape, dtype="float64")
    if np.dtype(dtype).kind == "c":
        x = x + 1j * draw.standard_normal(shape, dtype="float64")
    return x.astype(dtype)


def wide(x: Any) -> Any:
    return x.astype("D" if x.dtype.kind == "c" else "d")


def exact(a: Any, b: Any) -> Any:
    return cupy.matmul(wide(a), wide(b))


def error(value: Any, a: Any, b: Any) -> float:
    wanted = exact(a, b)
    return float(cupy.linalg.norm(value - wanted) / cupy.linalg.norm(wanted))


@pytest.mark.parametrize("positive", [False, True], ids=["normal", "uniform"])
@pytest.mark.parametrize("dtype", ["f", "F"])
@pytest.mark.parametrize("edge", [1024, 4096])
def test_faithful_is_no_worse_than_cublas(edge: int, dtype: str, positive: bool) -> None:
    a, b = normal(edge, edge, dtype=dtype), normal(edge, edge, dtype=dtype, seed=1)
    if positive:
        a, b = (abs(x) if dtype == "f" else abs(x.real) + 1j * abs(x.imag) for x in (a, b))
    value = matmul(a, b, scheme="faithful", backend="cuda")
    assert error(value, a, b) <= error(cupy.matmul(a, b), a, b)


@pytest.mark.parametrize("pair", ["FF", "DD", "Ff", "fF", "Df"])
@pytest.mark.parametrize("scheme", ["faithful", "int8x8", "int8x10", "fp16x3", "mixpert-full"])
def test_each_part_is_as_accurate_as_a_real_product(scheme: str, pair: str) -> None:
    """Although the imaginary parts of A are a millionth of the real ones."""
    m, k, n = 300, 900, 200
    a, b = normal(m, k, dtype=pair[0]), normal(k, n, dtype=pair[1], seed=1)
    if pair[0] in "FD":
        a.imag *= 1e-6
    value = matmul(a, b, scheme=scheme, backend="cuda")
    assert value.dtype == np.result_type(*pair)
    off = value - exact(a, b)
    (ar, ai), (br, bi) = (
        [cupy.linalg.norm(part, axis=axis) for part in (wide(x).real, wide(x).imag)]
        for x, axis in ((a, 1), (b, 0))
    )
    outer, limit = cupy.outer, (k + 2) * UNIT
    assert bool((abs(off.real) <= limit * (outer(ar, br) + outer(ai, bi))).all())
    assert bool((abs(off.imag) <= limit * (outer(ar, bi) + outer(ai, br))).all())


SPECIALS = [0.0, 1.5, np.inf, -np.inf, np.nan]
VALUES = [complex(x, y) for x, y in itertools.product(SPECIALS, SPECIALS)]


@pytest.mark.parametrize("scheme", ["int8x6", "fp16x3", "mixpert-IV"])
def test_complex_nan_and_inf_are_where_the_formulas_put_them(scheme: str) -> None:
    """One special value in each of many rows of A, one in a column of B."""
    for other in VALUES[::6]:
        a, b = normal(2 * len(VALUES), 300, dtype="F"), normal(300, 140, dtype="F", seed=1)
        a[: len(VALUES), 17] = cupy.asarray(np.array(VALUES, "F"))
        b[29, 11] = other
        b[17, 3] = 0
        value = matmul(a, b, scheme=scheme, backend="cuda").get()
        x, y = a.get(), b.get()
        with np.errstate(all="ignore"):
            native = x @ y
            real = x.real @ y.real - x.imag @ y.imag
            imaginary = x.real @ y.imag + x.imag @ y.real
        np.testing.assert_array_equal(np.isfinite(value), np.isfinite(native))
        for part, wanted in ((value.real, real), (value.imag, imaginary)):
            np.testing.assert_array_equal(np.isnan(part), np.isnan(wanted))
            np.testing.assert_allclose(part, wanted, atol=2e-3)


def test_a_mix_of_numpy_and_cupy_fails_as_it_did() -> None:
    a = normal(600, 600)
    with pytest.raises(TypeError) as native:
        np.eye(600) @ a
    for scheme in (None, "int8x6"):
        with pytest.raises(TypeError) as ours:
            matmul(np.eye(600), a, scheme=scheme)
        assert str(ours.value) == str(native.value)


def test_tf32_that_was_asked_for_stays() -> None:
    linalg = cupy._core._routines_linalg
    before = linalg.get_compute_type("f")
    a, small = normal(EDGE, EDGE), normal(256, 256)
    faithful, full = (matmul(x, x, site="s").get() for x in (a, small))
    linalg.set_compute_type("f", linalg.COMPUTE_TYPE_TF32)
    try:
        for x in (a, small):
            assert matmul(x, x, site="s").get().tobytes() == (x @ x).get().tobytes()
        assert matmul(small, small, site="s").get().tobytes() != full.tobytes()
    finally:
        linalg.set_compute_type("f", before)
    assert matmul(a, a, site="s").get().tobytes() == faithful.tobytes()


@pytest.mark.parametrize("dtype", "fdFD")
@pytest.mark.parametrize("shape", [(2, 2, 2), (100, 33, 57), (300, 700, 2)])
def test_small_products_have_the_bits_of_cupys_operator(shape: Any, dtype: str) -> None:
    m, k, n = shape
    for orders in ("CC", "CF", "FC", "FF"):
        a = cupy.asarray(normal(m, k, dtype=dtype), order=orders[0])
        b = cupy.asarray(normal(k, n, dtype=dtype, seed=1), order=orders[1])
        for _ in range(3):
            made = matmul(a, b, site="s")
            assert made.flags.c_contiguous
            assert made.get().tobytes() == (a @ b).get().tobytes()


@pytest.mark.parametrize("dtype", "fdFD")
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((40, 64), (64,)),
        ((64,), (64, 40)),
        ((9, 20, 30), (9, 30, 10)),
        ((2, 9, 20, 30), (2, 9, 30, 1)),
        ((9, 20, 30), (30, 10)),
        ((9, 20, 30), (30,)),
        ((20,), (9, 20, 30)),
        ((64,), (64,)),
    ],
    ids=str,
)
def test_native_stacks_and_vectors_have_cupys_bits(left: Any, right: Any, dtype: str) -> None:
    a, b = normal(*left, dtype=dtype), normal(*right, dtype=dtype, seed=1)
    wanted = a @ b
    out = cupy.empty_like(wanted)
    for _ in range(3):
        for made in (
            matmul(a, b, site="s"),
            matmul(a, b, site="f", native=cupy.matmul),
            matmul(a, b, site="o", native=cupy.matmul, out=out),
        ):
            assert made.flags.c_contiguous
            assert made.get().tobytes() == wanted.get().tobytes()
    if b.shape == wanted.shape:
        assert (matmul(a, b, site="o", native=cupy.matmul, out=b) == wanted).all()


@pytest.mark.parametrize("dtype", ["f", "F"])
def test_no_memory_falls_back_and_then_says_so(dtype: str) -> None:
    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()  # `a` is to be no part of a larger one
    a = normal(EDGE, EDGE, dtype=dtype)
    limit = pool.get_limit()

    def allow(more: int) -> None:
        """The pool is to have so many bytes more than are in use, and none that it has kept."""
        pool.free_all_blocks()
        pool.set_limit(size=pool.total_bytes() + more)

    try:
        allow(a.nbytes + (1 << 20))
        value, scheme, reason = ran(matmul, a, a, scheme="int8x6")
        allow(0)
        with pytest.raises(MemoryError):
            ran(matmul, a, a, scheme="int8x6")
    finally:
        pool.set_limit(size=limit)
    assert (scheme, reason) in (("int8x6", None), ("native", Reason.MEMORY))
    assert error(value, a, a) < 1e-5


@pytest.mark.usefixtures("everything_pays")
def test_it_runs_on_the_callers_stream() -> None:
    a = normal(1024, 1024)
    wanted = matmul(a, a, scheme="int8x6")
    cupy.cuda.Device().synchronize()
    with cupy.cuda.Stream(non_blocking=True) as stream:
        later = cupy.empty_like(a)
        for _ in range(20):
            later[...] = a  # what is multiplied is there only when the stream has come so far
        value = matmul(later, later, scheme="int8x6")
    stream.synchronize()
    cupy.testing.assert_array_equal(value, wanted)


@pytest.mark.usefixtures("everything_pays")
@pytest.mark.parametrize("has_trace", [False, True])
@pytest.mark.parametrize("dtype", ["f", "F"])
@pytest.mark.parametrize("given", ["result", "out"])
@pytest.mark.parametrize("k", [700, 4096], ids=["tiles", "parts of tiles"])
def test_a_product_is_captured_in_a_graph(given: str, k: int, dtype: str, has_trace: bool) -> None:
    a, b = normal(512, k, dtype=dtype), normal(k, 300, dtype=dtype, seed=1)
    out = {"out": cupy.empty((512, 300), dtype), "native": cupy.matmul} if given == "out" else {}
    trace = Trace(()) if has_trace else None
    with (
        cupy.cuda.Stream(non_blocking=True) as stream,
        use(Context(scheme="int8x6", backend="cuda", trace=trace)),
    ):
        for site in ("warm", "captured")[: 1 if has_trace else 2]:
            matmul(a, b, site=site)  # compiles, and prepares launches
        stream.begin_capture()
        value = matmul(a, b, site="captured", **out)
        graph = stream.end_capture()
        garbage = [cupy.full((1 << 18,), 7.0) for _ in range(20)]  # takes memory that is free
        for seed in range(3):
            a[...] = normal(512, k, dtype=dtype, seed=10 + seed)
            value[...] = 0
            graph.launch(stream)
            stream.synchronize()
            cupy.testing.assert_array_equal(value, matmul(a, b))
    assert len(garbage) == 20
    if trace is not None:  # that would read from the device, and end the capture
        assert (trace.sites["captured"].sampled, trace.sites["warm"].sampled) == (0, 1)


@pytest.mark.parametrize("dtype", "fdFD")
def test_native_products_by_functions_have_cupys_bits(dtype: str) -> None:
    a, b = normal(64, 48, dtype=dtype), normal(48, 72, dtype=dtype, seed=1)
    wanted, out = cupy.dot(a, b), cupy.empty((64, 72), dtype)
    for _ in range(3):
        for value in (
            matmul(a, b, site="f", native=cupy.matmul),
            dot(a, b, site="f", native=cupy.dot),
            dot_method(a, b, site="f"),
            matmul(a, b, site="f", native=cupy.matmul, out=out),
        ):
            cupy.testing.assert_array_equal(value, wanted)
    assert (
        dot(a, b, out, site="f", native=cupy.dot) is out
    )  # CuPy 14.2 takes none by position in matmul


class Theirs:
    """An operand that makes the product itself, as a sparse matrix does."""

    __array_priority__ = 1000.0
    ndim, shape, dtype = 2, (48, 72), np.dtype("f")

    def __rmatmul__(self, other: object) -> str:
        return "theirs"


def test_other_operands_make_their_own_products() -> None:
    a = normal(64, 48)
    for _ in range(3):
        matmul(a, normal(48, 72), site="t")
        assert matmul(a, Theirs(), site="t") == "theirs"


def test_an_out_has_the_bits_of_a_product_by_default() -> None:
    a, b = normal(EDGE, EDGE), normal(EDGE, EDGE, seed=1)
    wanted = matmul(a, b, site="o").copy()
    for out in (cupy.empty_like(a), a):
        for _ in range(2 if out is not a else 1):
            assert matmul(a, b, site="o", native=cupy.matmul, out=out) is out
            cupy.testing.assert_array_equal(out, wanted)


ORDERS: dict[str, Any] = {
    "C": lambda x: x,
    "F": np.asfortranarray,
    "reversed": lambda x: x[::-1, ::-1].copy()[::-1, ::-1],
    "every second": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
}


@pytest.mark.parametrize("dtype", ["f", "d", "F"])
@pytest.mark.parametrize("right", ORDERS)
@pytest.mark.parametrize("left", ORDERS)
def test_numpy_arrays_are_moved(
    left: str, right: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In any layout, into any block, by threads at once, in memory that streams pass on."""
    monkeypatch.setattr(transfer, "PANEL_BYTES", 1 << 20)
    monkeypatch.setattr(staging, "SLOT_BYTES", 1 << 16)
    monkeypatch.setattr(device, "_states", {})
    x, y = normal(1500, 1100, dtype=dtype), normal(1100, 900, dtype=dtype, seed=1)
    wanted = matmul(x, y, scheme="int8x6", backend="cuda").get()
    a, b = ORDERS[left](x.get()), ORDERS[right](y.get())
    whole = ORDERS[left](np.full((1600, 2000), 7, dtype))
    block = whole[50:1550, 7:907]
    given = {"scheme": "int8x6", "backend": "cuda"}
    assert matmul(a, b, out=block, native=np.matmul, **given) is block
    np.testing.assert_array_equal(block, wanted)
    block[...] = 7
    assert np.all(whole == 7)
    with ThreadPoolExecutor(4) as threads:
        for value in threads.map(lambda _: matmul(a, b, **given), range(8)):
            np.testing.assert_array_equal(value, wanted)
    with cupy.cuda.using_allocator(cupy.cuda.MemoryAsyncPool().malloc):
        np.testing.assert_array_equal(matmul(a, b, **given), wanted)


def test_a_trace_knows_the_time_of_transfers_and_whose_results_operands_are() -> None:
    a, b = normal(4096, 4096), normal(4096, 4096, seed=1)
    records = []
    for x, y in ((a.get(), b.get()), (a, b)):
        for _ in range(2):  # the second finds kernels and memory ready
            trace = Trace(["int8x3"])
            with use(Context(scheme="int8x6", backend="cuda", trace=trace)):
                c = matmul(x, y, site="p")
                matmul(c.T[:512], y, site="q")
                matmul(c + 1, y, site="r")
                matmul(x, y, out=c.copy(), site="o", native=np.matmul)
        records.append(trace.sites)
        assert {site: dict(record.fed_by) for site, record in trace.sites.items()} == {
            "p": {},
            "q": {"p": 1},
            "r": {},
            "o": {},
        }
        assert 0 < trace.sites["p"].errors["int8x3"] < 1e-3
    moved, there = (sites["p"] for sites in records)
    assert there.transfer == 0
    # The product itself takes well below a millisecond, its operands' way many.
    assert 0 < moved.seconds - moved.transfer < moved.transfer


def child(pipe: Any) -> None:
    a = np.random.default_rng(0).standard_normal((300, 300)).astype("f")
    pipe.send(matmul(a, a, scheme="int8x6", backend="cuda"))


def forked(pipe: Any) -> None:
    a = np.eye(2000, dtype="f")
    result, _, reason = ran(matmul, a, a, scheme="int8x6")
    pipe.send((bool((result == a).all()), reason))


@pytest.mark.usefixtures("everything_pays")
@pytest.mark.parametrize(("start", "target"), [("spawn", child), ("fork", forked)])
def test_children(start: Any, target: Any) -> None:
    """A spawned one multiplies; one that was forked too late does so natively."""
    a = np.random.default_rng(0).standard_normal((300, 300)).astype("f")
    wanted = matmul(a, a, scheme="int8x6", backend="cuda")
    context = multiprocessing.get_context(start)
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(theirs,))
    process.start()
    assert ours.poll(120)
    if start == "spawn":
        np.testing.assert_array_equal(ours.recv(), wanted)
    else:
        assert ours.recv() == (True, Reason.FORKED)
    process.join(60)


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_tensors_come_back_as_tensors(dtype: str) -> None:
    torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
    kind, double = getattr(torch, dtype), torch.complex128 if "c" in dtype else torch.float64
    a, b = (torch.randn(EDGE, EDGE, device="cuda", dtype=kind) for _ in range(2))
    for x, y in ((a, b), (a.conj(), b), (a.T.conj(), b.T), (a, b.mH)):
        for scheme, wanted in ((None, "faithful"), ("int8x6", "int8x6")):
            result, *how = ran(matmul, x, y, scheme=scheme)
            assert how == [wanted, None]
            assert type(result) is torch.Tensor
            assert (result.device, result.dtype) == (a.device, kind)
            precise = x.to(double) @ y.to(double)
            assert ((result - precise).norm() / precise.norm()).item() < 2e-6


@pytest.mark.parametrize("name", [*EMULATIONS, "faithful"])
@pytest.mark.parametrize("stack", [(), (3,)])
def test_sums_near_the_largest_number(name: str, stack: Any) -> None:
    rng = np.random.default_rng(4)
    for m, k, n in ((12, 1, 10), (12, 7, 10), (40, 40, 70), (130, 600, 140)):
        a, b = rng.standard_normal((*stack, m, k)), rng.standard_normal((*stack, k, n))
        b *= (
            float(np.finfo("f").max)
            * (1 - 2.0**-16)
            / (abs(a) @ abs(b)).max(axis=-2, keepdims=True)
        )
        a, b = (cupy.asarray(x.astype(np.float32)) for x in (a, b))
        for x, y in ((a, b), (b.swapaxes(-1, -2), a.swapaxes(-1, -2))):
            assert cupy.isfinite(matmul(x, y, scheme=name, backend="cuda")).all()


def printed(*arguments: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.runtime.gpu.shipped_products", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_results_do_not_depend_on_what_is_shipped() -> None:
    with_them = printed()
    assert with_them.count("\n") == 24
    assert with_them == printed("without")
