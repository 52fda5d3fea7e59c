"""The staircase of a program: its steps are verified by whole runs, and noise is no gain."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from mixpert_py.execution.executor import ProgramRun
from mixpert_py.launch import launcher
from mixpert_py.tuner.ratio import Ratio
from mixpert_py.tuner.report.record import read
from mixpert_py.tuning import front as module
from mixpert_py.tuning.baseline import Cost
from mixpert_py.tuning.front import FrontResult, tune_front
from mixpert_py.tuning.options import Limit, Limits, TuningOptions
from mixpert_py.tuning.paired import PairedTimes
from mixpert_py.tuning.prepare import Prepared, prepare
from mixpert_py.tuning.record import front_record
from mixpert_py.tuning.verify import LEAST_PAIRS, MOST_PAIRS, check_plan
from tests.mixpert_py.tuning.chain import chain as chain
from tests.mixpert_py.tuning.test_pace import FASTER, SITES, SLOWER, WIDE
from tests.mixpert_py.tuning.tuned_program import float32_is_faster

OPTIONS = TuningOptions(Limits(Limit(0.1)), front=True)


def prepared(path: Path, cost: Cost | None, options: TuningOptions = OPTIONS) -> Prepared:
    found = prepare(launcher.script(str(path)), options, cost=cost)
    assert not isinstance(found, str)
    return found


def paired(*ratios: Ratio) -> PairedTimes:
    """Each of the two products takes 10 s natively."""
    return PairedTimes(
        dict.fromkeys(SITES, 10.0),
        {site: {"float32": ratio} for site, ratio in zip(SITES, ratios, strict=True)},
    )


def says(monkeypatch: pytest.MonkeyPatch, *ratios: Ratio) -> None:
    """Let comparisons of runs have these ratios, the last one again and again."""
    left = list(ratios)

    def of(*runs: object) -> Ratio:
        return left.pop(0) if len(left) > 1 else left[0]

    monkeypatch.setattr(module, "pair_ratio", of)


def schemes(found: FrontResult) -> list[list[str]]:
    return [list(step.plan.schemes().values()) for step in found.steps]


def test_every_step_is_a_plan_that_verify_accepts(chain: Path) -> None:
    found = tune_front(prepared(chain, float32_is_faster))
    assert found.steps
    assert not found.unclear
    assert found.left_out == 0
    for step in found.steps:
        (budget,) = {value.budget for value in step.plan.criterion}
        assert budget == step.outcome.budget
        limits = Limits(Limit(budget))
        verdict = check_plan(launcher.script(str(chain)), step.plan, TuningOptions(limits))
        assert verdict.holds
        assert budget / 10 < step.verification.error <= budget


def test_one_profile_and_one_set_of_native_runs_serve_all_steps(chain: Path) -> None:
    purposes: list[str] = []
    options = TuningOptions(Limits(Limit(0.1)), backend="reference", front=True)
    ready = prepare(launcher.script(str(chain)), options, None, purposes.append)
    assert not isinstance(ready, str)
    found = tune_front(ready)
    assert len(found.steps) >= 4
    assert found.fastest is found.steps[-1]
    assert purposes.count("profile") == 1
    assert purposes.count("native run") == 3
    assert purposes.count("verification, native") == 1
    assert purposes.count("verification, planned") == len(found.steps) + found.left_out
    errors = [step.verification.error for step in found.steps]
    times = [step.outcome.best.seconds for step in found.steps]
    assert errors == sorted(errors)
    assert times == sorted(times, reverse=True)


def test_a_step_that_is_not_faster_in_fresh_processes_is_left_out(
    chain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    says(monkeypatch, SLOWER)
    found = tune_front(prepared(chain, paired(FASTER, FASTER)))
    assert found.steps == ()
    assert found.left_out == 1
    assert not found.unclear
    assert set(found.fastest.plan.schemes().values()) == {"native"}


@pytest.mark.parametrize("ratio", [SLOWER, WIDE])
def test_noise_is_no_gain(ratio: Ratio, chain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    says(monkeypatch, ratio)
    found = tune_front(prepared(chain, paired(FASTER, FASTER)))
    assert found.steps == ()
    assert found.unclear == (ratio is WIDE)
    record = read(front_record(found), "")
    assert record.steps == []
    assert record.unclear == found.unclear


def test_where_products_do_not_tell_the_front_does_not_either(chain: Path) -> None:
    found = tune_front(prepared(chain, paired(WIDE, WIDE)))
    assert found.steps == ()
    assert found.unclear


def test_the_gain_of_a_step_is_that_of_its_products(
    chain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    says(monkeypatch, FASTER)
    found = tune_front(prepared(chain, paired(FASTER, FASTER)))
    assert schemes(found) == [["float32", "float32"]]
    (step,) = read(front_record(found, ["p.toml"]), "").steps or []
    measured = found.steps[0].verification
    assert step.gain == pytest.approx(1 / measured.program.mean)
    assert step.lowered == 2
    assert step.plan_file == "p.toml"


class Runs:
    """Stands for an experiment: every run takes no time, and has the error given for its plan."""

    def __init__(self, ready: Prepared, errors: Sequence[float]) -> None:
        self._native = ready.baseline.natives[0]
        self._errors = iter(errors)
        self.order = ""

    def native(self, purpose: str, reference: object) -> ProgramRun:
        self.order += "n"
        return self._native

    def planned(self, plan: object, reference: object, purpose: str) -> ProgramRun:
        self.order += "p"
        run = self._native
        return ProgramRun(run.result, {}, next(self._errors), "b", {"b": 0.0})


@pytest.fixture
def ready(chain: Path) -> Prepared:
    return prepared(chain, paired(FASTER, FASTER))


def in_turn(
    monkeypatch: pytest.MonkeyPatch,
    ready: Prepared,
    errors: Sequence[float],
    *ratios: Ratio,
) -> tuple[str, list[list[ProgramRun]]]:
    """The order of runs of two steps within 1e-4, and those of each."""
    runs = Runs(ready, errors)
    says(monkeypatch, *ratios)
    fake = type("Fake", (), {name: getattr(ready, name) for name in ("baseline", "clock")})
    fake.experiment, fake.problem = runs, ready.problem  # type: ignore[attr-defined]
    measured = ready.clock.native
    steps = [
        module.Step(1e-4, {**ready.problem.start, site: "float32"}, measured) for site in SITES
    ]
    _, planned = module._run_in_turn(fake, steps)  # type: ignore[arg-type]
    return runs.order, planned


def test_rounds_end_when_they_tell_and_who_is_first_alternates(
    ready: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    order, planned = in_turn(monkeypatch, ready, [1e-5] * 6, FASTER)
    assert order == "npp" + "ppn" + "npp"
    assert [len(runs) for runs in planned] == [LEAST_PAIRS, LEAST_PAIRS]
    order, _ = in_turn(monkeypatch, ready, [1e-5] * 99, WIDE)
    assert len(order) == 3 * MOST_PAIRS
    monkeypatch.setattr(module, "SECONDS", -1.0)
    order, _ = in_turn(monkeypatch, ready, [1e-5] * 99, WIDE)
    assert len(order) == 3 * LEAST_PAIRS


def test_a_step_over_its_budget_in_a_fresh_process_is_run_no_more(
    ready: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    order, planned = in_turn(monkeypatch, ready, [1e-3, 1e-5, 1e-5, 1e-5], FASTER)
    assert order == "npp" + "pn" + "np"
    assert [len(runs) for runs in planned] == [1, 3]


def test_budgets_that_no_two_native_runs_agree_within_are_not_searched(
    chain: Path,
) -> None:
    with chain.open("a") as file:
        file.write("import os\nx = int.from_bytes(os.urandom(4))\nb = b * (1 + 1e-6 * x / 2**32)\n")
    ready = prepared(chain, float32_is_faster)
    assert 0 < ready.baseline.spread < 1e-6
    steps = tune_front(ready).steps
    assert steps
    assert all(step.outcome.budget >= 2 * ready.baseline.spread for step in steps)
