"""The grades themselves: FP32 earns all, and each trap catches the scheme it was set for."""

import numpy as np
import pytest

from mixpert_py.runtime.emulation.reference import multiply
from tests.runtime.emulations import EMULATIONS
from tests.runtime.families import FAMILIES
from tests.runtime.grades import grades


def earned(name: str, family: str, k: int = 128) -> str:
    a, b = (x.astype(np.float32) for x in FAMILIES[family](np.random.default_rng(1), 48, k, 40))
    return grades(a, b, multiply(a, b, EMULATIONS[name]).value)


@pytest.mark.parametrize("family", FAMILIES)
def test_single_precision_earns_all(family: str) -> None:
    a, b = (x.astype(np.float32) for x in FAMILIES[family](np.random.default_rng(1), 48, 128, 40))
    assert grades(a, b, a @ b) == "ABC"


def test_grades_of_known_errors() -> None:
    a, b = np.ones((2, 4)), np.ones((4, 2))
    a[0] = 1e-6
    exact = a @ b
    assert grades(a, b, exact) == "ABC"
    assert grades(a, b, exact + np.array([[1e-8, 0], [0, 0]])) == "C"
    assert grades(a, b, exact + np.array([[0, 0], [0, 1e-4]])) == ""


@pytest.mark.parametrize("name", ["int8x6", "int8x8", "int8x10", "fp16x3"])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("k", [64, 256])
def test_row_and_column_wise(name: str, family: str, k: int) -> None:
    assert "B" in earned(name, family, k)


@pytest.mark.parametrize(
    ("name", "family", "lost"),
    [
        ("mixpert-IV", "scaled rows", "B"),  # one exponent for a tile of rows
        ("int8x6", "circulant", "A"),  # one exponent for a row
        ("fp16", "uniform [0, 1)", "B"),
        ("egemm", "below half's range", "C"),  # FP16's floor
        ("int8x3", "normal", "B"),
    ],
)
def test_traps(name: str, family: str, lost: str) -> None:
    assert lost not in earned(name, family)
