"""All kernels that Numba compiles, for a GPU that need not be there."""

from pathlib import Path

import pytest

from tests.runtime.packing.child import run

CHECKS = sorted(Path(__file__).parent.glob("*compiled_checks.py"))


def test_all_are_found() -> None:
    assert len(CHECKS) == 4


@pytest.mark.parametrize("checks", CHECKS, ids=lambda path: path.stem)
def test_kernels_compile(checks: Path) -> None:
    assert "passed" in run(str(checks), simulated=False)
