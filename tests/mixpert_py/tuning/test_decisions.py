"""Labels, indices and truth values that depend on products may not change under a plan."""

from pathlib import Path

import pytest

from mixpert_py.errors import BudgetError
from mixpert_py.launch import launcher
from mixpert_py.tuner.records import (
    Measurement,
    Operator,
    Outcome,
    Reason,
    Trial,
    Verdict,
)
from mixpert_py.tuning.options import UNCHANGED, Limit, Limits, TuningOptions, limits_from
from mixpert_py.tuning.search import TuningResult, decisive_products
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
    return tuned_program(launcher.script("s.py"), options, cost=cost)


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
    refused = [trial for trial in found.outcome.trials if trial.reason is Reason.OVER_BUDGET]
    assert 0.1 < max(trial.measurement.errors["labels"] for trial in refused) < 1


@pytest.mark.usefixtures("program")
def test_a_share_that_is_named_may_change() -> None:
    found = tuned({None: 1e-4, "labels": 0.9})
    assert set(schemes(found).values()) == {"float32"}
    (labels,) = (value for value in found.plan.criterion if value.name == "labels")
    assert (labels.metric, labels.budget) == ("differing", 0.9)
    assert 0.1 < labels.achieved < 0.9


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


def outcome(*trials: tuple[dict[str, str], float]) -> Outcome:
    """The outcome of trials, each a plan of the sites that it lowers and the share of labels."""
    names = "abc"
    operators = [Operator(x, f"{x} @ {x}", local_errors={"low": ord(x) / 1e9}) for x in names]
    tried = tuple(
        Trial(
            {**dict.fromkeys(names, "native"), **plan},
            Measurement(1.0, 0.0, {}, errors={"labels": share, "x": 1e-7}),
        )
        for plan, share in [({}, 0.0), *trials]
    )
    start = tried[0]
    verdicts = tuple(Verdict(x, "native", "native", 1.0, 1.0, Reason.BOTTOM) for x in operators)
    return Outcome(start.plan, verdicts, tried, start.measurement, start.measurement, 1e-4)


LIMITS = Limits(Limit(1e-4), {"labels": UNCHANGED})
ALL_LOW = dict.fromkeys("abc", "low")


def test_the_runs_of_a_search_show_the_decisive_product() -> None:
    found = outcome((ALL_LOW, 0.5), ({"a": "low", "b": "low"}, 0.0))
    assert list(decisive_products(found, LIMITS)) == [
        "labels hangs on c @ c: under low, 50 % of it differ. --error labels=SHARE allows a share."
    ]


def test_where_the_search_lowered_several_products_no_one_is_named() -> None:
    (sentence,) = decisive_products(outcome((ALL_LOW, 0.5), ({"c": "low"}, 0.0)), LIMITS)
    assert sentence.startswith("labels hangs on several products: with all of them lowered, 50 %")


def test_what_is_allowed_hangs_on_no_product() -> None:
    assert not list(decisive_products(outcome((ALL_LOW, 0.0)), LIMITS))
    allowed = Limits(Limit(1e-4), {"labels": Limit(0.5, "differing")})
    assert not list(decisive_products(outcome((ALL_LOW, 0.5)), allowed))


@pytest.mark.usefixtures("program")
def test_a_tuning_says_on_which_product_a_decision_hangs() -> None:
    (note,) = (note for note in tuned({None: 1e-4}).notes if "hangs" in note)
    assert note.startswith("labels hangs on line 6, a @ w: under float32, ")
