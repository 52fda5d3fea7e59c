"""Products of Dask arrays: what the program's own call would give, and what its blocks did."""

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from mixpert_py.errors import DeviceError, PlanError
from mixpert_py.plan import Plan, Site
from mixpert_py.runtime.api import dot, dot_method, matmul
from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.gpu import device
from mixpert_py.runtime.products.einsum import einsum
from mixpert_py.runtime.products.in_place import imatmul
from mixpert_py.runtime.products.inner import tensordot
from mixpert_py.runtime.products.xp import xp_product
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.tracing.trace import Trace
from tests.every_check import sweep

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


Call = tuple[Callable[..., Any], Callable[..., Any]]


def summed(axes: Any) -> Call:
    return lambda a, b: tensordot(a, b, axes, native=da.tensordot), partial(da.tensordot, axes=axes)


def words(subscripts: str, **options: Any) -> Call:
    ours, native = partial(einsum, subscripts, native=da.einsum), partial(da.einsum, subscripts)
    return partial(ours, **options), partial(native, **options)


# Ours, and what the program wrote.
MATMUL: list[Call] = [
    (matmul, lambda a, b: a @ b),
    (partial(matmul, native=np.matmul), np.matmul),
    (partial(matmul, native=da.matmul), da.matmul),
    (partial(xp_product, native=da.matmul), da.matmul),
    (imatmul, lambda a, b: a @ b),
]
DOT: list[Call] = [
    (partial(dot, native=np.dot), np.dot),
    (partial(dot, native=da.dot), da.dot),
    (dot_method, lambda a, b: a.dot(b)),
]
PRODUCTS: list[Any] = [
    *((*call, shapes) for call, shapes in sweep(MATMUL, SHAPES, together=1)),
    *((*call, shapes) for call in DOT for shapes in (*SHAPES[:4], ((4, 60, 50), (3, 50, 40)))),
    (*summed(2), ((6, 7, 8), (7, 8, 9))),
    (*summed(([0, 2], [1, 0])), ((6, 7, 8), (8, 6, 9))),
    (*summed(((-3, -1), (-2, -3))), ((6, 7, 8), (8, 6, 9))),
    (*summed((1, 0)), ((6, 7), (7, 8))),
    (*summed(0), ((6,), (7,))),
    (*words("ij,jk->ik"), ((20, 30), (30, 25))),
    (*words("bij,bjk->bik"), ((4, 20, 30), (4, 30, 25))),
    (*words("...ij,jk->...ki", optimize=True), ((3, 2, 20, 30), (30, 25))),
    (*words("ijk,kjl->il"), ((10, 7, 8), (8, 7, 9))),
    (*words("ij,jk,kl->il", optimize=True), ((10, 12), (12, 14), (14, 9))),
    (*words("ij,ij->"), ((10, 12), (10, 12))),
    (*words("ij,jk->ik"), ((60, 1), (1, 90))),  # in chunks that Dask makes smaller
]


def alike(made: Any, wanted: Any) -> None:
    """Whether two Dask arrays say the same of themselves."""
    assert type(made) is type(wanted)
    assert (made.shape, made.chunks, made.dtype) == (wanted.shape, wanted.chunks, wanted.dtype)
    assert type(made._meta) is type(wanted._meta)
    assert (made._meta.ndim, made._meta.dtype) == (wanted._meta.ndim, wanted._meta.dtype)


@pytest.mark.parametrize(("ours", "native", "shapes"), PRODUCTS)
def test_products(ours: Any, native: Any, shapes: Any) -> None:
    arrays = [lazy(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    wanted = native(*arrays)
    with use(EMULATED):
        made = ours(*arrays)
    alike(made, wanted)
    exact, value = wanted.compute(), made.compute(scheduler="sync")
    np.testing.assert_allclose(value, exact, atol=1e-3)
    assert not value.shape or abs(value - exact).max() > 1e-12  # it was emulated


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
    plan = Plan(site=[Site(id=SITE, scheme="int8x3")])
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
        matmul(x, x.T, scheme="int8x3", backend="reference")
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
