"""From a program to its plan, in one call; a clock for it, and a program of two products."""

from pathlib import Path
from typing import Any

import pytest

from mixpert_py.execution.worker import SiteResult
from mixpert_py.launch.program import Program, script
from mixpert_py.plan import Plan
from mixpert_py.tuning.clock import Cost
from mixpert_py.tuning.experiment import RunSettings
from mixpert_py.tuning.options import Limit, Limits, TuningOptions
from mixpert_py.tuning.prepare import prepare
from mixpert_py.tuning.search import TuningResult, tune_program


def float32_is_faster(site: str, trace: SiteResult, scheme: str) -> float:
    """An injected clock: float32 takes half of a native product's time."""
    return 1.0 if scheme == "float32" else 2.0


def tuned_program(
    program: Program,
    options: TuningOptions,
    cost: Cost | None = None,
    existing: Plan | None = None,
    **runs: Any,
) -> TuningResult:
    """runs: as for `RunSettings`, the rest as for `prepare`; the program has a product to tune."""
    prepared = prepare(program, options, existing, RunSettings(**runs), cost)
    assert not isinstance(prepared, str)
    return tune_program(prepared)


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
