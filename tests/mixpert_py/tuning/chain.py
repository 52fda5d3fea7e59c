"""A program of two products, and a tuning of it."""

from pathlib import Path

import pytest

from mixpert_py.launch.program import script
from mixpert_py.plan import Plan
from mixpert_py.tuning.clock import Cost
from mixpert_py.tuning.options import Limit, Limits, TuningOptions
from mixpert_py.tuning.search import TuningResult
from tests.mixpert_py.tuning.tuned_program import tuned_program

CHAIN = """\
import numpy as np
rng = np.random.default_rng(0)
a = rng.standard_normal((160, 160))
b = a @ a
c = b.dot(a)
"""


def tuned(
    path: Path, budget: float, cost: Cost | None, existing: Plan | None = None
) -> TuningResult:
    return tuned_program(
        script(str(path)),
        TuningOptions(Limits(Limit(budget))),
        existing=existing,
        cost=cost,
    )


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    path = tmp_path / "chain.py"
    path.write_text(CHAIN)
    return path
