"""Rungs above and below a scheme."""

import pytest

from mixpert_py.errors import PlanError
from mixpert_py.tuner.records import Ladder

LADDER = Ladder((("native",), ("II", "III"), ("I",)))


def test_below_and_above() -> None:
    assert LADDER.top == "native"
    assert LADDER.below("s", "native") == (("II", "III"), ("I",))
    assert LADDER.below("s", "III") == (("I",),)
    assert LADDER.below("s", "I") == ()
    assert LADDER.above("s", "I") == ("II", "III")
    assert LADDER.above("s", "II") == ("native",)
    assert LADDER.above("s", "native") == ()


def test_a_scheme_that_is_not_on_it() -> None:
    with pytest.raises(PlanError, match=r"^s: scheme 'fp16' is not on the ladder native, II, III"):
        LADDER.below("s", "fp16")
