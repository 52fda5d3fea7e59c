"""Products under a plan on other data than it was tuned on."""

import math
from itertools import product
from typing import Any

import numpy as np
import pytest

from mixpert_py import plan as plan_file
from mixpert_py.plan import Plan, Site
from mixpert_py.runtime import plan_guard
from mixpert_py.runtime.api import matmul
from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.plan_guard import (
    APART,
    MARGIN,
    PlanGuard,
    floor_of,
    sampled_error,
    whole_error,
)
from mixpert_py.runtime.reference.emulation import emulate
from mixpert_py.runtime.tracing.operand_statistics import relative_error
from tests.runtime.families import EVERYDAY, FAMILIES, Family

pytestmark = pytest.mark.filterwarnings("error")  # of what is within the plan's error

ID = "guarded:work/matmul~000000#0"
PLAN = Plan(site=[Site(id=ID, scheme="float32", error=3e-7)])


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape)


def cancelling(n: int) -> tuple[Any, Any]:
    """Operands whose sums are a millionth of their terms."""
    x, y = normal(n, n // 2), normal(n // 2, n, seed=1)
    return np.hstack([x, -x]), np.vstack([y, y * (1 + 1e-6 * normal(n // 2, n, seed=2))])


def near_diagonal(rng: Any, m: int, k: int, n: int) -> tuple[Any, Any]:
    """As a propagator over a short time."""
    a, b = (np.eye(*s) + 1e-6 * rng.standard_normal(s) for s in ((m, k), (k, n)))
    return a, b


def block_diagonal(rng: Any, m: int, k: int, n: int) -> tuple[Any, Any]:
    """Blocks of 16, and far smaller numbers beside them."""
    i, p, j = (np.arange(length) // 16 for length in (m, k, n))
    a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    return np.where(i[:, None] == p, a, 1e-9 * a), np.where(p[:, None] == j, b, 1e-9 * b)


OPERANDS: dict[str, Family] = {
    **FAMILIES,
    **EVERYDAY,
    "near-diagonal": near_diagonal,
    "block-diagonal": block_diagonal,
}


def test_what_is_as_when_the_plan_was_tuned_runs_the_scheme() -> None:
    a, b = normal(256, 256), normal(256, 256, seed=1)
    with use(Context(plan=PLAN)):
        for _ in range(3):
            np.testing.assert_array_equal(matmul(a, b, site=ID), a.astype("f") @ b.astype("f"))


def test_what_is_less_accurate_runs_natively() -> None:
    a, b = cancelling(512)
    with use(Context(plan=PLAN)):
        with pytest.warns(UserWarning, match=r"off by .*, and was by 3\.0e-07") as heard:
            found = matmul(a, b, site=ID)
        assert heard[0].filename == __file__
        np.testing.assert_array_equal(found, a @ b)
        np.testing.assert_array_equal(matmul(a, b, site=ID), a @ b)
    with use(Context(plan=replace_guard(PLAN, "off"))):
        np.testing.assert_array_equal(matmul(a, b, site=ID), a.astype("f") @ b.astype("f"))


def replace_guard(plan: Plan, guard: Any) -> Plan:
    loaded = plan_file.loads(f'guard = "{guard}"\n' + plan_file.dumps(plan))
    assert loaded.site == plan.site
    assert plan_file.loads(plan_file.dumps(loaded)) == loaded
    return loaded


@pytest.mark.parametrize(
    "choice",
    [{"scheme": "native", "error": 3e-7}, {"scheme": "float32", "error": 0.0}],
    ids=["native", "no error known"],
)
def test_sites_that_are_not_checked(choice: dict[str, Any]) -> None:
    a, b = cancelling(512)
    context = Context(plan=Plan(site=[Site(id=ID, **choice)]))
    assert context.choice(ID).guard is None
    with use(context):
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
        ((3, 40, 200), (200,)),
        ((200,), (3, 200, 40)),
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
            off = np.asarray(exact * (1 + 1e-4))
            assert sampled_error(x, y, off, turn) == pytest.approx(1e-4, rel=1e-6)
            assert whole_error(x, y, np.asarray(exact), turn) < 1e-14
            assert whole_error(x, y, off, turn) == pytest.approx(1e-4, rel=1e-6)


def test_every_row_has_its_turn() -> None:
    a = normal(40, 30)
    exact = a @ a.T
    for row in range(40):
        wrong = exact.copy()
        wrong[row] += 1e6
        assert any(sampled_error(a, a.T, wrong, turn) > 1 for turn in range(1, 99)), row


@pytest.mark.parametrize("family", OPERANDS)
def test_the_data_that_a_plan_was_tuned_on_is_fine(family: str) -> None:
    for scheme, seed in product(("float32", "int8x1", "int8x6", "crt9"), range(3)):
        with np.errstate(all="ignore"):
            a, b = OPERANDS[family](np.random.default_rng(seed), 112, 128, 96)
            value = emulate(a, b, scheme)
            error = relative_error(a @ b, value)
        if not 0 < error < np.inf:
            continue  # such products have no guard
        guard = PlanGuard(ID, error, floor_of(scheme))
        for _ in range(1 << 5):
            guard._unchecked = 1 << 40
            assert guard.holds(a, b, value), scheme


@pytest.mark.parametrize("family", OPERANDS)
def test_products_that_are_off_are_found_in_every_family(family: str) -> None:
    rng = np.random.default_rng(7)
    a, b = OPERANDS[family](rng, 112, 128, 96)
    exact = a @ b
    size = np.linalg.norm(exact)
    noise = rng.standard_normal(exact.shape)
    row, entry = np.zeros_like(noise), np.zeros_like(noise)
    row[5] = noise[5]
    entry[17, 40] = 1.0
    for change in (exact, noise, row, entry):
        off = 1e-3 * size / np.linalg.norm(change) * change
        for turn in range(1, 20):
            assert 2e-4 < whole_error(a, b, exact + off, turn) < 5e-3
    guard = PlanGuard(ID, 2e-6)
    with pytest.warns(UserWarning, match="off by"):
        assert not guard.holds(a, b, exact + 1e-3 * size * noise / np.linalg.norm(noise))


def test_checks_are_further_apart_once_the_whole_was_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    checked = []
    monkeypatch.setattr(plan_guard, "sampled_error", lambda *given: checked.append(given) or 1.0)
    monkeypatch.setattr(plan_guard, "whole_error", lambda *given: 0.0)
    guard, a = PlanGuard(ID, 1e-7), normal(512, 512)
    for _ in range(8 * APART):
        assert guard.holds(a, a, a)
    assert len(checked) == 8  # the 1st, the 2nd, the 4th, …, 128th: each puts off the others


def test_what_is_not_finite() -> None:
    a = np.full((64, 64), 1e30)
    with np.errstate(over="ignore"):
        overflown = (a.astype("f") @ a.astype("f")).astype("d")
    assert sampled_error(a, a, overflown, 1) == np.inf
    assert whole_error(a, a, overflown, 1) == np.inf
    a[:] = np.nan
    assert math.isnan(whole_error(a, a, a @ a, 1))
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
    assert [floor_of(name) for name in ("crt7", "crt9", "crt16")] == [9.7e-8, 3.8e-10, 1e-15]
    assert PlanGuard(ID, 1e-16, floor_of("crt9")).limit == MARGIN * 3.8e-10
    plan = Plan(site=[Site(id=ID, scheme="crt9", error=4e-10)])
    a, (x, y) = normal(128, 128), cancelling(128)
    with use(Context(plan=plan, backend="reference")):
        matmul(a, a, site=ID)
    with use(Context(plan=plan, backend="reference")):
        with pytest.warns(UserWarning, match="a product is off by"):
            found = matmul(x, y, site=ID)
        np.testing.assert_array_equal(found, x @ y)


@pytest.mark.gpu
@pytest.mark.parametrize("library", ["cupy", "torch"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_product_that_is_off_on_a_gpu_makes_later_ones_native(library: str, dtype: str) -> None:
    module = pytest.importorskip(library)
    arrays = (x.astype(dtype) for x in cancelling(1024))
    is_cupy = library == "cupy"
    a, b = (module.asarray(x) if is_cupy else module.from_numpy(x).cuda() for x in arrays)
    plan = Plan(site=[Site(id=ID, scheme="int8x3", error=1e-5)])
    with use(Context(plan=plan, backend="cuda")):
        with pytest.warns(UserWarning, match="off by"):
            first = matmul(a, b, site=ID)
        assert bool((first == a @ b).all())
        assert bool((matmul(a, b, site=ID) == first).all())
