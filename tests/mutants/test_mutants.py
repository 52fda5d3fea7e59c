"""That every mutant can be made: the text that it changes stands in its file, once."""

from pathlib import Path

import pytest

from tests.mutants.__main__ import MUTANTS, ROOT
from tests.mutants.mutant import Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_can_be_made(mutant: Mutant) -> None:
    assert (ROOT / mutant.path).read_text("utf-8").count(mutant.old) == 1
    assert all(Path(ROOT, test).exists() for test in mutant.tests)
