"""What a tuning says of the whole program's time, beside that of its lowered products."""

import pytest

from mixpert_py.commands.tables import whole_program
from mixpert_py.tuner.ratio import Ratio
from mixpert_py.tuning.verify import Verification


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (1.5, ""),
        (1.9, " The program's own times vary by 200 ms, more than they differ."),
        (2.1, " The program's own times vary by 200 ms, more than they differ."),
        (2.5, " The program takes longer all the same: is the machine busy, or the run too short?"),
    ],
)
def test_a_program_may_not_gain_what_its_products_do(seconds: float, said: str) -> None:
    found = Verification(0.0, "c", 2.0, seconds, 0.2, 1.0, 0.5, Ratio(0.5))
    assert whole_program(found) == said
