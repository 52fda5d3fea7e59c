"""The registry: names, order, ladders, and the slice products that every scheme really makes."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from mixpert_py.errors import PlanError
from mixpert_py.runtime.reference import engine
from mixpert_py.runtime.reference.reference import multiply
from mixpert_py.runtime.scheme import Alternative, Scheme
from mixpert_py.runtime.schemes import SCHEMES, get, ladder, schemes
from tests.runtime.emulations import ALL
from tests.runtime.families import Array

PRODUCTS = {
    "fp16": 1,
    "markidis-a": 2,
    "markidis-ab": 4,
    "markidis-trunc": 4,
    "egemm": 4,
    "legemm": 3,
    "ootomo": 3,
    "tf32x3": 3,
    "bf16x6": 6,
    "bf16x9": 9,
    "mixpert-I": 4,
    "mixpert-II": 6,
    "mixpert-III": 6,
    "mixpert-IV": 8,
    "mixpert-full": 10,
    "int8x1": 1,
    "int8x3": 3,
    "int8x6": 6,
    "int8x8": 8,
    "int8x10": 10,
    "fp16x3": 3,
    **{f"crt{count}": count for count in range(7, 17)},
}


def holds(slices: Array, element: str) -> bool:
    """Whether float32 values are all values of an element type."""
    if element == "int8":
        return bool((slices == slices.astype(np.int8)).all())
    if element == "float16":
        return bool((slices == slices.astype(np.float16)).all())
    spare = {"bfloat16": 16, "tf32": 13}[element]
    return not (np.ascontiguousarray(slices).view(np.uint32) & ((1 << spare) - 1)).any()


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_slice_products(name: str, dtype: type, monkeypatch: pytest.MonkeyPatch) -> None:
    m, k, n = 48, 512, 40
    scheme = ALL[name]
    made = 0

    def counted(left: Array, right: Array, out: Array) -> None:
        nonlocal made
        assert left.dtype == right.dtype == out.dtype == np.float32
        assert holds(left, scheme.element.name)
        assert holds(right, scheme.element.name)
        made += left.shape[0] * right.shape[0] * left.shape[1]
        original(left, right, out)

    original = engine.slice_product
    monkeypatch.setattr(engine, "slice_product", counted)
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
    product = multiply(a, b, scheme)
    assert made == PRODUCTS[name] * m * k * n
    assert product.terms == scheme.products == PRODUCTS[name]


def test_every_emulation_is_in_the_table() -> None:
    assert set(ALL) == set(PRODUCTS)


def test_names_run_from_best_to_worst() -> None:
    errors = [get(name).error for name in schemes()]
    assert errors == sorted(errors)
    assert schemes()[0] == "native"
    assert schemes()[-1] == "int8x1"


def test_alternatives_tell_themselves_apart() -> None:
    kinds = {name: entry.kind for name, entry in SCHEMES.items() if isinstance(entry, Alternative)}
    assert kinds == {
        "native": "native",
        "float64": "cast",
        "float32": "cast",
        "faithful": "choice",
        "crt": "choice",
        "exact": "exact",
        "blas": "own",
    }
    assert {entry.kind for entry in SCHEMES.values() if isinstance(entry, Scheme)} == {"emulation"}


@pytest.mark.parametrize(
    ("name", "cost"),
    [("int8x6", 6.0), ("egemm", 4 * 1928 / 840), ("tf32x3", 3 * 1928 / 454), ("native", 1928 / 51)],
)
def test_cost_is_time_over_one_int8_product(name: str, cost: float) -> None:
    assert get(name).cost == pytest.approx(cost)


def test_ladders() -> None:
    assert ladder("mixpert") == (
        ("native",),
        ("mixpert-full",),
        ("mixpert-IV",),
        ("mixpert-II", "mixpert-III"),
        ("mixpert-I",),
    )
    assert ladder("int8")[:3] == (("native",), ("int8x10",), ("faithful",))
    assert ladder("crt")[:3] == (("native",), ("crt16",), ("crt15",))
    assert ladder("crt")[-5:] == (("crt7",), *ladder("int8")[2:])
    assert ladder("fp16") == (("native",), ("fp16x3",), ("fp16",))
    assert ladder("cpu") == (("native",), ("exact",), ("blas",), ("float32",))


@pytest.mark.parametrize("name", ["mixpert", "int8", "crt", "cpu"])
def test_ladders_descend(name: str) -> None:
    rungs: list[list[Any]] = [[get(scheme) for scheme in rung] for rung in ladder(name)]
    for upper, lower in pairwise(rungs):
        assert max(entry.error for entry in upper) <= min(entry.error for entry in lower)
        assert max(entry.cost for entry in upper) >= min(entry.cost for entry in lower)


def test_no_rung_for_float64_is_dominated() -> None:
    """None is slower and less accurate than another; int8x10 and int8x8 would be."""
    rungs: list[Any] = [get(scheme) for rung in ladder("crt")[1:] for scheme in rung]
    for one in rungs:
        assert not any(it.error <= one.error and it.cost < one.cost for it in rungs)
    for name in ("int8x10", "int8x8"):
        left_out = get(name)
        assert any(it.error < left_out.error and it.cost <= left_out.cost for it in rungs)


def test_unknown_names() -> None:
    with pytest.raises(PlanError, match=r"unknown scheme 'int9'.*int8x6"):
        get("int9")
    with pytest.raises(PlanError, match=r"unknown ladder 'x'.*mixpert, int8, crt, fp16, cpu"):
        ladder("x")
