"""The grades themselves: FP32 earns all, and each trap catches the scheme it was set for."""

import numpy as np
import pytest

from mixpert_py.runtime.reference.reference import multiply
from tests.runtime.emulations import EMULATIONS
from tests.runtime.families import EVERYDAY, FAMILIES
from tests.runtime.grades import grades


def earned(name: str, family: str, k: int = 128) -> str:
    a, b = (x.astype(np.float32) for x in FAMILIES[family](np.random.default_rng(1), 48, k, 40))
    return grades(a, b, multiply(a, b, EMULATIONS[name]).value)


@pytest.mark.parametrize("name", ["int8x6", "int8x8", "int8x10", "fp16x3"])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("k", [64, 256])
def test_row_and_column_wise(name: str, family: str, k: int) -> None:
    assert "B" in earned(name, family, k)


@pytest.mark.parametrize(
    ("name", "grade"),
    [("bf16x6", "A"), ("bf16x9", "A"), ("tf32x3", "A"), ("fp16x3", "A"), ("int8x6", "B"),
     ("int8x8", "B"), ("int8x10", "B")],
)  # fmt: skip
@pytest.mark.parametrize("k", [16, 1024])
def test_grades_count_from_16_on(name: str, grade: str, k: int) -> None:
    every = {**FAMILIES, **EVERYDAY}
    for family in every:
        a, b = (x.astype(np.float32) for x in every[family](np.random.default_rng(2), 24, k, 20))
        assert grade in grades(a, b, multiply(a, b, EMULATIONS[name]).value), family
