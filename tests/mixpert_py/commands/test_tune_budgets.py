"""`mixpert tune` with several budgets: a plan for each, which share their runs."""

import json

import pytest

from mixpert_py import plan
from mixpert_py.tuning.trials import TRIAL
from tests.mixpert_py.command import Shell
from tests.mixpert_py.tuning.tuned_program import CHAIN

TUNE = "tune --backend reference"
BUDGETS = ("1e-3", "1e-4", "1e-6")
MANY = f"{TUNE} --error 1e-6 --error 1e-3 --error 1e-4"
NAMES = [f"chain-{budget}.mixpert.toml" for budget in BUDGETS]
SMALL = CHAIN.replace("160", "64").replace("c = b.dot(a)\n", "")


@pytest.fixture(autouse=True)
def _small(sh: Shell) -> None:
    sh.write({"chain.py": SMALL})


def test_each_budget_has_the_plan_that_it_has_alone(sh: Shell) -> None:
    lines = sh(f"{MANY} chain.py").out.splitlines()
    assert [line.split()[0] for line in lines if line[:5] == "  1e-"] == [*BUDGETS]
    written = [line for line in lines if line.startswith("plan written")]
    assert written == [f"plan written to {name}" for name in NAMES]
    assert {path.name for path in sh.folder.glob("*.toml")} == set(NAMES)
    for name, budget in zip(NAMES, BUDGETS, strict=True):
        found = plan.load(sh.folder / name)
        assert found.criterion[0].budget == float(budget)
        sh(f"{TUNE} --error {budget} -o alone.toml chain.py")
        assert plan.load(sh.folder / "alone.toml").schemes() == found.schemes()
        said = sh.json(f"report {name} --json")
        assert (said["budget"], said["schemes"]) == (float(budget), found.schemes())
    sh(f"verify {NAMES[-1]} chain.py")


def test_budgets_share_their_runs(sh: Shell) -> None:
    ran = [line.partition(": ")[2] for line in sh(f"{MANY} -v chain.py").err.splitlines()]
    assert ran.count("profile") == 1
    found = [sh.json(f"report {name} --json") for name in NAMES]
    tried = {json.dumps(one["plan"]) for record in found for one in record["trials"][1:]}
    assert 0 < ran.count(TRIAL) == len(tried)


def test_json_is_a_list_of_what_each_budget_has(sh: Shell) -> None:
    found = sh.json(f"{MANY} --json -o p.toml chain.py")
    assert [entry["budget"] for entry in found] == [1e-3, 1e-4, 1e-6]
    assert all(entry["error"] <= entry["budget"] for entry in found)
    assert [entry["plan_file"] for entry in found] == [f"p-{budget}.toml" for budget in BUDGETS]
    assert all((sh.folder / entry["plan_file"]).is_file() for entry in found)


def test_a_budget_that_native_runs_do_not_hold_costs_the_others_nothing(sh: Shell) -> None:
    sh.write({"chain.py": f"{SMALL}b = b * (1 + 1e-7 * np.random.default_rng().random())\n"})
    done = sh(f"{TUNE} --error 1e-3 --error 1e-9 chain.py", 1)
    told = "half the budget of 1e-09; there is no plan for this budget"
    assert told in done.one_clear_line()
    assert f"plan written to {NAMES[0]}" in done.out
    assert [path.name for path in sh.folder.glob("*.toml")] == NAMES[:1]
    sh(f"report {NAMES[0]}")


def test_locked_sites_are_those_of_the_plan_without_a_budget(sh: Shell) -> None:
    sh(f"{TUNE} --error 1e-3 chain.py")
    locked = sh.read("chain.mixpert.toml").replace("[[site]]\n", "[[site]]\nlocked = true\n")
    sh.write({"chain.mixpert.toml": locked})
    schemes = plan.load(sh.folder / "chain.mixpert.toml").schemes()
    sh(f"{TUNE} --error 1e-2 --error 1e-6 chain.py")
    assert plan.load(sh.folder / "chain-1e-2.mixpert.toml").schemes() == schemes
    sh.write({NAMES[0]: locked})
    assert "it has locked sites; lock them in" in sh(f"{MANY} chain.py", 2).one_clear_line()
