"""What a tuning compares, value by value, and decisions that may not change under a plan."""

import json
from contextlib import suppress
from math import inf, nan
from pathlib import Path

import pytest

from mixpert_py import plan
from mixpert_py.errors import BudgetError, ProgramError
from mixpert_py.launch.program import script
from mixpert_py.tuner.records import StopReason
from mixpert_py.tuning.options import UNCHANGED, Limit, Limits, TuningOptions, limits_from
from mixpert_py.tuning.search import TuningResult
from mixpert_py.tuning.trials import Trials
from mixpert_py.tuning.verify import criteria
from tests.mixpert_py.command import Mixpert
from tests.mixpert_py.tuning.tuned_program import float32_is_faster, tuned_program

# Two products that nothing joins: each shows in a value of its own.
APART = """\
import numpy as np
rng = np.random.default_rng(0)
a = rng.standard_normal((160, 160))
logits = a @ a
loss = a.dot(a.T)
"""
ALL = Limits(Limit(1e-4))


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "s.py"
    path.write_text(APART)
    return path


def tuned(limits: Limits, *compare: str, **more: object) -> TuningResult:
    # Greedy: it tries every product by itself, whatever is predicted.
    options = TuningOptions(limits, compare, search="greedy", **more)  # type: ignore[arg-type]
    return tuned_program(script("s.py"), options, cost=float32_is_faster)


def schemes(found: TuningResult) -> dict[str, str]:
    sites = found.plan.schemes().items()
    return {site.partition("/")[2].partition("~")[0]: scheme for site, scheme in sites}


def achieved(found: TuningResult) -> dict[str, float]:
    return {value.name: value.achieved for value in found.plan.criterion}


@pytest.mark.usefixtures("program")
@pytest.mark.parametrize(("strict", "kept"), [("logits", "matmul"), ("loss", "dot")])
def test_each_value_has_its_own_budget(strict: str, kept: str) -> None:
    found = tuned(Limits(Limit(1e-4), {strict: Limit(1e-12)}))
    lowered = {"matmul": "dot", "dot": "matmul"}[kept]
    assert schemes(found) == {kept: "native", lowered: "float32"}
    values = {value.name: value for value in found.plan.criterion}
    assert values.keys() == {"logits", "loss"}
    assert (values.pop(strict).budget, values.popitem()[1].budget) == (1e-12, 1e-4)
    assert achieved(found)[strict] == 0
    assert 1e-8 < max(achieved(found).values()) < 1e-6
    # What the search went by is a share of a budget.
    assert found.outcome.budget == 1.0
    assert found.outcome.verdicts[0].operator.sensitivity == pytest.approx(1e12)
    assert found.verification.error == pytest.approx(max(achieved(found).values()) / 1e-4)


def test_a_value_that_only_some_runs_show_rejects(program: Path) -> None:
    program.write_text(
        f"{APART}exact = (a[:, None, :] * a).sum(2)\nif abs(loss - exact).max() > 1e-9:\n"
        "    del loss\n"
    )
    found = tuned(Limits(None, {"loss": Limit(1e9), "logits": Limit(1.0)}))
    assert schemes(found) == {"matmul": "float32", "dot": "native"}
    failed = [trial for trial in found.outcome.trials if trial.reason is StopReason.FAILED]
    assert "no value 'loss' to judge" in str(failed[0].measurement.problem)


def test_noise_is_held_against_the_budget_of_its_value(program: Path) -> None:
    # Every other run is off by 1e-6; random noise would now and then be too small to tell.
    runs = program.with_name("runs")
    program.write_text(
        f"{APART}with open({str(runs)!r}, 'a') as file:\n"
        "    logits = logits * (1 + 1e-6 * (file.tell() % 2))\n    _ = file.write('x')\n"
    )
    assert schemes(tuned(Limits(Limit(1e-4), {"loss": Limit(1e-9)})))["dot"] == "native"
    with pytest.raises(BudgetError, match=r"'logits' differs by 1e-06 .* half the budget of 1e-08"):
        tuned(Limits(Limit(1e-4), {"logits": Limit(1e-8)}))


def test_a_hold_out_has_budgets_by_value_too(program: Path) -> None:
    program.write_text(APART.replace("loss = a.dot(a.T)", "import sys\nloss = a.dot(a.T)\n"
                       "loss *= 1 + (len(sys.argv) > 1) * (abs(loss[0, 0]) > 0)"))  # fmt: skip
    held = tuned(ALL, hold_outs=(("x",),))
    assert schemes(held) == {"matmul": "float32", "dot": "float32"}
    assert {value.name for value in held.plan.criterion if value.holdout} == {"logits", "loss"}


@pytest.mark.usefixtures("program")
def test_budgets_from_the_command_line(mixpert: Mixpert) -> None:
    options = "--error", "1e-3", "--error", "loss=1e-5", "--criterion", "loss=max"
    said = mixpert("tune", *options, "--backend", "reference", "s.py")
    assert said.code == 0, said
    assert " % of their budgets, " in " ".join(said.out.split())
    assert "  logits: frobenius error " in said.out
    assert "  loss: max error " in said.out
    made = plan.load("s.mixpert.toml")
    budgets = {value.name: (value.metric, value.budget) for value in made.criterion}
    assert budgets == {"logits": ("frobenius", 1e-3), "loss": ("max", 1e-5)}
    assert all(0 < value.achieved <= value.budget for value in made.criterion)
    assert mixpert("verify", "s.mixpert.toml", "s.py").code == 0
    found = json.loads(mixpert("report", "s.mixpert.toml", "--json").out)
    assert (found["criterion"], found["budget"]) == (None, 1.0)
    assert 0 < found["error"] <= 1
    assert {value["name"] for value in found["values"]} == {"logits", "loss"}
    report = mixpert("report", "s.mixpert.toml").out
    assert " % of their budgets" in report
    assert "loss: max error" in report


def test_what_could_not_be_compared_is_as_far_off_as_can_be() -> None:
    errors = {"x": nan, "y": 1e-5}
    (x, y) = criteria(ALL, "float64", errors, {"x": nan})
    assert (x.achieved, x.holdout, y.achieved, y.holdout) == (inf, inf, 1e-5, None)


def test_every_array_of_an_npz_file_is_a_value(program: Path) -> None:
    program.write_text(f"{APART}np.savez('out.npz', x=logits, y=loss)\n")
    found = tuned(Limits(Limit(1e-4), {"out.npz:y": Limit(1e-12)}), "out.npz")
    assert achieved(found).keys() == {"out.npz:x", "out.npz:y"}
    assert schemes(found) == {"matmul": "float32", "dot": "native"}


def test_a_csv_file(program: Path) -> None:
    program.write_text(
        f"{APART}np.savetxt('out.csv', loss, delimiter=',', fmt='%.17g', header='a table')\n"
    )
    found = tuned(Limits(Limit(1e-12)), "out.csv")
    assert schemes(found) == {"matmul": "float32", "dot": "native"}
    assert achieved(found) == {"out.csv": 0}


BROKEN = [
    ("x.csv", "pass", "x.csv: not written by the program"),
    ("x.npz", "np.savez('x.npz', t=np.array('t'))", "x.npz:t: not a .npz file of numbers"),
    ("x.npz", "open('x.npz', 'w').write('PK\\3\\4')", "x.npz: not a .npz file of numbers"),
]


@pytest.mark.parametrize(("name", "statement", "word"), BROKEN)
def test_a_file_that_holds_no_numbers(
    program: Path, mixpert: Mixpert, name: str, statement: str, word: str
) -> None:
    program.write_text(f"{APART}{statement}\n")
    (program.parent / name).write_text("1,2\n")  # of an earlier run: it does not count
    said = mixpert("tune", "--error", "1", "--compare", name, "s.py")
    assert said.code == 2
    assert word in said.one_clear_line()


def test_the_numbers_that_are_printed(program: Path) -> None:
    program.write_text(f"{APART}print('loss', loss[0, 0])\nprint(loss[0, 1].item(), 'it was')\n")
    found = tuned(Limits(Limit(1e-12)), "stdout")
    assert schemes(found) == {"matmul": "float32", "dot": "native"}
    assert achieved(found) == {"stdout": 0}
    assert 1e-9 < max(trial.measurement.error for trial in found.outcome.trials) < 1e-5


def test_times_that_are_printed_vary(program: Path) -> None:
    program.write_text(f"{APART}import time\nprint('start')\nprint('took', time.time_ns())\n")
    with pytest.raises(BudgetError, match=r"'stdout' differs by .* native runs, .*print no times"):
        tuned(Limits(Limit(1e-15)), "stdout")
    program.write_text(f"{APART}import time\nprint(1)\nprint('9 ' * (time.time_ns() % 9973))\n")
    with pytest.raises(BudgetError, match=r"differ: stdout: shape "):
        tuned(ALL, "stdout")


def test_sinks_are_compared_when_asked_for(program: Path) -> None:
    program.write_text(f"{APART}import mixpert_py\nmixpert_py.observe('one', 1.0)\n")
    assert achieved(tuned(ALL)).keys() == {"one"}
    names = achieved(tuned(ALL, "sinks")).keys()
    assert {name.partition("~")[0] for name in names} == {
        "one",
        "s:<module>/matmul",
        "s:<module>/dot",
    }
    program.write_text(APART.replace("rng.standard_normal((160, 160))", "np.eye(9, dtype=int)"))
    with pytest.raises(ProgramError, match="has no numeric value for sinks"):
        tuned(ALL, "sinks")


class Resumed:
    """A tuning that goes on from the file of trials, and is interrupted after so many runs."""

    def __init__(self, limits: Limits, runs: int) -> None:
        self.said: list[str] = []
        self.left = runs
        self.found: TuningResult | None = None
        trials = Trials(Path("t.db"), resume=True, say=self.said.append)
        program, options = script("s.py"), TuningOptions(limits, search="greedy")
        with suppress(KeyboardInterrupt):
            self.found = tuned_program(
                program, options, float32_is_faster, on_run=self.on_run, trials=trials
            )

    def on_run(self, purpose: str) -> None:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt


@pytest.mark.usefixtures("program")
def test_resuming_tells_limits_apart_and_keeps_every_error() -> None:
    limits = Limits(Limit(1e-4), {"loss": Limit(1e-12)})
    interrupted = Resumed(limits, 5).found
    assert interrupted is not None
    assert interrupted.outcome.interrupted
    for other in (Limits(Limit(1e-4), {"loss": Limit(1e-11)}), Limits(Limit(1e-4))):
        assert "no unfinished tuning" in Resumed(other, 0).said[0]
    resumed = Resumed(limits, 99)
    assert "goes on; runs made: 5" in resumed.said[0]
    assert resumed.found is not None
    undisturbed = tuned(limits)
    assert achieved(resumed.found) == achieved(undisturbed)
    assert resumed.found.outcome.trials == undisturbed.outcome.trials


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
def near_ties(tmp_path: Path) -> Path:
    path = tmp_path / "s.py"
    path.write_text(NEAR_TIES.format(dtype=""))
    return path


def decided(budgets: dict[str | None, float], **more: object) -> TuningResult:
    options = TuningOptions(limits_from(budgets, {}), **more)  # type: ignore[arg-type]
    cost = None if "backend" in more else float32_is_faster
    return tuned_program(script("s.py"), options, cost=cost)


@pytest.mark.usefixtures("near_ties")
def test_a_product_that_changes_a_label_stays_native() -> None:
    found = decided({None: 1e-4})
    assert schemes(found) == {"matmul": "native", "dot": "float32"}
    assert found.limits.of("labels") == UNCHANGED
    achieved = {value.name: (value.metric, value.achieved) for value in found.plan.criterion}
    assert achieved["labels"] == ("differing", 0.0)
    assert achieved["gram"][0] == "frobenius"
    refused = [trial for trial in found.outcome.trials if trial.reason is StopReason.OVER_BUDGET]
    assert 0.1 < max(trial.measurement.errors["labels"] for trial in refused) < 1


def test_decisions_are_held_against_the_program_as_it_is(near_ties: Path) -> None:
    # With the products in float64 other columns win: that is not the plan's doing.
    near_ties.write_text(NEAR_TIES.format(dtype=".astype(np.float32)"))
    found = decided({None: 1e-4}, backend="reference")
    assert found.outcome.start.errors["labels"] == 0
    assert found.outcome.start.errors["gram"] > 0
    assert schemes(found)["dot"] != "native"


def test_decisions_that_differ_by_themselves_are_refused(near_ties: Path) -> None:
    near_ties.write_text(
        f"{near_ties.read_text()}labels[0] = np.random.default_rng().integers(2**60)\n"
    )
    with pytest.raises(BudgetError, match=r"'labels' differs .* a share of it \(--error labels=SH"):
        decided({None: 1e-4})
