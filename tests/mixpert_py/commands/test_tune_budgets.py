"""`mixpert tune` with several budgets: a plan for each, which share their runs; and `--until`."""

import json
from pathlib import Path

import pytest

from mixpert_py import plan
from mixpert_py.tuning.trials import TRIAL
from tests.mixpert_py.command import Mixpert
from tests.mixpert_py.tuning.chain import CHAIN
from tests.mixpert_py.tuning.chain import chain as chain

TUNE = "tune", "--backend", "reference"
BUDGETS = ("1e-6", "1e-3", "1e-4")
MANY = [word for budget in BUDGETS for word in ("--error", budget)]
NAMES = [f"chain-{budget}.mixpert.toml" for budget in sorted(BUDGETS, key=float, reverse=True)]


@pytest.fixture
def small(chain: Path) -> Path:
    chain.write_text(CHAIN.replace("160", "64").replace("c = b.dot(a)\n", ""))
    return chain


def purposes(folder: Path, store: str) -> list[tuple[str, str]]:
    """The purpose and the plan of every run in a file of trials."""
    lines = map(json.loads, (folder / store).read_text().splitlines())
    runs = [line for line in lines if line["type"] == "run"]
    return [(line["purpose"], json.dumps(line["plan"], sort_keys=True)) for line in runs]


def test_each_budget_has_the_plan_that_it_has_alone(small: Path, mixpert: Mixpert) -> None:
    folder = small.parent
    done = mixpert(*TUNE, *MANY, "chain.py")
    assert done.code == 0, done.err
    rows = [line.split() for line in done.out.splitlines() if line.startswith("  1e-")]
    assert [row[0] for row in rows] == ["1e-3", "1e-4", "1e-6"]
    assert [line for line in done.out.splitlines() if line.startswith("plan written")] == [
        f"plan written to {name}" for name in NAMES
    ]
    assert {path.name for path in folder.glob("*.toml")} == set(NAMES)
    for name in NAMES:
        found = plan.load(folder / name)
        budget = name.removeprefix("chain-").removesuffix(".mixpert.toml")
        assert found.criterion[0].budget == float(budget)
        alone = mixpert(*TUNE, "--error", budget, "-o", "alone.toml", "chain.py")
        assert alone.code == 0, alone.err
        assert plan.load(folder / "alone.toml").schemes() == found.schemes()
        said = mixpert("report", name, "--json")
        assert json.loads(said.out)["budget"] == float(budget)
        assert json.loads(said.out)["schemes"] == found.schemes()
        assert mixpert("verify", name, "chain.py").code == 0
    made = purposes(folder, "chain-1e-3.mixpert.trials.jsonl")
    assert [purpose for purpose, _ in made].count("profile") == 1
    trials = [run for run in made if run[0] == TRIAL]
    assert len(trials) == len(set(trials)) > 0


def test_json_is_a_list_of_what_each_budget_has(small: Path, mixpert: Mixpert) -> None:
    done = mixpert(*TUNE, *MANY, "--json", "-o", "p.toml", "chain.py")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert [entry["budget"] for entry in found] == [1e-3, 1e-4, 1e-6]
    assert all(entry["error"] <= entry["budget"] for entry in found)
    assert [entry["plan_file"] for entry in found] == ["p-1e-3.toml", "p-1e-4.toml", "p-1e-6.toml"]
    assert all((small.parent / entry["plan_file"]).is_file() for entry in found)


def test_a_budget_that_native_runs_do_not_hold_costs_the_others_nothing(
    small: Path, mixpert: Mixpert
) -> None:
    noisy = "b = b * (1 + 1e-8 * np.random.default_rng().random())\n"
    small.write_text(small.read_text() + noisy)
    done = mixpert(*TUNE, "--error", "1e-3", "--error", "1e-9", "chain.py")
    assert done.code == 1
    assert "half the budget of 1e-09; there is no plan for this budget" in done.one_clear_line()
    assert "plan written to chain-1e-3.mixpert.toml" in done.out
    assert [path.name for path in small.parent.glob("*.toml")] == ["chain-1e-3.mixpert.toml"]
    assert mixpert("report", "chain-1e-3.mixpert.toml").code == 0


def test_locked_sites_are_those_of_the_plan_without_a_budget(small: Path, mixpert: Mixpert) -> None:
    assert mixpert(*TUNE, "--error", "1e-3", "chain.py").code == 0
    text = (small.parent / "chain.mixpert.toml").read_text()
    locked = text.replace("[[site]]\n", "[[site]]\nlocked = true\n")
    (small.parent / "chain.mixpert.toml").write_text(locked)
    schemes = plan.load(small.parent / "chain.mixpert.toml").schemes()
    done = mixpert(*TUNE, "--error", "1e-2", "--error", "1e-6", "chain.py")
    assert done.code == 0, done.err
    assert plan.load(small.parent / "chain-1e-2.mixpert.toml").schemes() == schemes
    (small.parent / NAMES[0]).write_text(locked)
    done = mixpert(*TUNE, *MANY, "chain.py")
    assert done.code == 2
    assert "it has locked sites; lock them in" in done.one_clear_line()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([*MANY, "--hold-out", "1"], "--hold-out judges one budget"),
        ([*MANY, "--error", "b=1e-3"], "several budgets: give each as a bare --error BUDGET"),
        ([*MANY, "--error", "0.001"], "several budgets: give each as a bare --error BUDGET"),
        ([*MANY, "-o", "/dev/stdout"], "these budgets would have one plan file"),
        (["--error", "1e-5", "--error", "1.0000001e-5"], "these budgets would have one plan file"),
        (["--error", "1", "--until", "1"], "--until is a part of the time, such as 1%, not 1"),
        (["--error", "1", "--until", "x%"], "--until is a part of the time, such as 1%, not x%"),
        (["--error", "1", "--until", "1%2"], "--until is a part of the time, such as 1%, not 1%2"),
    ],
)
def test_what_does_not_go_together(
    small: Path, mixpert: Mixpert, options: list[str], message: str
) -> None:
    done = mixpert(*TUNE, *options, "chain.py")
    assert done.code == 2
    assert message in done.err
    assert not list(small.parent.glob("*.jsonl"))


def test_until_leaves_what_gains_less(small: Path, mixpert: Mixpert) -> None:
    options = "tune", "--error", "1e-4", "--backend", "reference", "--json"
    for until, lowered in (("99%", False), ("1%", True), ("0.01", True)):
        done = mixpert(*options, "--until", until, "chain.py")
        assert done.code == 0, done.err
        (level,) = json.loads(done.out)["schemes"].values()
        assert (level != "native") == lowered
