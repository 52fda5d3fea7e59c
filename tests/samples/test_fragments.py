"""Fragment maps from what products of single elements show."""

import numpy as np
import pytest

from mixpert_py.errors import DeviceError
from mixpert_py.runtime.probes.gpu import Gpu
from samples.papers.fragments import deduced, mma, wmma
from tests.samples.documented_fragments import SHAPES, places, products


@pytest.mark.parametrize("element", SHAPES)
def test_the_documented_map_is_found(element: str) -> None:
    known = places(element)
    seen = products(known["A"], known["B"], known["C"], SHAPES[element])
    for part in deduced(seen, SHAPES[element]):
        np.testing.assert_array_equal(part.places, known[part.operand])


@pytest.mark.parametrize("element", SHAPES)
def test_any_other_map_is_found_but_for_the_order_of_rows_columns_and_k(element: str) -> None:
    random = np.random.default_rng(3)
    known = places(element)
    for name, old in known.items():
        known[name] = random.permutation(old.ravel()).reshape(old.shape)
    seen = products(known["A"], known["B"], known["C"], SHAPES[element])
    found = {part.operand: part.places for part in deduced(seen, SHAPES[element])}
    assert sorted(found["A"].ravel()) == sorted(known["A"].ravel())
    np.testing.assert_array_equal(
        products(found["A"], found["B"], found["C"], SHAPES[element]), seen
    )


def test_what_no_map_explains_is_refused() -> None:
    known = places("float16")
    seen = products(known["A"], known["B"], known["C"], SHAPES["float16"])
    stray = seen.copy()
    stray[:, 0, 127] = 16
    for broken in (
        stray,
        0 * seen,
        seen[:, :, :64].repeat(2, axis=2),
        seen[:, :128].repeat(2, axis=1),
    ):
        with pytest.raises(DeviceError, match="no fragment map explains"):
            deduced(broken, SHAPES["float16"])


@pytest.mark.gpu
def test_mma_fragments_are_those_that_ptx_documents() -> None:
    for number, (element, shape) in enumerate(SHAPES.items()):
        for part in mma(Gpu.current(), number, shape):
            np.testing.assert_array_equal(part.places, places(element)[part.operand])


@pytest.mark.gpu
def test_every_element_of_wmma_is_held_by_as_many_threads() -> None:
    for part in wmma(Gpu.current()):
        held = np.bincount(part.places.ravel(), minlength=256)
        assert len(held) == 256
        assert len(set(held)) == 1, part.operand
