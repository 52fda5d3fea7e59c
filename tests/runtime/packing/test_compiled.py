"""All kernels that Numba compiles, for a GPU that need not be there."""

from pathlib import Path

from tests.runtime.packing.child import run


def test_kernels_compile() -> None:
    """In one process: much of what they call is the same, and compiled once."""
    checks = sorted(map(str, Path(__file__).parent.glob("*compiled_checks.py")))
    assert len(checks) == 4
    assert "passed" in run(*checks, simulated=False)
