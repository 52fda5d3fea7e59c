"""Every kind of stress for some seconds, and that each notices what is wrong."""

import numpy as np
import pytest

from mixpert_py.plan import Plan
from tests.benchmarks import stress
from tests.benchmarks.stress import KINDS, Case, Place, draw

PLACE = Place("reference", np, 160)


@pytest.mark.parametrize("kind", KINDS)
def test_no_fault_is_found(kind: str) -> None:
    seeds = {"products": 300, "threads": 3, "files": 300, "cold": 1, "streams": 1}
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


def test_a_lost_nan_is_found() -> None:
    one = case("int8x6", special="not finite")
    a, b = stress.operands(one, np)
    value = np.nan_to_num(PLACE.product(a, b, "int8x6"), posinf=0.0, neginf=0.0)
    assert "NaN or Inf" in next(stress.faults(np, one, a, b, value))


def test_an_error_that_is_none_of_ours_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: object) -> Plan:
        raise KeyError("site")

    kinds = {"plan.mixpert.toml": (stress.PLAN, broken)}
    monkeypatch.setattr(stress, "kinds_of_files", lambda: kinds)
    done, faults = stress.stress(PLACE, "files", 7, 10.0, 2)
    assert (done, len(faults)) == (2, 2)
    assert faults[0] == "seed 7: plan.mixpert.toml: KeyError: 'site'"


def test_seeds_draw_all_there_is() -> None:
    cases = [draw(seed, 200) for seed in range(600)]
    assert {one.scheme for one in cases} == set(stress.NAMES)
    assert {one.family for one in cases} == set(stress.ALL)
    assert {layout for one in cases for layout in one.layouts} == set(stress.LAYOUTS)
    assert any(0 in (one.m, one.k, one.n) for one in cases)
