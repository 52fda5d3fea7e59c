"""What a product takes of a device: the formula, and a limit that is kept by construction."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from mixpert_py.errors import PlanError
from mixpert_py.runtime.api import matmul
from mixpert_py.runtime.context import Context, current, on_gpu, use
from mixpert_py.runtime.gpu import break_even, guard, slices
from mixpert_py.runtime.gpu import multiply as gpu_backend
from mixpert_py.runtime.gpu.panels import moved_bytes
from mixpert_py.runtime.gpu.partition import two
from mixpert_py.runtime.gpu.workspace import array_bytes
from mixpert_py.runtime.packing import pooled
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.request import Product
from mixpert_py.runtime.schemes import get
from mixpert_py.runtime.schemes.fp16x3 import FP16X3
from mixpert_py.runtime.tracing.trace import Trace
from tests.runtime.gpu.fake import FakeGpu, Stream, ndarray, pays_from
from tests.runtime.gpu.requested import multiplied, transferred


def normal(*shape: int, dtype: Any = np.float32, seed: int = 0) -> ndarray:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.standard_normal(shape)
    return ndarray(x.astype(dtype))


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    fake = FakeGpu()
    fake.install(monkeypatch)
    monkeypatch.setattr(break_even, "figures", lambda name: pays_from(1, host=1e6))
    return fake


def peak(gpu: FakeGpu, run: Any) -> int:
    """Bytes that a run takes at a time, of what it has given back when it ends."""
    before = gpu.peak = gpu.held
    run()
    return gpu.peak - before


def test_the_formula(gpu: FakeGpu) -> None:
    a, b = normal(300, 200), ndarray(normal(500, 200).x.T)  # both contiguous along k
    # Three slices of int8, rows to multiples of 8, k to 256; scales, flags, what is read past.
    wanted = sum(3 * -(-rows // 8) * 8 * 256 + 4 * rows + rows + 32 * 1024 for rows in (300, 500))
    taken = peak(gpu, lambda: multiplied(a, b, "int8x6", limit=None)) - 300 * 500 * 4
    assert wanted <= taken <= wanted + 2 * 4 * 256
    for limit, launches in ((pooled(taken), 1), (taken - 512, 2)):
        gpu.launches.clear()
        multiplied(a, b, "int8x6", limit=limit)
        assert len(gpu.launches) == launches


SHAPES = [
    ((300, 20), (20, 400)),
    ((3, 150, 20), (20, 140)),
    ((2, 3, 20, 30), (3, 30, 140)),
    ((20,), (20, 300)),
    ((300, 20), (20,)),
]


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize(
    ("scheme", "dtype"),
    [
        ("int8x6", np.float32),
        ("int8x10", np.float64),
        ("mixpert-IV", np.float32),
        ("int8x6", np.complex64),
        ("float64", np.float32),
    ],
)
def test_a_limit_is_kept(gpu: FakeGpu, shapes: Any, scheme: str, dtype: Any, traced: bool) -> None:
    a, b = normal(*shapes[0], dtype=dtype), normal(*shapes[1], dtype=dtype, seed=1)
    found: list[Any] = []

    def run(limit: int) -> None:
        found.append(multiplied(a, b, scheme, limit=limit, traced=traced))

    whole = multiplied(a, b, scheme, limit=None)
    assert not isinstance(whole, Reason)
    size = whole.value.nbytes
    most = peak(gpu, lambda: multiplied(a, b, scheme, limit=None)) - size
    most = max(most, array_bytes(scheme, a, b, None))  # casts are not counted here
    for limit in (most - 512, most // 3):
        assert peak(gpu, partial(run, limit)) <= limit + size
        made = found.pop()
        if isinstance(made, Reason):
            assert made is Reason.WORKSPACE  # one matrix of 128 rows and columns takes more
            continue
        np.testing.assert_array_equal(made.value.x, whole.value.x)


def test_limits_that_are_kept_are_not_all_refused(gpu: FakeGpu) -> None:
    """The test above would pass where nothing is ever made."""
    for dtype, scheme in (("f", "int8x6"), ("F", "int8x6"), ("f", "float64")):
        a, b = normal(400, 300, dtype=dtype), normal(300, 500, dtype=dtype, seed=1)
        for limit in (2_500_000, 1_900_000):
            assert not isinstance(multiplied(a, b, scheme, limit=limit), Reason), (dtype, limit)


def test_nothing_is_taken_where_it_cannot_do(gpu: FakeGpu) -> None:
    a = normal(300, 300)
    trace = Trace()
    with use(Context(scheme="int8x6", trace=trace)), on_gpu(workspace_limit=1000):
        assert peak(gpu, lambda: matmul(a, a, site="s")) <= a.nbytes
    assert trace.sites["s"].reasons == {Reason.WORKSPACE: 1}


def test_a_temporary_result_counts(gpu: FakeGpu) -> None:
    a, b = normal(512, 100), normal(100, 512)
    out = ndarray(np.zeros((512, 1024), np.float32)[:, ::2])
    limit = 1_300_000
    for given, launches in ((None, 1), (out, 4)):
        gpu.launches.clear()
        taken = peak(gpu, lambda given=given: multiplied(a, b, "int8x6", out=given, limit=limit))
        assert taken <= limit + (given is None) * 512 * 512 * 4
        assert len(gpu.launches) >= launches


@pytest.mark.parametrize("which", ["left", "right"])
@pytest.mark.parametrize(
    ("scheme", "dtype", "limit"), [("int8x6", "F", 2_500_000), ("float64", "f", 1_500_000)]
)
def test_out_that_is_an_operand_where_the_product_is_halved(
    gpu: FakeGpu, scheme: str, dtype: str, limit: int, which: str
) -> None:
    a, b = normal(300, 300, dtype=dtype), normal(300, 300, dtype=dtype, seed=1)
    whole = multiplied(a, b, scheme, limit=None)
    assert not isinstance(whole, Reason)
    out = a if which == "left" else b
    assert array_bytes(scheme, a, b, out) > limit
    found: list[Any] = []
    assert peak(gpu, lambda: found.append(multiplied(a, b, scheme, limit=limit, out=out))) < limit
    assert found[0].value is out
    np.testing.assert_array_equal(out.x, whole.value.x)
    as_it_was = out.x.copy()
    assert multiplied(a, b, scheme, limit=out.nbytes - 1, out=out) is Reason.WORKSPACE
    np.testing.assert_array_equal(out.x, as_it_was)  # what the native call multiplies now


def test_a_packed_operand_stays_packed_where_rows_are_divided(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = normal(1000, 20), normal(20, 100)
    scheme = get("int8x6")
    ready = gpu_backend.pack_operand(b, scheme, "right")
    count = []

    def counted(x: Any, scheme: Any, side: str, *rest: Any, **given: Any) -> Any:
        count.append(side)
        return gpu.pack_one(x, scheme, side, *rest, **given)

    kernels = replace(slices.cuda_kernels(), pack_one=counted)
    monkeypatch.setattr(slices, "cuda_kernels", lambda: kernels)
    made = multiplied(a, b, "int8x6", right=ready, limit=80_000)
    assert not isinstance(made, Reason)
    assert set(count) == {"left"}
    assert len(count) > 4


@pytest.mark.parametrize("dtype", ["f", "d", "F"])
@pytest.mark.parametrize("shapes", [((500, 60), (60, 300)), ((3, 50, 60), (60, 40))], ids=str)
@pytest.mark.parametrize("traced", [False, True])
def test_what_moving_takes_is_counted(gpu: FakeGpu, dtype: str, shapes: Any, traced: bool) -> None:
    a, b = normal(*shapes[0], dtype=dtype).x, normal(*shapes[1], dtype=dtype, seed=1).x
    whole = transferred(a, b, "int8x6")
    assert not isinstance(whole, Reason)

    def make() -> Any:
        return transferred(a, b, "int8x6", traced=traced)

    most = peak(gpu, make)
    made = 0
    for limit in (most + (1 << 20), most, 4 * most // 5, 3 * most // 4, most // 2, most // 5):
        with on_gpu(workspace_limit=limit):
            found: list[Any] = []
            taken = peak(gpu, lambda found=found: found.append(make()))
        assert taken <= limit
        if isinstance(found[0], Reason):
            assert found[0] is Reason.WORKSPACE
            continue
        made += 1
        np.testing.assert_array_equal(found[0].value, whole.value)
    assert made >= (3 if len(shapes[0]) == 2 else 1)


def test_what_is_in_force_holds_inside() -> None:
    with on_gpu(workspace_limit=5):
        with on_gpu(devices="all"):
            assert (current().workspace_limit, current().devices) == (5, "all")
        assert current().devices is None
    assert current().workspace_limit is None


def test_settings_that_are_none() -> None:
    with (
        pytest.raises(PlanError, match="unknown devices 'both'; known: all"),
        on_gpu(devices="both"),
    ):
        pass
    with pytest.raises(PlanError, match="workspace_limit -1: wanted"), on_gpu(workspace_limit=-1):
        pass


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["f", "d", "F"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("scheme", ["int8x6", "int8x10", "fp16x3", "mixpert-IV"])
def test_the_pool_agrees(scheme: str, order: str, dtype: str) -> None:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    a = cupy.asarray(normal(1500, 2000, dtype=dtype).x, order=order)
    b = cupy.asarray(normal(2000, 1100, dtype=dtype, seed=1).x, order=order)

    class Peak(cupy.cuda.MemoryHook):  # type: ignore[misc]
        name = "peak"
        held = most = 0

        def malloc_postprocess(self, **given: Any) -> None:
            self.held += given["mem_size"]
            self.most = max(self.most, self.held)

        def free_preprocess(self, **given: Any) -> None:
            self.held -= given["mem_size"]

    whole = multiplied(a, b, scheme, limit=None)
    assert not isinstance(whole, Reason)
    multiplied(a, b, scheme, limit=None)
    with Peak() as unlimited:
        multiplied(a, b, scheme, limit=None)
    size = pooled(whole.value.nbytes)
    most = unlimited.most - size
    made = 0
    for limit in (most, most // 2, most // 4):
        with Peak() as seen:
            result = multiplied(a, b, scheme, limit=limit)
        if isinstance(result, Reason):
            continue
        made += 1
        assert seen.most <= limit + size
        cupy.testing.assert_array_equal(result.value, whole.value)
        del result
    assert made >= 2


@pytest.mark.parametrize("kept", ["neither", "left", "right", "both"])
def test_a_limit_is_kept_by_guarded_products(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, kept: str
) -> None:
    monkeypatch.setattr(guard, "LEAST", 1)
    # Sums of eighths are exact: BLAS may add in another order where there are fewer columns.
    a, b = (ndarray(np.rint(8 * normal(*s, seed=s[0]).x) / 8) for s in ((300, 200), (200, 400)))
    ready = {
        side: gpu_backend.pack_operand(x, FP16X3, side)
        for side, x in (("left", a), ("right", b))
        if kept in (side, "both")
    }
    whole = multiplied(a, b, "faithful", limit=None, **ready)
    assert isinstance(whole, Product)
    size = whole.value.nbytes
    most = peak(gpu, lambda: multiplied(a, b, "faithful", limit=None, **ready)) - size
    for limit, is_whole in ((most + (1 << 17), True), (most - (1 << 16), False)):
        gpu.launches.clear()
        found: list[Any] = []

        def run(limit: int, found: list[Any] = found) -> None:
            found.append(multiplied(a, b, "faithful", limit=limit, **ready))

        assert peak(gpu, partial(run, limit)) <= limit + size
        assert (len(gpu.launches) == 1) == is_whole
        np.testing.assert_array_equal(found[0].value.x, whole.value.x)


def test_a_graph_packs_apart(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is packed anew may begin with a memset, which no gate holds back."""
    monkeypatch.setattr(guard, "LEAST", 1)
    a, b = normal(40, 128), normal(128, 40, seed=1)
    for captures in (False, True):
        with Stream(ptr=99) as stream:
            stream.capturing = captures
            found = slices.multiply(slices.cuda_kernels(), a, b, FP16X3)
        assert found.guard is not None
        assert found.left is not None
        assert (found.guard.left.owner is found.left.owner) != captures


def test_moved_products_count_what_a_guard_takes(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = 256, 1024, 300, 200, np.dtype("f"), FP16X3, 0
    plain = moved_bytes(*sizes)
    monkeypatch.setattr(guard, "LEAST", 1)
    assert moved_bytes(*sizes) >= plain + (256 + 200) * 300 * 3 * 2


@pytest.mark.parametrize(
    ("length", "multiple", "middle"), [(300, 128, 256), (256, 128, 128), (257, 128, 256), (3, 1, 2)]
)
def test_halves_begin_at_multiples(length: int, multiple: int, middle: int) -> None:
    assert two(length, multiple) == (slice(0, middle), slice(middle, length))
