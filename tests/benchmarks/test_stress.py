"""Every kind of stress for some seconds, and that each notices what is wrong."""

from typing import Any

import numpy as np
import pytest

from tests.benchmarks import machine, random_products, stress
from tests.benchmarks.stress import KINDS, Case, Place

PLACE = Place("reference", np, 160)


@pytest.mark.parametrize("kind", KINDS)
def test_no_fault_is_found(kind: str) -> None:
    seeds = {"products": 300, "threads": 3}
    done, faults = stress.stress(PLACE, kind, 0, 15.0, seeds[kind])
    assert done >= min(seeds[kind], 20)
    assert faults == []


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_no_fault_is_found_on_a_gpu(kind: str) -> None:
    place = stress.here(1024)
    assert place.backend == "cuda"
    assert stress.stress(place, kind, 0, 10.0)[1] == []


def case(scheme: str, family: str = "normal", special: str = "") -> Case:
    return Case(1, scheme, family, "float32", 40, 64, 24, ((), ()), ("C", "C"), special, False)


@pytest.mark.parametrize("scheme", ["int8x6", "fp16x3", "faithful", "bf16x6"])
def test_a_wrong_product_is_found(scheme: str) -> None:
    one = case(scheme)
    a, b = stress.operands(one, np)
    value = PLACE.product(a, b, scheme)
    assert list(stress.faults(np, one, a, b, value)) == []
    assert list(stress.faults(np, one, a, b, value * np.float32(1 + 1e-3)))
    element = value.copy()
    element[3, 5] += 0.1
    assert "1 elements beyond" in next(stress.faults(np, one, a, b, element))
    coarse = PLACE.product(a, b, "int8x3")
    assert list(stress.faults(np, one, a, b, coarse))


class Skewed(Place):
    """A backend that rounds one half of a result otherwise."""

    def product(self, a: Any, b: Any, scheme: str, **given: Any) -> Any:
        value = super().product(a, b, scheme, **given)
        upper = np.triu(np.ones(value.shape[-2:], bool), 1)
        with np.errstate(all="ignore"):
            return np.where(upper, value * (1 + np.finfo(value.dtype).eps), value)


def test_a_product_that_is_not_its_own_mirror_image_is_found() -> None:
    found = [fault for seed in range(300) for fault in stress.products(PLACE, seed)]
    assert found == []
    skewed = Skewed("reference", np, 160)
    found = [fault for seed in range(300) for fault in stress.products(skewed, seed)]
    assert {"x @ x.T", "x.conj().T @ x"} <= {kind for kind in stress.MIRRORED if kind in str(found)}
    assert all("not symmetric" in fault for fault in found if "x @ x.T" in fault)


def test_processes_check_products_of_all_schemes() -> None:
    found = []
    for schemes in ((), ("crt14", "faithful")):
        check = random_products.Check(2, 0, 1.5, 64, schemes, reference=True)
        found += map(check, range(2))
    result = random_products.joined(found)
    assert result["faults"] == []
    text = random_products.markdown({**result, "machine": machine.machine()})
    count = sum(row["products"] for row in result["rows"])
    assert count > 0
    assert f"| all | {count:,} |" in text
