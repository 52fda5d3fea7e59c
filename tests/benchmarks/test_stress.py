"""Every kind of stress for some seconds, and that each notices what is wrong."""

from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from tests.benchmarks import stress
from tests.benchmarks.stress import KINDS, Case, Place, Stress
from tests.runtime.gpu.fake import FakeGpu

PLACE = Place("reference", np, 160)


@pytest.mark.parametrize("kind", KINDS)
def test_no_fault_is_found(kind: str) -> None:
    seeds = {"products": 300, "threads": 3}
    found = Stress(kind, 15.0, largest=160, reference=True, most=seeds[kind])()
    assert found.seeds >= min(seeds[kind], 20)
    assert found.faults == []


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_no_fault_is_found_on_a_gpu(kind: str) -> None:
    found = Stress(kind, 10.0, largest=1024)()
    assert found.backend == "cuda"
    assert found.faults == []


def case(scheme: str, family: str = "normal", special: str = "") -> Case:
    return Case(1, scheme, family, "float32", 40, 64, 24, ((), ()), ("C", "C"), special, False)


@pytest.mark.parametrize("scheme", ["int8x6", "fp16x3", "faithful", "bf16x6"])
def test_a_wrong_product_is_found(scheme: str) -> None:
    one = case(scheme)
    a, b = stress.operands(one, np)
    value = PLACE.product(a, b, scheme)
    assert list(stress.faults(one, a, b, value)) == []
    assert list(stress.faults(one, a, b, value * np.float32(1 + 1e-3)))
    element = value.copy()
    element[3, 5] += 0.1
    assert "1 elements beyond" in next(stress.faults(one, a, b, element))
    element[3, 5], ratios = np.nan, [0.0]
    assert list(stress.faults(one, a, b, element, ratios))
    assert max(ratios) == np.inf
    coarse = PLACE.product(a, b, "int8x3")
    assert list(stress.faults(one, a, b, coarse))


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


# On a GPU: products that were wrong, or taken to be.
RIGHT = {
    "crt, complex zeros": (28247, 48550, 53029, 56159),
    "crt, an einsum that is native": (16058, 29426),
    "int8x6, rows that leave the slices": (268020, 519765),
    "halves below their smallest number": (550917,),
    "norms of two elements": (165904, 901505, 299020, 324086),
}


@pytest.mark.parametrize("kind", RIGHT)
def test_right_products_are_no_faults(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    place = Place("cuda", FakeGpu().install(monkeypatch), 320)
    assert [fault for seed in RIGHT[kind] for fault in stress.products(place, seed)] == []


def test_processes_share_the_products() -> None:
    options = "--reference --only products --minutes 0.02 --largest 64 --processes 2"
    result = CliRunner().invoke(stress.command, options, standalone_mode=False)
    assert result.return_value == 0
    first, *_, last = result.output.splitlines()
    count = int(first.removeprefix("products on reference: ").partition(" ")[0])
    assert first.endswith(f": {count} seeds, 0 faults")
    assert last == f"| all | {count:,} |  |"
    each = (
        Stress("products", 0.0, 3, 64, reference=True, processes=2)(number) for number in (0, 1)
    )
    assert [found.seeds for found in each] == [1, 1]
