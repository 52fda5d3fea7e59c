"""Products of Dask arrays: what the program's own call would give, and what its blocks did."""

import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from mixpert_py.errors import DeviceError, PlanError
from mixpert_py.plan import Plan, Site
from mixpert_py.runtime import worth
from mixpert_py.runtime.api import dot, dot_method, matmul
from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.gpu import device
from mixpert_py.runtime.packed_array import pack
from mixpert_py.runtime.products.einsum import einsum
from mixpert_py.runtime.products.in_place import imatmul
from mixpert_py.runtime.products.tensordot import tensordot
from mixpert_py.runtime.products.xp import xp_product
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.tracing.trace import Trace
from tests.every_check import sweep
from tests.runtime.gpu.fake import FakeGpu, pays_from

da = pytest.importorskip("dask.array", reason="Dask is not installed")

SITE = "net:f/matmul~1#0"
EMULATED = Context(scheme="int8x6", backend="reference")

SHAPES = [
    ((60, 50), (50, 40)),
    ((50,), (50, 40)),
    ((60, 50), (50,)),
    ((50,), (50,)),
    ((4, 60, 50), (50, 40)),
    ((60, 50), (4, 50, 40)),
    ((3, 1, 20, 30), (4, 30, 20)),
]


def lazy(*shape: int, dtype: Any = "f8", seed: int = 0, cuts: int = 3) -> Any:
    """An array in chunks of uneven lengths."""
    x = np.random.default_rng(seed).standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * np.random.default_rng(seed + 9).standard_normal(shape)
    return da.from_array(x.astype(dtype), chunks=tuple(size // cuts + 1 for size in shape))


Ways = dict[str, tuple[Callable[..., Any], Callable[..., Any]]]

# Ours, and what the program wrote.
WAYS: Ways = {
    "operator": (matmul, lambda a, b: a @ b),
    "np.matmul": (lambda a, b, **given: matmul(a, b, native=np.matmul, **given), np.matmul),
    "da.matmul": (lambda a, b, **given: matmul(a, b, native=da.matmul, **given), da.matmul),
    "xp.matmul": (lambda a, b, **given: xp_product(a, b, native=da.matmul, **given), da.matmul),
    "@=": (imatmul, lambda a, b: a @ b),
}


def alike(made: Any, wanted: Any) -> None:
    """Whether two Dask arrays say the same of themselves."""
    assert type(made) is type(wanted)
    assert (made.shape, made.chunks, made.dtype) == (wanted.shape, wanted.chunks, wanted.dtype)
    assert type(made._meta) is type(wanted._meta)
    assert (made._meta.ndim, made._meta.dtype) == (wanted._meta.ndim, wanted._meta.dtype)


def test_dask_is_not_imported_for_it() -> None:
    code = (
        "import sys, numpy as np, mixpert_py; a = np.eye(3);"
        "mixpert_py.matmul(a, a, scheme='fp16');"
        "mixpert_py.einsum('ij,jk', a, a, scheme='fp16'); print('dask' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == (
        "False\n"
    )


@pytest.mark.parametrize(("way", "shapes"), sweep(list(WAYS), SHAPES, together=1))
def test_matmul(way: str, shapes: Any) -> None:
    ours, native = WAYS[way]
    a, b = lazy(*shapes[0]), lazy(*shapes[1], seed=1)
    wanted = native(a, b)
    with use(EMULATED):
        made = ours(a, b)
    alike(made, wanted)
    exact, value = wanted.compute(), made.compute(scheduler="sync")
    np.testing.assert_allclose(value, exact, atol=1e-3)
    assert abs(value - exact).max() > 1e-12  # it was emulated


def test_an_operand_that_is_packed_keeps_its_scheme() -> None:
    a, b = lazy(60, 50), lazy(50, 40, seed=1).compute()
    with use(Context(backend="reference")):
        made = matmul(a, pack(b, "fp16"))
        assert abs(made - a @ b).max().compute() > 1e-4


@pytest.mark.parametrize("way", ["np.dot", "da.dot", "method"])
@pytest.mark.parametrize("shapes", [*SHAPES[:4], ((4, 60, 50), (3, 50, 40))], ids=str)
def test_dot(way: str, shapes: Any) -> None:
    a, b = lazy(*shapes[0]), lazy(*shapes[1], seed=1)
    wanted = a.dot(b)
    with use(EMULATED):
        if way == "method":
            made = dot_method(a, b)
        else:
            made = dot(a, b, native=np.dot if way == "np.dot" else da.dot)
    alike(made, wanted)
    exact, value = wanted.compute(), made.compute(scheduler="sync")
    np.testing.assert_allclose(value, exact, atol=1e-3)
    assert abs(value - exact).max() > 1e-12


@pytest.mark.parametrize(
    ("shapes", "axes"),
    [
        (((6, 7, 8), (7, 8, 9)), 2),
        (((6, 7, 8), (8, 9)), 1),
        (((6, 7, 8), (8, 6, 9)), ([0, 2], [1, 0])),
        (((6, 7, 8), (8, 6, 9)), ((-3, -1), (-2, -3))),
        (((6, 7), (7, 8)), (1, 0)),
        (((6,), (7,)), 0),
    ],
    ids=str,
)
def test_tensordot(shapes: Any, axes: Any) -> None:
    a, b = lazy(*shapes[0]), lazy(*shapes[1], seed=1)
    wanted = da.tensordot(a, b, axes)
    with use(EMULATED):
        made = tensordot(a, b, axes, native=da.tensordot)
    alike(made, wanted)
    np.testing.assert_allclose(made.compute(), wanted.compute(), atol=1e-4)


@pytest.mark.parametrize(
    "axes",
    [lambda: np.int64(2), lambda: iter(([1, 2], [0, 1])), lambda: ([1, 2], [0])],
    ids=["NumPy's number", "iterator", "pairs that are none"],
)
def test_axes_that_dask_is_to_judge(axes: Callable[[], Any]) -> None:
    a, b = lazy(6, 7, 8), lazy(7, 8, 9, seed=1)
    wanted = da.tensordot(a, b, axes())
    with use(EMULATED):
        made = tensordot(a, b, axes(), native=da.tensordot)
    alike(made, wanted)
    assert made.name == wanted.name


@pytest.mark.parametrize(
    ("subscripts", "shapes"),
    [
        ("ij,jk->ik", ((20, 30), (30, 25))),
        ("ij,jk", ((20, 30), (30, 25))),
        ("bij,bjk->bik", ((4, 20, 30), (4, 30, 25))),
        ("...ij,jk->...ki", ((3, 2, 20, 30), (30, 25))),
        ("ij,kj->ki", ((20, 30), (25, 30))),
        ("ijk,kjl->il", ((10, 7, 8), (8, 7, 9))),
        ("ij,jk,kl->il", ((10, 12), (12, 14), (14, 9))),
        ("ij,ij->", ((10, 12), (10, 12))),
    ],
    ids=str,
)
@pytest.mark.parametrize("options", [{}, {"optimize": True}], ids=str)
def test_einsum(subscripts: str, shapes: Any, options: Any) -> None:
    arrays = [lazy(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    wanted = da.einsum(subscripts, *arrays, **options)
    with use(EMULATED):
        made = einsum(subscripts, *arrays, native=da.einsum, **options)
    alike(made, wanted)
    np.testing.assert_allclose(made.compute(), wanted.compute(), atol=1e-3)


def test_einsum_in_the_chunks_that_dask_makes_smaller() -> None:
    a, b = lazy(60, 2000, cuts=1), lazy(2000, 1, cuts=1)
    c = lazy(1, 3000, cuts=1)
    for subscripts, arrays in (("ij,jk->ik", (b, c)), ("ij,jk->ik", (a, b))):
        wanted = da.einsum(subscripts, *arrays)
        with use(EMULATED):
            alike(einsum(subscripts, *arrays, native=da.einsum), wanted)
    assert da.einsum("ij,jk->ik", b, c).numblocks != (1, 1)


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("scheme", ["int8x6", "float32", "native"])
def test_dtypes(dtype: str, scheme: str) -> None:
    a, b = lazy(60, 50, dtype=dtype), lazy(50, 40, dtype=dtype, seed=1)
    with use(Context(scheme=scheme, backend="reference")):
        made = matmul(a, b)
    alike(made, a @ b)
    value = made.compute()
    assert value.dtype == dtype
    np.testing.assert_allclose(value, (a @ b).compute(), atol=1e-3)


@pytest.mark.parametrize(("dtype", "ours"), [("f4", True), ("c8", True), ("f8", False)])
def test_what_a_worker_with_a_gpu_may_make_without_a_plan(dtype: str, ours: bool) -> None:
    made = matmul(lazy(60, 50, dtype=dtype), lazy(50, 40, dtype=dtype, seed=1))
    assert any(layer.startswith("mixpert-") for layer in made.dask.layers) == ours


def test_what_stays_dasks_does_so_under_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, trace = FakeGpu(), Trace()
    gpu.install(monkeypatch)
    monkeypatch.setattr(worth, "figures", lambda name: pays_from(1, host=1.0))
    a = lazy(60, 60)
    with use(Context(trace=trace)):
        matmul(a, a, site=SITE).compute(scheduler="sync")
    assert trace.sites[SITE].schemes == {"native": 27}
    assert gpu.peak == 0


def test_one_operand_may_be_numpys() -> None:
    a, b = lazy(60, 50), lazy(50, 40)
    for pair in ((a.compute(), b), (a, b.compute())):
        with use(EMULATED):
            made = matmul(*pair)
        alike(made, pair[0] @ pair[1])
        assert np.abs((made - a @ b).compute()).max() > 1e-12


def test_nothing_is_computed() -> None:
    def fail(block: Any) -> Any:
        raise AssertionError("computed")

    a = da.map_blocks(fail, lazy(60, 60), dtype="f8", meta=np.empty((0, 0)))
    with use(Context(scheme="int8x6", backend="reference", trace=Trace(keep=[SITE]))):
        for made in (
            matmul(a, a, site=SITE),
            dot(a, a),
            tensordot(a, a, 1),
            einsum("ij,jk", a, a, native=da.einsum),
        ):
            assert isinstance(made, da.Array)


@pytest.mark.parametrize("trace", [False, True])
@pytest.mark.parametrize(
    "ours",
    [
        lambda a, b: matmul(a, b),
        lambda a, b: dot(a, b),
        lambda a, b: tensordot(a, b, 1),
        lambda a, b: einsum("ij,jk->ik", a, b),
    ],
    ids=["matmul", "dot", "tensordot", "einsum"],
)
def test_without_a_scheme_the_digits_are_daskss_own(ours: Any, trace: bool) -> None:
    a, b = lazy(60, 50, cuts=4), lazy(50, 40, cuts=3)
    wanted = ours(a, b).compute()
    with use(Context(trace=Trace() if trace else None)):
        np.testing.assert_array_equal(ours(a, b).compute(), wanted)
    np.testing.assert_allclose(wanted, a.compute() @ b.compute())


@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [
        (np.arange(6).reshape(2, 3), np.arange(6).reshape(3, 2), Reason.NOT_AN_ARRAY),
        (np.ma.masked_array(np.eye(3)), np.eye(3), Reason.NOT_AN_ARRAY),
        (np.eye(3, dtype=object), np.eye(3), Reason.NOT_AN_ARRAY),
    ],
    ids=["integers", "masked", "objects"],
)
def test_other_blocks_stay_with_dask(a: Any, b: Any, reason: Reason) -> None:
    trace = Trace()
    x, y = da.from_array(a, chunks=2, asarray=False), da.from_array(b, chunks=2)
    with use(Context(scheme="int8x6", backend="reference", trace=trace)):
        made = matmul(x, y, site=SITE)
    assert made.name == (x @ y).name
    assert trace.sites[SITE].reasons == {reason: 1}


@pytest.mark.parametrize(
    ("call", "native"),
    [
        (lambda a: matmul(a, a[:, :-1].T), lambda a: a @ a[:, :-1].T),
        (lambda a: tensordot(a, a, 3), lambda a: np.tensordot(a, a, 3)),
        (lambda a: matmul(a, 3.0), lambda a: a @ 3.0),
        (lambda a: einsum("ij,kl,l", a, a), lambda a: np.einsum("ij,kl,l", a, a)),
    ],
    ids=["shapes", "axes", "scalar", "operands"],
)
def test_wrong_calls_fail_as_before(call: Any, native: Any) -> None:
    a = lazy(6, 7)
    outcomes = []
    for run in (native, call):
        with use(EMULATED), pytest.raises(Exception) as caught:  # noqa: PT011, of any kind
            run(a)
        outcomes.append((caught.type, str(caught.value)))
    assert outcomes[0] == outcomes[1]


def test_unknown_chunks_stay_unknown() -> None:
    a = lazy(60, 50)
    a = a[a[:, 0] > 0]
    with use(EMULATED):
        made = matmul(a, lazy(50, 40))
    assert np.isnan(made.shape[0])
    np.testing.assert_allclose(made.compute(), (a @ lazy(50, 40)).compute(), atol=1e-3)


def test_the_plan_of_the_site_travels() -> None:
    plan = Plan(site=[Site(id=SITE, scheme="int8x3", block=128)])
    a = lazy(60, 300, cuts=2)
    trace = Trace()
    with use(Context(plan=plan, backend="reference", trace=trace)):
        made = matmul(a, a.T, site=SITE)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            matmul(a, a.T, site="net:f/matmul~2#0")
    made.compute()
    assert [warning.filename for warning in said] == [__file__]
    (schemes,) = (record.schemes for site, record in trace.sites.items() if site == SITE)
    assert schemes == {"int8x3": 8}
    expected = [
        matmul(x, x.T, scheme="int8x3", block=128, backend="reference")
        for x in (a.blocks[0, i].compute() for i in range(2))
    ]
    np.testing.assert_array_equal(made.blocks[0, 0].compute(), expected[0] + expected[1])


def test_what_nobody_can_do_is_said_at_once_or_by_the_worker() -> None:
    a = lazy(60, 60)
    with pytest.raises(PlanError, match="unknown scheme 'int9'"):
        matmul(a, a, scheme="int9")
    with pytest.raises(PlanError, match="unknown backend 'gpu'"):
        matmul(a, a, scheme="int8x6", backend="gpu")
    made = matmul(a, a, scheme="int8x6", backend="cuda")  # workers may have what is not here
    if not device.may_be_here():
        with pytest.raises(DeviceError, match="backend 'cuda'"):
            made.compute(scheduler="sync")


def counted(trace: Trace) -> dict[str, int]:
    return {site: record.calls for site, record in trace.sites.items()}


def test_blocks_in_a_pool_of_processes_take_the_scheme_and_are_in_no_trace() -> None:
    a, trace = lazy(60, 60), Trace()
    with use(Context(scheme="int8x1", backend="reference", trace=trace)):
        made = matmul(a, a, site=SITE)
    found = made.compute(scheduler="processes", num_workers=2)
    assert not trace.sites
    np.testing.assert_array_equal(found, made.compute(scheduler="sync"))


@pytest.mark.parametrize("scheduler", ["sync", "threads"])
def test_what_blocks_did_is_in_the_trace(scheduler: str) -> None:
    a = lazy(60, 60)
    trace = Trace(levels=("int8x3",))
    with use(Context(scheme="int8x6", backend="reference", trace=trace)):
        made = matmul(a, a, site=SITE)
    assert not trace.sites
    made.compute(scheduler=scheduler, num_workers=2)
    record = trace.sites[SITE]
    assert (record.calls, record.schemes) == (27, {"int8x6": 27})
    assert set(record.shapes) == {(m, k, n) for m in (18, 21) for k in (18, 21) for n in (18, 21)}
    assert record.seconds > 0
    assert record.sampled > 0
    assert 1e-6 < record.errors["int8x3"] < 1e-3
    made.blocks[0, 0].compute(scheduler=scheduler, num_workers=2)
    assert counted(trace) == {SITE: 30}  # what is computed again is done again


def test_a_result_that_the_run_is_judged_by_is_kept_as_a_whole() -> None:
    a = lazy(60, 60)
    trace = Trace(keep=[SITE])
    with use(Context(scheme="int8x6", backend="reference", trace=trace)):
        value = matmul(a, a, site=SITE).compute()
    np.testing.assert_array_equal(np.asarray(trace.results[SITE]), value)


@pytest.fixture(scope="module", params=[False, True], ids=["threads", "processes"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Any]:
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=2,
            processes=request.param,
            dashboard_address=None,
        ) as started,
        distributed.Client(started) as client,
    ):
        yield client


def test_a_cluster(cluster: Any) -> None:
    a, b = lazy(60, 60), lazy(60, 40, seed=1)
    trace, other = Trace(), Trace()
    with use(Context(scheme="int8x6", backend="reference", trace=trace)):
        first = matmul(a, b, site=SITE)
        second = einsum("ij,jk->ik", first, b.T, site="second", native=da.einsum)
    with use(Context(scheme="int8x3", backend="reference", trace=other)):
        third = matmul(a, b, site=SITE)
    made = second.compute()
    expected = second.compute(scheduler="sync")
    np.testing.assert_array_equal(made, expected)
    third.compute()
    assert counted(trace) == {SITE: 54, "second": 54}  # here once, and on the cluster
    assert other.sites[SITE].schemes == {"int8x3": 27}


def test_an_error_on_a_worker_keeps_its_message(cluster: Any) -> None:
    def fail(block: Any) -> Any:
        raise ValueError("of the user's own")

    a = lazy(60, 60)
    broken = da.map_blocks(fail, a, dtype="f8", meta=np.empty((0, 0)))
    with use(EMULATED), pytest.raises(ValueError, match="of the user's own"):
        matmul(broken, a).compute()
    if not device.may_be_here():
        with pytest.raises(DeviceError, match=r"backend 'cuda': .*; use 'reference'"):
            matmul(a, a, scheme="int8x6", backend="cuda").compute()
