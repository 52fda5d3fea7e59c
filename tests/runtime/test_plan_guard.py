"""Products under a plan on other data than it was tuned on."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mixpert_py import plan as plan_file
from mixpert_py.plan import Plan, Site
from mixpert_py.runtime import plan_guard
from mixpert_py.runtime.api import matmul
from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.plan_guard import FLOOR, MARGIN, PlanGuard, floor_of, sampled_error
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.tracing.trace import Trace

ID = "guarded:work/matmul~000000#0"
PLAN = Plan(site=[Site(id=ID, scheme="float32", error=3e-7)])


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape)


def cancelling(n: int) -> tuple[Any, Any]:
    """Operands whose sums are a millionth of their terms."""
    x, y = normal(n, n // 2), normal(n // 2, n, seed=1)
    return np.hstack([x, -x]), np.vstack([y, y * (1 + 1e-6 * normal(n // 2, n, seed=2))])


def test_what_is_as_when_the_plan_was_tuned_runs_the_scheme() -> None:
    a, b = normal(256, 256), normal(256, 256, seed=1)
    with use(Context(plan=PLAN)), warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            wanted = a.astype("f") @ b.astype("f")
            np.testing.assert_array_equal(matmul(a, b, site=ID), wanted)


def test_what_is_less_accurate_runs_natively() -> None:
    a, b = cancelling(512)
    with use(Context(plan=PLAN)):
        with pytest.warns(UserWarning, match=r"off by .*, and was by 3\.0e-07") as heard:
            found = matmul(a, b, site=ID)
        assert heard[0].filename == __file__
        np.testing.assert_array_equal(found, a @ b)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            np.testing.assert_array_equal(matmul(a, b, site=ID), a @ b)
    with use(Context(plan=replace_guard(PLAN, "off"))):
        np.testing.assert_array_equal(matmul(a, b, site=ID), a.astype("f") @ b.astype("f"))


def replace_guard(plan: Plan, guard: Any) -> Plan:
    loaded = plan_file.loads(f'guard = "{guard}"\n' + plan_file.dumps(plan))
    assert loaded.site == plan.site
    assert plan_file.loads(plan_file.dumps(loaded)) == loaded
    return loaded


def test_a_profile_counts_them() -> None:
    a, b = cancelling(512)
    trace = Trace(None)
    with use(Context(plan=PLAN, trace=trace)):
        with pytest.warns(UserWarning, match="off by") as heard:
            matmul(a, b, site=ID)
        assert heard[0].filename == __file__
        matmul(normal(512, 512), normal(512, 512), site=ID)
    assert trace.sites[ID].reasons == {Reason.OUTSIDE_PLAN: 1}
    assert trace.sites[ID].schemes == {"float32": 1, "native": 1}


@pytest.mark.parametrize(
    "choice",
    [{"scheme": "native", "error": 3e-7}, {"scheme": "float32", "error": 0.0}],
    ids=["native", "no error known"],
)
def test_sites_that_are_not_checked(choice: dict[str, Any]) -> None:
    a, b = cancelling(512)
    context = Context(plan=Plan(site=[Site(id=ID, **choice)]))
    assert context.choice(ID).guard is None
    with use(context), warnings.catch_warnings():
        warnings.simplefilter("error")
        matmul(a, b, site=ID)


def test_results_that_have_a_place_are_checked_before_they_go_there() -> None:
    a, b = cancelling(512)
    wanted = a @ b
    with use(Context(plan=PLAN)):
        out = np.empty((512, 512))
        with pytest.warns(UserWarning, match="off by"):
            assert matmul(a, b, out, site=ID, native=np.matmul) is out
        np.testing.assert_array_equal(out, wanted)
        assert matmul(a, b, a, site=ID, native=np.matmul) is a
    np.testing.assert_array_equal(a, wanted)


def test_small_products_are_checked_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    checked = []

    def watched(*given: Any) -> float:
        checked.append(given)
        return 0.0

    monkeypatch.setattr(plan_guard, "sampled_error", watched)
    for n, calls, wanted in ((32, 500, 0), (256, 65, 7), (512, 17, 5)):
        checked.clear()
        guard = PlanGuard(ID, 1e-7)
        a = normal(n, n)
        for _ in range(calls):
            assert guard.holds(a, a, a, stacklevel=1)
        assert len(checked) == wanted


@pytest.mark.parametrize("dtype", ["f", "d", "F", "D"])
@pytest.mark.parametrize(
    "shapes",
    [
        ((300, 200), (200, 100)),
        ((7, 200), (200, 5)),
        ((1, 200), (200, 1)),
        ((200,), (200, 100)),
        ((300, 200), (200,)),
        ((200,), (200,)),
        ((3, 40, 200), (200, 50)),
        ((2, 1, 40, 200), (3, 200, 50)),
    ],
    ids=str,
)
def test_the_error_of_a_few_entries(shapes: tuple[Any, Any], dtype: str) -> None:
    a, b = (normal(*shape, seed=seed).astype(dtype) for seed, shape in enumerate(shapes))
    exact = a.astype("D" if dtype in "FD" else "d") @ b
    for order in ("C", "F"):
        for turn in range(1, 30):
            x, y = np.asarray(a, order=order), np.asarray(b, order=order)  # type: ignore[call-overload]
            assert sampled_error(x, y, np.asarray(exact), turn) < 4e-15
            found = sampled_error(x, y, np.asarray(exact * (1 + 1e-4)), turn)
            assert found == pytest.approx(1e-4, rel=1e-6)


def test_every_entry_has_its_turn() -> None:
    a = normal(40, 30)
    exact = a @ a.T
    seen = np.zeros_like(exact)
    for row, column in np.ndindex(*exact.shape):
        wrong = exact.copy()
        wrong[row, column] += 1e6
        seen[row, column] = any(sampled_error(a, a.T, wrong, turn) > 1 for turn in range(1, 200))
    assert seen.mean() > 0.9


def test_what_is_not_finite() -> None:
    a = np.full((64, 64), 1e30)
    with np.errstate(over="ignore"):
        overflown = (a.astype("f") @ a.astype("f")).astype("d")
    assert sampled_error(a, a, overflown, 1) == np.inf
    a[:] = np.nan
    assert sampled_error(a, a, a @ a, 1) == 0.0
    x = normal(64, 64)
    x[::2] = np.nan
    y = np.ones((64, 64))
    # The finite rows are compared, in those turns in which one is looked at.
    errors = [sampled_error(x, y, np.zeros((64, 64)), turn) for turn in range(1, 9)]
    assert set(errors) == {0.0, 1.0}
    assert not any(sampled_error(x, y, x @ y, turn) for turn in range(1, 9))
    zero = np.zeros((64, 64))
    assert sampled_error(zero, zero, zero, 1) == 0.0
    assert sampled_error(zero, zero, zero + 1, 1) == np.inf


def test_a_product_of_residues_may_be_off_by_what_these_usually_are() -> None:
    assert [floor_of(name) for name in ("crt7", "crt9", "crt18")] == [9.7e-8, 3.8e-10, 1e-15]
    assert PlanGuard(ID, 1e-16, floor_of("crt9")).limit == MARGIN * 3.8e-10
    plan = Plan(site=[Site(id=ID, scheme="crt9", error=4e-10)])
    a, (x, y) = normal(128, 128), cancelling(128)
    with use(Context(plan=plan, backend="reference")), warnings.catch_warnings():
        warnings.simplefilter("error")
        matmul(a, a, site=ID)
    with use(Context(plan=plan, backend="reference")):
        with pytest.warns(UserWarning, match="a product is off by"):
            found = matmul(x, y, site=ID)
        np.testing.assert_array_equal(found, x @ y)


def test_a_product_that_was_exact_may_be_off_by_what_float32_is() -> None:
    assert PlanGuard(ID, 1e-12).limit == MARGIN * FLOOR
    assert floor_of("int8x10") == floor_of("float64") == floor_of("float32") == FLOOR
    integers = np.arange(512.0 * 512).reshape(512, 512) % 7
    plan = Plan(site=[replace_site(PLAN.site[0], 1e-15)])
    with use(Context(plan=plan)), warnings.catch_warnings():
        warnings.simplefilter("error")
        matmul(integers, integers, site=ID)
        matmul(normal(512, 512), normal(512, 512, seed=1), site=ID)


def replace_site(site: Site, error: float) -> Site:
    import msgspec

    return msgspec.structs.replace(site, error=error)


def test_threads_share_a_guard() -> None:
    context = Context(plan=PLAN)
    assert context.choice(ID).guard is context.choice(ID).guard
    assert replace(context).choice(ID).guard is not context.choice(ID).guard


@pytest.mark.gpu
@pytest.mark.parametrize("library", ["cupy", "torch"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
class TestOnGpu:
    """Arrays on a GPU, of which nothing is waited for."""

    PLAN = Plan(site=[Site(id=ID, scheme="int8x3", error=1e-5)])

    def arrays(self, library: str, dtype: str, *arrays: Any) -> tuple[Any, Callable[[], None]]:
        """These as arrays of a library, and what waits for the device."""
        module = pytest.importorskip(library)
        arrays = tuple(x.astype(dtype) for x in arrays)
        if library == "cupy":
            return map(module.asarray, arrays), module.cuda.Device().synchronize
        return (module.from_numpy(x).cuda() for x in arrays), module.cuda.synchronize

    def test_products_as_they_were_run_the_scheme(self, library: str, dtype: str) -> None:
        (a, b), wait = self.arrays(library, dtype, normal(1024, 1100), normal(1100, 1200, seed=1))
        with warnings.catch_warnings(), use(Context(plan=self.PLAN, backend="cuda")):
            warnings.simplefilter("error")
            for _ in range(9):
                found = matmul(a, b, site=ID)
                wait()
        with use(Context(scheme="int8x3", backend="cuda")):
            assert bool((found == matmul(a, b)).all())

    def test_a_product_that_is_off_makes_later_ones_native(self, library: str, dtype: str) -> None:
        (a, b), wait = self.arrays(library, dtype, *cancelling(1024))
        with use(Context(plan=self.PLAN, backend="cuda")):
            first = matmul(a, b, site=ID)
            wait()
            with pytest.warns(UserWarning, match="off by"):
                second = matmul(a, b, site=ID)
            assert bool((second == a @ b).all())
            assert not bool((first == second).all())
            assert bool((matmul(a, b, site=ID) == second).all())

    def test_a_trace_waits(self, library: str, dtype: str) -> None:
        (a, b), _ = self.arrays(library, dtype, *cancelling(1024))
        trace = Trace()
        with use(Context(plan=self.PLAN, backend="cuda", trace=trace)):
            with pytest.warns(UserWarning, match="off by"):
                found = matmul(a, b, site=ID)
            assert bool((found == a @ b).all())
        assert trace.sites[ID].reasons == {Reason.OUTSIDE_PLAN: 1}
