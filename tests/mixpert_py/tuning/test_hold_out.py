"""Plans are judged on each input until one is over the budget, and no plan twice."""

from dataclasses import replace
from math import isnan, nan
from pathlib import Path
from typing import Any

import pytest

from mixpert_py.errors import ProgramError
from mixpert_py.launch import launcher
from mixpert_py.passes.pipeline import analyze
from mixpert_py.tuning import hold_out
from mixpert_py.tuning.experiment import Experiment
from mixpert_py.tuning.hold_out import HoldOuts
from mixpert_py.tuning.options import Limit, Limits, TuningOptions


class Input:
    """An input under which plans have these errors, in budgets; `seen` is what was judged."""

    def __init__(self, name: str, errors: dict[str, float], seen: list[str]) -> None:
        self.arguments, self._errors, self._seen = name, errors, seen
        self.error = 0.0
        self.hangs = 0
        self.errors: dict[str, float] = {}

    def reference(self) -> None:
        pass

    def excess(self, plan: dict[str, str]) -> float:
        self._seen.append(f"{self.arguments}{plan['s']}")
        self.error = self._errors[plan["s"]]
        self.hangs += isnan(self.error)
        self.errors = {"c": self.error}
        return max(self.error, 1.0)  # NaN stays


def test_the_input_that_failed_comes_first_and_no_plan_is_judged_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str] = []
    inputs = iter([Input("a", {"3": 0.5, "6": 0.2}, seen), Input("b", {"3": 7.0, "6": 0.9}, seen)])

    def made(*parts: Any) -> Input:
        return next(inputs)

    monkeypatch.setattr(hold_out, "_Input", made)
    found = HoldOuts([None, None], "native")  # type: ignore[list-item]
    assert found.excess({"s": "3"}) == 7.0
    assert found.excess({"s": "3"}) == 7.0
    assert found.excess({"s": "6"}) == 1.0
    assert seen == ["a3", "b3", "b6", "a6"]
    errors = found.errors()
    assert errors.inputs == (("a", 0.2), ("b", 0.9))
    assert (errors.error, errors.values, errors.tightened) == (0.9, {"c": 0.9}, 1)
    assert errors.rate == pytest.approx(1 - 0.025**0.5)


def test_a_program_that_hung_on_two_plans_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str] = []
    errors = {"1": nan, "3": nan, "6": nan, "10": 0.5}
    monkeypatch.setattr(hold_out, "_Input", lambda *_: Input("a", errors, seen))
    found = HoldOuts([None], "native")  # type: ignore[list-item]
    assert all(isnan(found.excess({"s": scheme})) for scheme in errors)
    assert seen == ["a1", "a3"]
    assert found.errors().tightened == 4


@pytest.mark.parametrize(("ends", "hangs"), [("time.sleep(600)", 1), ("sys.exit(3)", 0)])
def test_only_the_time_limit_is_a_hang(
    ends: str, hangs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.py").write_text(
        "import sys, time\nimport numpy as np\na = np.random.default_rng(0).random((16, 16))\n"
        f"b = a @ a\nif abs(b - np.dot(a, a)).max() > 1e-9:\n    {ends}\n"
    )
    options = TuningOptions(Limits(Limit(1.0)), backend="reference", time_limit=2.0)
    experiment = Experiment(launcher.script("s.py"), options)
    experiment.comparison = replace(experiment.comparison, names=("b",))
    one = hold_out._Input(experiment, "native", tmp_path / "values", "hold-out")
    one.reference()
    (site, _) = (site.id for site in analyze(Path("s.py").read_bytes(), "s"))
    assert isnan(one.excess({site: "int8x1"}))
    assert one.hangs == hangs


def test_a_program_that_fails_on_an_input_names_its_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.py").write_text("import sys\nsys.exit(sys.argv[1] == '4')\n")
    options = TuningOptions(Limits(Limit(1.0)), backend="reference")
    experiment = Experiment(launcher.script("s.py", ("4", "a b")), options)
    one = hold_out._Input(experiment, "native", tmp_path / "values", "hold-out")
    with pytest.raises(ProgramError, match=r"^--hold-out 4 'a b': s\.py: ended with exit code 1"):
        one.reference()
