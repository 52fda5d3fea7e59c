"""Mistakes in the parts outside the runtime: passes, tuner and the face."""

from tests.mutants.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = ()
