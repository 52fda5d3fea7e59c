"""Labels, indices and truth values that depend on products may not change under a plan."""

from pathlib import Path

import pytest

from mixpert_py.errors import BudgetError
from mixpert_py.launch.program import script
from mixpert_py.tuner.records import StopReason
from mixpert_py.tuning.options import UNCHANGED, TuningOptions, limits_from
from mixpert_py.tuning.search import TuningResult
from tests.mixpert_py.tuning.tuned_program import float32_is_faster, tuned_program

# Every other column nearly ties with the one before it. The second product decides nothing.
NEAR_TIES = """\
import numpy as np
rng = np.random.default_rng(0)
a = rng.standard_normal((400, 160)){dtype}
w = rng.standard_normal((160, 160)){dtype}
w[:, 1::2] = w[:, ::2] * (1 + 1e-8) + 1e-7 * rng.standard_normal((160, 80))
labels = (a @ w).argmax(1)
gram = a.T.dot(a)
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "s.py"
    path.write_text(NEAR_TIES.format(dtype=""))
    return path


def tuned(budgets: dict[str | None, float], **more: object) -> TuningResult:
    options = TuningOptions(limits_from(budgets, {}), **more)  # type: ignore[arg-type]
    cost = None if "backend" in more else float32_is_faster
    return tuned_program(script("s.py"), options, cost=cost)


def schemes(found: TuningResult) -> dict[str, str]:
    """Kind of product → scheme."""
    sites = found.plan.schemes().items()
    return {site.partition("/")[2].partition("~")[0]: scheme for site, scheme in sites}


@pytest.mark.usefixtures("program")
def test_a_product_that_changes_a_label_stays_native() -> None:
    found = tuned({None: 1e-4})
    assert schemes(found) == {"matmul": "native", "dot": "float32"}
    assert found.limits.of("labels") == UNCHANGED
    achieved = {value.name: (value.metric, value.achieved) for value in found.plan.criterion}
    assert achieved["labels"] == ("differing", 0.0)
    assert achieved["gram"][0] == "frobenius"
    refused = [trial for trial in found.outcome.trials if trial.reason is StopReason.OVER_BUDGET]
    assert 0.1 < max(trial.measurement.errors["labels"] for trial in refused) < 1


def test_decisions_are_held_against_the_program_as_it_is(program: Path) -> None:
    # With the products in float64 other columns win: that is not the plan's doing.
    program.write_text(NEAR_TIES.format(dtype=".astype(np.float32)"))
    found = tuned({None: 1e-4}, backend="reference")
    assert found.outcome.start.errors["labels"] == 0
    assert found.outcome.start.errors["gram"] > 0
    assert schemes(found)["dot"] != "native"


def test_decisions_that_differ_by_themselves_are_refused(program: Path) -> None:
    program.write_text(
        f"{program.read_text()}labels[0] = np.random.default_rng().integers(2**60)\n"
    )
    with pytest.raises(BudgetError, match=r"'labels' differs .* a share of it \(--error labels=SH"):
        tuned({None: 1e-4})
