"""All kernels that Numba compiles, for a GPU that need not be there."""

from pathlib import Path

from tests.runtime.packing.child import run

CHECKS = sorted(Path(__file__).parent.glob("*compiled_checks.py"))


def test_all_are_found() -> None:
    assert len(CHECKS) == 4


def test_kernels_compile() -> None:
    """In one process: Numba's first compilation in each takes seconds more than the others."""
    assert "passed" in run(*map(str, CHECKS), simulated=False)
