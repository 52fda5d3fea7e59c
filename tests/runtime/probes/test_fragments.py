"""Fragment maps from what products of single elements show, and how they are drawn."""

from typing import Any

import numpy as np
import pytest

from mixpert_py.errors import DeviceError
from mixpert_py.runtime.probes.fragments import Fragment, deduced, table
from tests.runtime.probes.documented import SHAPES, places, products


def fragments(found: dict[str, Any], element: str) -> list[Fragment]:
    m, n, k = SHAPES[element]
    sizes = {"A": (m, k), "B": (k, n), "C": (m, n)}
    return [Fragment(name, *sizes[name], found[name]) for name in "ABC"]


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


def test_the_table_names_thread_and_element() -> None:
    a, b, c = fragments(places("float16"), "float16")
    lines = table("x", a).splitlines()
    assert lines[0] == "x, A (16 × 16), thread:element"
    assert lines[1].split()[:4] == ["0:0", "0:1", "1:0", "1:1"]
    assert lines[9].split()[8:10] == ["0:6", "0:7"]
    assert len(table("x", b).splitlines()) == 17
    twice = Fragment("C", 16, 8, np.concatenate([c.places, c.places], axis=1))
    assert table("x", twice).splitlines()[0].endswith("each held 2 times")
    assert twice.holders()[0][1] == [(0, 1), (0, 5)]
