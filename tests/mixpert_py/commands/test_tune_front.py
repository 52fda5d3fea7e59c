"""`mixpert tune --front`: a table, plans on request, a page; and `--until`."""

import json
import sys
from pathlib import Path

import pytest

from mixpert_py import plan
from mixpert_py.cli import main
from mixpert_py.passes.pipeline import analyze
from mixpert_py.tuning import prepare
from mixpert_py.tuning.paired import PairedTimes
from tests.mixpert_py.command import Mixpert
from tests.mixpert_py.tuning.chain import CHAIN
from tests.mixpert_py.tuning.chain import chain as chain
from tests.mixpert_py.tuning.test_pace import WIDE

FRONT = "tune", "--front", "--backend", "reference"


@pytest.fixture
def small(chain: Path) -> Path:
    chain.write_text(CHAIN.replace("160", "64").replace("c = b.dot(a)\n", ""))
    return chain


def test_a_table_then_plans_and_pages_without_another_run(small: Path, mixpert: Mixpert) -> None:
    done = mixpert(*FRONT, "chain.py")
    assert done.code == 0, done.err
    budgets = [line.split()[0] for line in done.out.splitlines() if line.startswith("    1e-")]
    assert len(budgets) >= 3
    assert budgets == sorted(budgets, key=float)
    assert "no plan was written; --front --resume -o FOLDER writes one for each step" in done.out
    assert not list(small.parent.rglob("*.toml"))

    again = mixpert(*FRONT, "--resume", "-v", "-o", "plans", "chain.py")
    assert again.code == 0, again.err
    assert "run 1" not in again.err
    assert again.out.splitlines()[: len(budgets)] == done.out.splitlines()[: len(budgets)]
    names = {f"chain.{budget}.mixpert.toml" for budget in budgets}
    assert {path.name for path in (small.parent / "plans").iterdir()} == names
    for name in names:
        loaded = plan.load(small.parent / "plans" / name)
        assert loaded.criterion[0].budget == float(name.split(".")[1])
        said = mixpert("verify", f"plans/{name}", "chain.py")
        assert said.code == 0, said.out + said.err

    store = "chain.front.trials.jsonl"
    assert f"mixpert report {store} --html DIR" in done.out
    assert mixpert("report", store, "--html", "page").code == 0
    page = (small.parent / "page" / "index.html").read_text("utf-8")
    assert "Accuracy and speed" in page
    summary, markdown = mixpert("report", store), mixpert("report", store, "--md")
    for budget in budgets:
        assert f"| {budget} |" in markdown.out
        assert f" {budget} " in summary.out
    assert "the rest is that of the fastest step" in markdown.out.lower()


def test_json_has_every_step_and_its_schemes(small: Path, mixpert: Mixpert) -> None:
    done = mixpert(*FRONT, "--error", "1e-4", "--json", "-o", "p", "chain.py")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    steps = found["steps"]
    assert all(step["error"] <= step["budget"] <= 1e-4 for step in steps)
    assert [step["gain"] for step in steps] == sorted(step["gain"] for step in steps)
    assert steps[-1]["schemes"] == found["schemes"]
    assert all((small.parent / step["plan_file"]).is_file() for step in steps)


def test_errors_as_parts_of_several_budgets(chain: Path, mixpert: Mixpert) -> None:
    chain.write_text(CHAIN.replace("160", "64"))
    budgets = "--error", "b=1e-3", "--error", "c=1e-2"
    done = mixpert(*FRONT, *budgets, "-o", "p", "chain.py")
    assert done.code == 0, done.err
    assert "error / budget" in " ".join(done.out.split())
    written = sorted((chain.parent / "p").iterdir())
    assert written
    for path in written:
        limits = {value.name: value.budget for value in plan.load(path).criterion}
        assert limits["c"] == pytest.approx(10 * limits["b"])
        said = mixpert("verify", str(path), "chain.py")
        assert said.code == 0, said.out + said.err


def test_a_project_with_a_budget_sees_what_others_gain(small: Path, mixpert: Mixpert) -> None:
    (small.parent / "pyproject.toml").write_text('[tool.mixpert]\nerror = ["1e-9"]\n')
    done = mixpert(*FRONT, "--json", "chain.py")
    assert done.code == 0, done.err
    assert json.loads(done.out)["steps"][-1]["budget"] > 1e-9


def test_a_program_without_products_has_no_front(small: Path, mixpert: Mixpert) -> None:
    small.write_text("x = 1\n")
    done = mixpert(*FRONT, "--json", "chain.py")
    assert (done.code, done.out) == (1, "null\n")
    assert "no matrix product that could be tuned" in done.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--hold-out", "1"], "--hold-out judges one budget"),
        (["--search", "greedy"], "--front is a search of its own, not --search greedy"),
        (["--criterion", "max"], "--front with --criterion max: give --error"),
        (["--criterion", "b=m:f"], "--front with --criterion m:f: give --error"),
        (["--until", "1"], "--until is a part of the time, such as 1%, not 1"),
        (["--until", "x%"], "--until is a part of the time, such as 1%, not x%"),
        (["--until", "1%2"], "--until is a part of the time, such as 1%, not 1%2"),
        (["--until=-1%"], "--until is a part of the time, such as 1%, not -1%"),
        (["--until", "nan"], "--until is a part of the time, such as 1%, not nan"),
        (["-o", "chain.py"], "chain.py"),
    ],
)
def test_options_that_cannot_be(
    options: list[str], message: str, small: Path, mixpert: Mixpert
) -> None:
    said = mixpert("tune", "--front", *options, "chain.py")
    assert said.code == 2
    assert message in said.err
    assert len(said.err.strip().splitlines()) <= 4


def test_without_a_budget_the_way_to_see_one_is_named(small: Path, mixpert: Mixpert) -> None:
    said = mixpert("tune", "chain.py")
    assert said.code == 2
    assert "or --front" in said.err


def test_until_leaves_what_gains_less(small: Path, mixpert: Mixpert) -> None:
    options = "tune", "--error", "1e-4", "--backend", "reference", "--json"
    for until, lowered in (("99%", False), ("1%", True), ("0.01", True)):
        done = mixpert(*options, "--until", until, "chain.py")
        assert done.code == 0, done.err
        (level,) = json.loads(done.out)["schemes"].values()
        assert (level != "native") == lowered


def test_a_trials_file_without_a_tuning_is_one_line(small: Path, mixpert: Mixpert) -> None:
    said = mixpert("report", "none.trials.jsonl")
    assert said.code == 2
    assert "none.trials.jsonl: there is no finished tuning in it, or no such file" in said.err


def test_a_machine_that_does_not_tell_ends_with_1(
    small: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small.write_text(small.read_text().replace("64", "160"))  # not too small for a level
    (site,) = (site.id for site in analyze(small.read_bytes(), "chain"))
    times = PairedTimes({site: 10.0}, {site: {"float32": WIDE}})

    def of(*measured: object) -> PairedTimes:
        return times

    monkeypatch.setattr(prepare.PairedTimes, "of", of)
    monkeypatch.chdir(small.parent)
    monkeypatch.setattr(sys, "argv", ["mixpert", "tune", "--front", str(small)])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 1
    words = " ".join(capsys.readouterr().out.split())
    assert "There is no step: this machine did not tell whether a lower level is faster." in words
