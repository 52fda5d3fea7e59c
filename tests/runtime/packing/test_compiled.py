"""All kernels that Numba compiles, for a GPU that need not be there."""

from pathlib import Path

import pytest

from tests.every_check import EVERY_CHECK
from tests.runtime.packing.child import run

CHECKS = sorted(map(str, Path(__file__).parent.glob("*compiled_checks.py")))


def test_all_are_found() -> None:
    assert len(CHECKS) == 4


# One process where they take less time than it takes to begin.
@pytest.mark.parametrize("checks", [[one] for one in CHECKS] if EVERY_CHECK else [CHECKS])
def test_kernels_compile(checks: list[str]) -> None:
    assert "passed" in run(*checks, simulated=False)
