"""Sums of NumPy arrays with a product that a GPU makes: panel by panel, in place exactly once."""

from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.api import matmul
from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.gpu import break_even, panels, staging
from mixpert_py.runtime.gpu import multiply as gpu_backend
from mixpert_py.runtime.gpu.panels import GRANULE
from mixpert_py.runtime.gpu.staging import Sum, write
from mixpert_py.runtime.products.fused import fused
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.request import Addend, Product
from mixpert_py.runtime.tracing.trace import Trace
from tests.every_check import sweep
from tests.runtime.gpu.fake import FakeGpu, OutOfMemoryError, pays_from
from tests.runtime.gpu.requested import transferred

M = 5 * GRANULE + 1  # six panels
SIGNS = [(1.0, np.add), (-1.0, np.subtract)]


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    fake = FakeGpu()
    fake.install(monkeypatch)
    monkeypatch.setattr(panels, "PANEL_BYTES", GRANULE * 50 * 4)
    monkeypatch.setattr(break_even, "figures", lambda name: pays_from(1, host=1.0))
    return fake


def normal(*shape: int, dtype: Any = "f", seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def operands(dtype: Any = "f") -> tuple[Any, Any, Any]:
    return tuple(
        normal(*shape, dtype=dtype, seed=seed)
        for seed, shape in enumerate([(M, 50), (50, 40), (M, 40)])
    )


def added(a: Any, b: Any, c: Any, alpha: float = 1.0) -> Product | Reason:
    return transferred(a, b, "int8x6", addend=Addend(alpha, 1.0, c, True))


@pytest.mark.parametrize(("dtype", "order"), sweep(["f", "d", "F"], ["C", "F", "inside"]))
@pytest.mark.parametrize(("alpha", "sum_of"), SIGNS)
def test_as_the_operator_would(alpha: float, sum_of: Any, dtype: str, order: str) -> None:
    a, b, c = operands(dtype)
    wanted = sum_of(c, transferred(a, b, "int8x6").value)  # type: ignore[union-attr]
    if order == "F":
        c = np.asfortranarray(c)
    elif order == "inside":
        c = np.pad(c, 3)[3:-3, 3:-3]
    made = added(a, b, c, alpha)
    assert isinstance(made, Product)
    assert made.includes_addend
    assert made.value is c
    np.testing.assert_array_equal(c, wanted)


@pytest.mark.parametrize("count", [1, 2, 4, 5])
@pytest.mark.parametrize("failure", ["memory", "kernel"])
@pytest.mark.parametrize(("alpha", "sum_of"), SIGNS)
def test_what_fails_on_its_way_is_finished_natively(
    monkeypatch: pytest.MonkeyPatch, alpha: float, sum_of: Any, failure: str, count: int
) -> None:
    as_it_is, calls = gpu_backend.multiply, []

    def make(*given: Any, **how: Any) -> Any:
        calls.append(given)
        if len(calls) <= count:
            return as_it_is(*given, **how)
        if failure == "memory":
            raise OutOfMemoryError(1, 1)
        return Reason.KERNEL

    a, b, c = operands()
    wanted = sum_of(c, a @ b)
    monkeypatch.setattr(gpu_backend, "multiply", make)
    made = added(a, b, c, alpha)
    if count < 2:  # the first comes back before the third is begun
        assert not isinstance(made, Product) or not made.includes_addend
    else:
        assert isinstance(made, Product)
        assert made.includes_addend
        np.testing.assert_allclose(c, wanted, atol=1e-4)


def test_nothing_is_added_where_memory_is_short_from_the_start(gpu: FakeGpu) -> None:
    a, b, c = operands()
    before = c.copy()
    gpu.memory = 1000
    assert added(a, b, c) is Reason.MEMORY
    np.testing.assert_array_equal(c, before)


def test_the_rewritten_statement(gpu: FakeGpu) -> None:
    a, b, c = operands("d")
    wanted, trace, given = c - a @ b, Trace(), c
    with use(Context(scheme="int8x6", trace=trace)):
        c = fused(c, a, b, form="c-=ab", site="s")
    assert c is given
    assert len(gpu.launches) == 6
    assert trace.sites["s"].schemes == {"int8x6": 1}
    np.testing.assert_allclose(c, wanted, atol=1e-4)


@pytest.mark.parametrize(
    ("form", "dtype", "shape"),
    sweep(["c+ab", "c-ab", "ab+c", "ab-c"], ["f", "d", "F"], [(M, 40), (40,), (M, 1), ()]),
)
def test_sums_to_memory_of_their_own(
    gpu: FakeGpu,
    monkeypatch: pytest.MonkeyPatch,
    form: str,
    dtype: str,
    shape: tuple[int, ...],
) -> None:
    a, b, _ = operands(dtype)
    c = np.array(normal(*shape, dtype=dtype, seed=2) if shape else 3, dtype)
    made, before = transferred(a, b, "int8x6"), c.copy()
    assert isinstance(made, Product)
    ab, launches = made.value, len(gpu.launches)
    wanted: Any = {"c+ab": c + ab, "c-ab": c - ab, "ab+c": ab + c, "ab-c": ab - c}[form]
    written: list[Any] = []
    monkeypatch.setattr(staging, "write", lambda to, x: written.append(to) or write(to, x))
    with use(Context(scheme="int8x6")):
        found: Any = fused(*((a, b, c) if form[0] == "a" else (c, a, b)), form=form)
    assert len(gpu.launches) == 2 * launches
    assert {type(to) for to in written} == {Sum}
    np.testing.assert_array_equal(found, wanted)
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(c, before)


def test_a_term_that_is_a_factor_as_well(gpu: FakeGpu) -> None:
    x = normal(M, M, dtype="d")
    wanted = x - x @ x
    with use(Context(scheme="int8x6")):
        found = fused(x, x, x, form="c-ab")
    assert gpu.launches
    np.testing.assert_allclose(found, wanted, atol=1e-3)


@pytest.mark.parametrize("failure", ["memory", "kernel"])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_sum_of_its_own_that_fails_on_its_way_is_the_operators(
    monkeypatch: pytest.MonkeyPatch, failure: str, count: int
) -> None:
    as_it_is, calls = gpu_backend.multiply, []

    def make(*given: Any, **how: Any) -> Any:
        calls.append(given)
        if len(calls) != count + 1:
            return as_it_is(*given, **how)
        if failure == "memory":
            raise OutOfMemoryError(1, 1)
        return Reason.KERNEL

    a, b, c = operands("d")
    wanted = c - a @ b
    monkeypatch.setattr(gpu_backend, "multiply", make)
    with use(Context(scheme="int8x6")):
        found = fused(c, a, b, form="c-ab")
    np.testing.assert_allclose(found, wanted, atol=1e-4)


def test_a_term_of_another_type_is_the_operators_too() -> None:
    a, b, _ = operands("f")
    c = normal(40, dtype="d", seed=2)
    with use(Context(scheme="int8x6")):
        found: Any = fused(a, b, c, form="ab+c")
    assert found.dtype == "d"
    np.testing.assert_allclose(found, a @ b + c, atol=1e-4)


@pytest.mark.parametrize("form", ["c-=alpha*ab", "beta*c-ab", "ab+beta*c", "alpha*ab+beta*c"])
def test_other_sums_take_the_product(form: str) -> None:
    a, b, c = operands("d")
    before = c.copy()
    given: Any = {
        "c-=alpha*ab": (c, 0.5, (a, b)),
        "beta*c-ab": (2.0, c, a, b),
        "ab+beta*c": (a, b, 2.0, c),
        "alpha*ab+beta*c": (0.5, (a, b), 2.0, c),
    }[form]
    wanted: Any = {
        "c-=alpha*ab": c - 0.5 * (a @ b),
        "beta*c-ab": 2.0 * c - a @ b,
        "ab+beta*c": a @ b + 2.0 * c,
        "alpha*ab+beta*c": 0.5 * (a @ b) + 2.0 * c,
    }[form]
    with use(Context(scheme="int8x6")):
        found = fused(*given, form=form)
    np.testing.assert_allclose(found, wanted, atol=1e-4)
    assert (found is c) == ("=" in form)
    if "=" not in form:
        np.testing.assert_array_equal(c, before)


def test_operands_that_the_sum_overwrites(gpu: FakeGpu) -> None:
    """All of the product is there before anything is written."""
    x = normal(M, M, dtype="d")
    wanted = x.copy()
    wanted[:, 50:] -= wanted[:, :50] @ wanted[:50, 50:]
    with use(Context(scheme="int8x6")):
        part = x[:, 50:]
        fused(part, x[:, :50], x[:50, 50:], form="c-=ab")
    assert gpu.launches
    np.testing.assert_allclose(x, wanted, atol=1e-3)


def test_columns_apart_in_one_array(gpu: FakeGpu) -> None:
    """They share no element: the bounds of their memory alone would not say so."""
    x = normal(M, 90, dtype="d")
    wanted = x.copy()
    b = normal(50, 40, dtype="d", seed=1)
    wanted[:, 50:] += wanted[:, :50] @ b
    with use(Context(scheme="int8x6")):
        fused(x[:, 50:], x[:, :50], b, form="c+=ab")
    np.testing.assert_allclose(x, wanted, atol=1e-4)


def test_what_cannot_be_written_to() -> None:
    a, b, c = operands("d")
    c.flags.writeable = False
    with use(Context(scheme="int8x6")), pytest.raises(ValueError, match="read-only"):
        fused(c, a, b, form="c+=ab")


def test_another_type_is_the_operators() -> None:
    a, b, _ = operands("f")
    c = normal(M, 40, dtype="d", seed=2)
    wanted = c + a @ b
    with use(Context(scheme="int8x6")):
        fused(c, a, b, form="c+=ab")
    assert c.dtype == "d"
    np.testing.assert_allclose(c, wanted, atol=1e-4)


def test_a_sum_is_moved_where_its_product_alone_would_not_be(
    monkeypatch: pytest.MonkeyPatch, gpu: FakeGpu
) -> None:
    """On the host it is the sum that takes long."""
    known = pays_from(1, staging=4 * break_even.SUMMED)
    monkeypatch.setattr(break_even, "figures", lambda name: known)
    monkeypatch.setattr(break_even, "FRESH", 1)
    a, b, c = normal(M, 2), normal(2, M), normal(M, M)
    wanted = c - a @ b
    with use(Context(scheme="int8x6")):
        alone = matmul(a, b)
        assert not gpu.launches
        fused(c, a, b, form="c-=ab")
        assert gpu.launches
    np.testing.assert_array_equal(alone, a @ b)
    np.testing.assert_allclose(c, wanted, atol=1e-4)
