"""The plans that a search expects to run next: mostly right, without influence on its result."""

from collections.abc import Mapping, Sequence

import pytest

from mixpert_py.tuner.records import Measurement, Outcome
from tests.every_check import some
from tests.tuner.propagated_program import LADDER, PropagatedProgram
from tests.tuner.table_program import tune

Plan = Mapping[str, str]
OPERATORS = {"predictive": 8, "greedy": 4, "exhaustive": 4, "random": 4}


class Listener:
    """Notes which plans had been foreseen before the search waited for another one."""

    def __init__(self, program: PropagatedProgram) -> None:
        self.program = program
        self.expected: list[dict[str, str]] = []
        self.asked: list[dict[str, str]] = []
        self.foreseen = 0
        self._before: list[dict[str, str]] = []

    def expect(self, plans: Sequence[Plan]) -> None:
        self._before, self.expected = self.expected, [dict(plan) for plan in plans]
        assert all(plan not in self.asked for plan in self.expected)
        assert all(self.expected.count(plan) == 1 for plan in self.expected)

    def __call__(self, plan: Plan, /) -> Measurement:
        self.foreseen += plan in self._before
        self._before = self.expected
        assert not self.asked or plan in self.expected
        self.asked.append(dict(plan))
        return self.program(plan)


def found(program: PropagatedProgram, kind: str) -> tuple[Outcome, Listener]:
    listener = Listener(program)
    outcome = tune(
        listener,
        program.operators(),
        [],
        LADDER,
        program.budget,
        noise=0.0,
        search=kind,
        expect=listener.expect,
    )
    return outcome, listener


@pytest.mark.parametrize(
    ("kind", "least"), [("predictive", 0.5), ("greedy", 0.9), ("exhaustive", 0.98), ("random", 0.9)]
)
def test_runs_are_foreseen_and_nothing_depends_on_it(kind: str, least: float) -> None:
    foreseen = asked = 0
    for seed in some(range(8), 2):
        program = PropagatedProgram(OPERATORS[kind], seed)
        outcome, listener = found(program, kind)
        alone = tune(
            program, program.operators(), [], LADDER, program.budget, noise=0.0, search=kind
        )
        assert outcome == alone
        foreseen += listener.foreseen
        asked += len(listener.asked) - 2  # the start, and the first of all
    assert foreseen >= least * asked
