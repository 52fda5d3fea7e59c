"""Mistakes in the runtime."""

from tests.mutants.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        name="abi: the mask of a scale word's significand has 10 bits",
        path="runtime/kernels/abi.py",
        old="SIGNIFICAND_MASK: Final = (1 << SIGNIFICAND_BITS) - 1",
        new="SIGNIFICAND_MASK: Final = (2 << SIGNIFICAND_BITS) - 1",
        tests=("tests/runtime/test_abi.py",),
    ),
    Mutant(
        name="break-even: small products from a thickness of 4",
        path="runtime/gpu/break_even.py",
        old="SMALL_THICKNESS = 40.0",
        new="SMALL_THICKNESS = 4.0",
        tests=("tests/runtime/gpu",),
    ),
)
