"""Complex products on a GPU: both parts against FP64, and all that real products may do."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.api import dot, dot_method, matmul
from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.packed_array import pack
from mixpert_py.runtime.products.einsum import einsum
from mixpert_py.runtime.products.inner import inner
from mixpert_py.runtime.products.tensordot import tensordot
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.tracing.local_errors import emulated_errors
from mixpert_py.runtime.tracing.operand_statistics import operand_statistics
from mixpert_py.runtime.tracing.trace import Trace

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy", reason="CuPy is not installed")

EDGE = 2048  # large enough to pay on any device
UNIT = 2.0**-24
PAIRS = ("FF", "DD", "Ff", "fF", "Df")


def normal(*shape: int, dtype: Any = "F", seed: int = 0) -> Any:
    if 0 in shape:
        return cupy.zeros(shape, dtype)
    draw = cupy.random.default_rng(seed)
    x = draw.standard_normal(shape, dtype="float64")
    if np.dtype(dtype).kind == "c":
        x = x + 1j * draw.standard_normal(shape, dtype="float64")
    return x.astype(dtype)


def wide(x: Any) -> Any:
    return x.astype("complex128")


def exact(a: Any, b: Any) -> Any:
    return cupy.matmul(wide(a), wide(b))


def error(value: Any, a: Any, b: Any) -> float:
    wanted = exact(a, b)
    return float(cupy.linalg.norm(value - wanted) / cupy.linalg.norm(wanted))


def ran(product: Callable[..., Any], *operands: Any, **given: Any) -> tuple[Any, str, Any]:
    trace = Trace()
    context = Context(scheme=given.pop("scheme", None), backend=given.pop("backend", None))
    with use(replace(context, trace=trace)):
        result = product(*operands, site="s", **given)
    ((scheme, _),) = trace.sites["s"].schemes.items()
    return result, scheme, next(iter(trace.sites["s"].reasons), None)


@pytest.mark.parametrize(
    ("dtype", "scheme", "wanted"),
    [
        ("F", None, "faithful"),
        ("D", None, "native"),
        ("F", "native", "native"),
        ("F", "int8x6", "int8x6"),
        ("D", "int8x6", "int8x6"),
        ("D", "float32", "faithful"),
        ("F", "float32", "float32"),
        ("F", "float64", "float64"),
    ],
)
def test_every_spelling(dtype: str, scheme: str | None, wanted: str) -> None:
    a, b = normal(EDGE, EDGE, dtype=dtype), normal(EDGE, EDGE, dtype=dtype, seed=1)
    out = cupy.empty_like(a)
    for product, given in (
        (matmul, {}),
        (matmul, {"native": cupy.matmul}),
        (matmul, {"native": cupy.matmul, "out": out}),
        (dot, {"native": cupy.dot}),
        (dot_method, {}),
    ):
        result, scheme_ran, reason = ran(product, a, b, scheme=scheme, **given)
        assert (scheme_ran, reason) == (wanted, None)
        assert type(result) is cupy.ndarray
        assert result.dtype == dtype
        assert error(result, a, b) < 2e-6
    assert bool((out == result).all())


def test_other_spellings() -> None:
    a, b = normal(EDGE, EDGE), normal(EDGE, EDGE, seed=1)
    wanted = exact(a, b)
    for product, operands, given, native in (
        (inner, (a, b), {"native": cupy.inner}, exact(a, b.T)),
        (tensordot, (a, b, 1), {"native": cupy.tensordot}, wanted),
        (einsum, ("ij,jk->ki", a, b), {"native": cupy.einsum}, wanted.T),
        (matmul, (a.conj().T, b), {}, exact(a.conj().T, b)),
        (matmul, (a.real, b), {}, exact(a.real, b)),
        (matmul, (a, b.imag), {}, exact(a, b.imag)),
    ):
        result, scheme, reason = ran(product, *operands, **given)
        assert (scheme, reason) == ("faithful", None)
        assert float(cupy.linalg.norm(result - native) / cupy.linalg.norm(native)) < 2e-6


def test_small_products_are_native() -> None:
    a = normal(64, 64)
    assert ran(matmul, a, a)[1:] == ("native", None)
    assert ran(matmul, a, a, scheme="int8x6")[1:] == ("native", Reason.TOO_SMALL)


@pytest.mark.parametrize("positive", [False, True], ids=["normal", "uniform"])
@pytest.mark.parametrize("edge", [1024, 2048, 4096])
def test_faithful_is_no_worse_than_cublas(edge: int, positive: bool) -> None:
    a, b = normal(edge, edge), normal(edge, edge, seed=1)
    if positive:
        draw = cupy.random.default_rng(5)
        a, b = (
            (draw.random((edge, edge)) + 1j * draw.random((edge, edge))).astype("F")
            for _ in range(2)
        )
    value, scheme, _ = ran(matmul, a, b, scheme="faithful", backend="cuda")
    assert scheme == "faithful"
    assert error(value, a, b) <= error(cupy.matmul(a, b), a, b)


@pytest.mark.parametrize("pair", PAIRS)
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
    outer = cupy.outer
    limit = (k + 2) * UNIT
    assert bool((abs(off.real) <= limit * (outer(ar, br) + outer(ai, bi))).all())
    assert bool((abs(off.imag) <= limit * (outer(ar, bi) + outer(ai, br))).all())


@pytest.mark.parametrize("dtype", ["F", "D"])
def test_parts_come_apart_and_together(dtype: str) -> None:
    from mixpert_py.runtime.gpu.complex_parts import join, split

    x = normal(5, 7, 3, dtype=dtype)
    for view in (x, x[:, ::2], x[::-1, :, ::-1], x.T, x[:0]):
        parts = split(view)
        cupy.testing.assert_array_equal(parts[0], view.real)
        cupy.testing.assert_array_equal(parts[1], view.imag)
        out = cupy.empty((*view.shape, 2), dtype)[..., 0]
        join(parts, out)
        cupy.testing.assert_array_equal(out, view)
        four = cupy.stack([parts, parts + 3])
        join(four, out)
        cupy.testing.assert_array_equal(out.real, four[0, 0] - four[1, 1])
        cupy.testing.assert_array_equal(out.imag, four[0, 1] + four[1, 0])


def test_subnormal_parts_are_kept() -> None:
    from mixpert_py.runtime.gpu.complex_parts import join, split

    tiny = np.full((4, 4), complex(2.0**-149, -3 * 2.0**-149), np.complex64)
    parts = split(cupy.asarray(tiny))
    np.testing.assert_array_equal(parts.get(), [tiny.real, tiny.imag])
    out = cupy.empty((4, 4), "F")
    join(cupy.stack([parts, parts]), out)
    wanted = (tiny.real - tiny.imag) + 1j * (tiny.imag + tiny.real)
    np.testing.assert_array_equal(out.get(), wanted.astype("F"))


SPECIALS = [0.0, 1.5, np.inf, -np.inf, np.nan]
VALUES = [complex(x, y) for x, y in itertools.product(SPECIALS, SPECIALS)]


@pytest.mark.parametrize("scheme", ["int8x6", "fp16x3", "mixpert-IV"])
def test_nan_and_inf_are_where_the_formulas_put_them(scheme: str) -> None:
    """One special value in each of many rows of A, one in a column of B."""
    for other in VALUES[::6]:
        a, b = normal(2 * len(VALUES), 300), normal(300, 140, seed=1)
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


SHAPES = [
    ((300,), (300,)),
    ((300,), (300, 40)),
    ((50, 300), (300,)),
    ((7, 50, 300), (300, 40)),
    ((50, 300), (7, 300, 40)),
    ((2, 1, 50, 300), (3, 300, 40)),
    ((2, 3, 50, 300), (1, 3, 300, 40)),
    ((0, 300), (300, 40)),
    ((50, 0), (0, 40)),
    ((0, 50, 300), (300, 40)),
]


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("pair", PAIRS)
def test_shape_and_type_are_those_of_matmul(shapes: Any, pair: str) -> None:
    a, b = (normal(*s, dtype=t, seed=i) for i, (s, t) in enumerate(zip(shapes, pair, strict=True)))
    wanted = cupy.matmul(a, b)
    value = matmul(a, b, scheme="int8x10", backend="cuda")
    assert type(value) is cupy.ndarray
    assert (value.shape, value.dtype) == (wanted.shape, wanted.dtype)
    cupy.testing.assert_allclose(value, wanted, atol=2e-4)


VIEWS: dict[str, Callable[[Any], Any]] = {
    "transposed": lambda x: x.swapaxes(-1, -2).copy().swapaxes(-1, -2),
    "reversed": lambda x: x[..., ::-1, ::-1],
    "every other": lambda x: cupy.repeat(cupy.repeat(x, 2, -1), 2, -2)[..., ::2, ::2],
    "repeated": lambda x: cupy.broadcast_to(x[..., :1, :], x.shape),
    "stack of one": lambda x: cupy.broadcast_to(x[:1], x.shape),
    "conjugate": lambda x: x.conj().swapaxes(-1, -2),
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("side", [0, 1])
def test_any_view(view: str, side: int) -> None:
    pair = [normal(3, 90, 90), normal(3, 90, 90, seed=1)]
    pair[side] = VIEWS[view](pair[side])
    value = matmul(*pair, scheme="int8x8", backend="cuda")
    assert error(value, *pair) < 1e-6


OUTS: dict[str, Callable[[], Any]] = {
    "C": lambda: cupy.zeros((90, 90), "F"),
    "Fortran": lambda: cupy.zeros((90, 90), "F").T,
    "every other column": lambda: cupy.zeros((90, 180), "F")[:, ::2],
}


@pytest.mark.parametrize("kind", OUTS)
def test_out_takes_the_product(kind: str) -> None:
    a, out = normal(90, 90), OUTS[kind]()
    result = matmul(a, a, scheme="int8x8", backend="cuda", out=out, native=cupy.matmul)
    assert result is out
    assert error(out, a, a) < 1e-6


def test_out_may_be_an_operand() -> None:
    a, b = normal(200, 200), normal(200, 200, seed=1)
    before = b.copy()
    matmul(a, b, scheme="int8x8", backend="cuda", out=b, native=cupy.matmul)
    assert error(b, a, before) < 1e-6


@pytest.mark.parametrize("dtype", ["F", "D"])
def test_packed_operands(dtype: str) -> None:
    a, b = normal(700, 500, dtype=dtype), normal(500, 300, dtype=dtype, seed=1)
    wanted = matmul(a, b, scheme="int8x6", backend="cuda")
    left, right = pack(a, "int8x6", "left"), pack(b, "int8x6")
    for x, y in ((a, right), (left, b), (left, right)):
        cupy.testing.assert_array_equal(matmul(x, y, backend="cuda"), wanted)


def test_a_product_is_captured_in_a_graph() -> None:
    a, b = normal(512, 400), normal(400, 300, seed=1)
    context = Context(scheme="int8x6", backend="cuda")
    with cupy.cuda.Stream(non_blocking=True) as stream, use(context):
        matmul(a, b)  # compiles
        stream.begin_capture()
        value = matmul(a, b)
        graph = stream.end_capture()
        garbage = [cupy.full((1 << 18,), 7.0) for _ in range(20)]  # takes memory that is free
        for seed in range(3):
            a[...] = normal(512, 400, seed=10 + seed)
            value[...] = 0
            graph.launch(stream)
            stream.synchronize()
            cupy.testing.assert_array_equal(value, matmul(a, b))
    assert len(garbage) == 20


@pytest.mark.parametrize("pair", ["FF", "DD", "Ff"])
def test_numpy_arrays_are_moved(pair: str) -> None:
    a, b = normal(900, 300, dtype=pair[0]), normal(300, 200, dtype=pair[1], seed=1)
    value, scheme, _ = ran(matmul, a.get(), b.get(), scheme="int8x6", backend="cuda")
    assert scheme == "int8x6"
    assert type(value) is np.ndarray
    assert value.dtype == np.result_type(*pair)
    assert error(cupy.asarray(value), a, b) < 2e-6


def test_no_memory_falls_back() -> None:
    pool = cupy.get_default_memory_pool()
    a = normal(EDGE, EDGE)
    limit = pool.get_limit()
    pool.free_all_blocks()
    try:
        pool.set_limit(size=pool.used_bytes() + a.nbytes + (1 << 20))
        value, scheme, reason = ran(matmul, a, a, scheme="int8x6")
    finally:
        pool.set_limit(size=limit)
    assert (scheme, reason) == ("native", Reason.MEMORY)
    assert error(value, a, a) < 1e-5


def test_local_errors_are_made_by_the_kernels() -> None:
    a, b = normal(600, 900), normal(900, 700, seed=1)
    errors = emulated_errors(a.get(), b.get(), ("int8x6", "int8x3"))
    found = operand_statistics(a, b, ("native", "int8x6", "int8x3"))
    assert found is not None
    assert 0 < found.errors["native"] < 1e-6
    for scheme, wanted in errors.items():
        assert found.errors[scheme] == pytest.approx(wanted, rel=0.2)


def test_large_products_are_faster_than_cublas() -> None:
    a, b = normal(4096, 4096), normal(4096, 4096, seed=1)

    def seconds(product: Callable[[], Any]) -> float:
        times = []
        for _ in range(6):
            begin, end = cupy.cuda.Event(), cupy.cuda.Event()
            begin.record()
            product()
            end.record()
            end.synchronize()
            times.append(cupy.cuda.get_elapsed_time(begin, end) / 1e3)
        return min(times[1:])

    ours = seconds(lambda: matmul(a, b, scheme="faithful"))
    native = seconds(lambda: cupy.matmul(a, b))
    print(f"complex64 4096³: native {native * 1e3:.2f} ms, faithful {ours * 1e3:.2f} ms")
    assert ours < native


class TestPyTorch:
    @pytest.fixture
    def torch(self) -> Any:
        return pytest.importorskip("torch", reason="PyTorch is not installed")

    def test_tensors_come_back_as_tensors(self, torch: Any) -> None:
        a, b = (torch.randn(EDGE, EDGE, device="cuda", dtype=torch.complex64) for _ in range(2))
        for x, y in ((a, b), (a.conj(), b), (a.T.conj(), b.T), (a, b.mH)):
            for scheme, wanted in ((None, "faithful"), ("int8x6", "int8x6")):
                result, scheme_ran, reason = ran(matmul, x, y, scheme=scheme)
                assert (scheme_ran, reason) == (wanted, None)
                assert type(result) is torch.Tensor
                assert (result.device, result.dtype) == (a.device, torch.complex64)
                precise = x.to(torch.complex128) @ y.to(torch.complex128)
                assert ((result - precise).norm() / precise.norm()).item() < 2e-6

    def test_tensors_of_two_types_are_refused_as_they_were(self, torch: Any) -> None:
        a = torch.randn(EDGE, EDGE, device="cuda", dtype=torch.complex64)
        with pytest.raises(RuntimeError):
            a.real @ a
        with pytest.raises(RuntimeError):
            matmul(a.real, a, scheme="int8x6")
