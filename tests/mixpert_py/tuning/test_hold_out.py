"""Plans are judged on each input until one is over the budget, and no plan twice."""

from typing import Any

import pytest

from mixpert_py.tuning import hold_out
from mixpert_py.tuning.hold_out import HoldOuts


class Input:
    """An input under which plans have these errors, in budgets; `seen` is what was judged."""

    def __init__(self, name: str, errors: dict[str, float], seen: list[str]) -> None:
        self.arguments, self._errors, self._seen = name, errors, seen
        self.error = 0.0
        self.errors: dict[str, float] = {}

    def reference(self) -> None:
        pass

    def excess(self, plan: dict[str, str]) -> float:
        self._seen.append(f"{self.arguments}{plan['s']}")
        self.error = self._errors[plan["s"]]
        self.errors = {"c": self.error}
        return max(1.0, self.error)


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
