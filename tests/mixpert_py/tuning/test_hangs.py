"""A program that hung under a plan is not made to hang again and again."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from mixpert_py.execution.executor import is_timeout
from mixpert_py.launch.program import script
from mixpert_py.tuner.records import Measurement, Operator, Outcome
from mixpert_py.tuner.searches import SEARCHES
from mixpert_py.tuning.options import Limit, Limits, TuningOptions
from mixpert_py.tuning.prepare import Hangs
from tests.mixpert_py.tuning.tuned_program import tuned_program
from tests.tuner.table_program import tune

SITES = ("a", "b", "c")
START = dict.fromkeys(SITES, "native")
RUNGS = (("native",), ("int8x10",), ("int8x6",), ("int8x3",))
SECONDS = {"native": 1.0, "int8x10": 0.8, "int8x6": 0.5, "int8x3": 0.3}
HANGS = "s.py: still running after 20 s, and was stopped; its last lines:\nwaiting"


class Program:
    """It hangs where one of these is lowered; `hung` are the plans under which it did."""

    def __init__(self, *guilty: str) -> None:
        self._guilty = guilty
        self.hung: list[dict[str, str]] = []

    def __call__(self, plan: Mapping[str, str], /) -> Measurement:
        if any(plan[site] != "native" for site in self._guilty):
            self.hung.append(dict(plan))
            return Measurement(0.0, float("nan"), {}, HANGS)
        times = {site: SECONDS[scheme] for site, scheme in plan.items()}
        return Measurement(sum(times.values()), 1e-6, times)


def tuned(program: Program, search: str, *, guarded: bool = True) -> Outcome:
    operators = [
        Operator(site, seconds=1.0, local_errors=dict.fromkeys(SECONDS, 1e-6)) for site in SITES
    ]
    hangs = Hangs(START)

    def measure(plan: Mapping[str, str]) -> Measurement:
        if guarded and (problem := hangs.refusal(plan)):
            return Measurement(0.0, float("nan"), {}, problem)
        found = program(plan)
        hangs.learn(plan, found.problem)
        return found

    return tune(measure, operators, [], RUNGS, 1e-3, noise=0.01, start=START, search=search)


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("guilty", [("b",), ("a", "c")], ids="-".join)
def test_each_guilty_site_hangs_once_by_itself(search: str, guilty: tuple[str, ...]) -> None:
    program = Program(*guilty)
    found = tuned(program, search)
    alone = [
        [site for site in SITES if plan[site] != "native"]
        for plan in program.hung
        if sum(scheme != "native" for scheme in plan.values()) == 1
    ]
    assert len(alone) == len({site for (site,) in alone})  # never twice
    lowered = {site for site, scheme in found.plan.items() if scheme != "native"}
    assert len(program.hung) <= len(guilty) + 1
    assert lowered == set(SITES) - set(guilty)
    unguarded = Program(*guilty)
    tuned(unguarded, search, guarded=False)
    assert len(unguarded.hung) >= len(program.hung)


def test_what_ended_in_time_is_not_suspected() -> None:
    hangs = Hangs(START)
    hangs.learn({**START, "a": "int8x6", "b": "int8x6"}, None)
    hangs.learn({**START, "a": "int8x3", "b": "int8x6"}, HANGS)  # so a is guilty
    refused = hangs.refusal({**START, "a": "int8x10"})
    assert refused == "not run: the program ran into its time limit under int8x3 here"
    assert not hangs.refusal({**START, "a": "int8x6"})  # it ended there before
    assert not hangs.refusal({**START, "b": "int8x3"})


def test_only_the_limit_is_a_hang() -> None:
    assert is_timeout(HANGS)
    assert not is_timeout("s.py: ended with exit code 1; its last lines:\nstill running after 3 s")
    hangs = Hangs(START)
    hangs.learn({**START, "a": "int8x3"}, "exit code 1")
    assert not hangs.refusal({**START, "a": "int8x6"})


WAITS = """\
import time
import numpy as np
a = np.random.default_rng(0).standard_normal((96, 96))
exact = (a[:, :, None] * a).sum(axis=1)
b = a @ a
c = a.dot(a.T)
while abs(b - exact).max() > 1e-12:
    time.sleep(0.1)
"""


def test_a_program_that_waits_for_a_residual(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.py").write_text(WAITS)
    limits = Limits(Limit(1e-3))
    options = TuningOptions(limits, ("b", "c"), "reference", time_limit=2.0)
    found = tuned_program(script("s.py"), options)
    problems = [trial.measurement.problem or "" for trial in found.outcome.trials]
    assert 1 <= sum(map(is_timeout, problems)) <= 2
    schemes = {site.partition("/")[2][:3]: scheme for site, scheme in found.outcome.plan.items()}
    assert schemes["mat"] == "native"
    assert schemes["dot"] != "native"
