"""From a program to its plan, in one call."""

from typing import Any

from mixpert_py.launch.launcher import Program
from mixpert_py.tuning.preparation import prepare
from mixpert_py.tuning.tuning import Tuned, tune_program
from mixpert_py.tuning.wish import Wish


def tuned_program(program: Program, wish: Wish, *rest: Any, **more: Any) -> Tuned:
    """The rest as for `prepare`; the program has a product to tune."""
    prepared = prepare(program, wish, *rest, **more)
    assert prepared is not None
    return tune_program(prepared)
