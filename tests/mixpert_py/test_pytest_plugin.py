"""The marker `mixpert_budget`, in test runs of their own."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from fnmatch import fnmatchcase
from importlib import import_module
from importlib.metadata import entry_points

import pytest

from mixpert_py.passes.pipeline import analyze
from mixpert_py.plan import Criterion, Plan, Site, save
from tests.mixpert_py.command import IMPORTABLE, ROOT

pytest_plugins = ["pytester"]

Run = Callable[..., pytest.RunResult]

NET = """\
import numpy as np

def forward(x):
    return x @ x
"""

# Found here: pytester has every module forgotten that a test imports first, LibCST's among them,
# whose compiled half is not to be loaded twice.
SITES = analyze(NET.encode(), "net")

# An installed plugin is found by itself, and must not be named twice.
INSTALLED = any(found.name == "mixpert" for found in entry_points(group="pytest11"))
LOADED = "" if INSTALLED else "-p mixpert_py.pytest_plugin"
LEFT_OUT = "-p no:hypothesispytest"  # imports Hypothesis at the end of each run: a second

HEAD = """\
import numpy as np
import pytest
import mixpert_py
import net

budget = pytest.mark.mixpert_budget

@pytest.fixture
def x():
    return np.random.default_rng(0).standard_normal((40, 40))
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a test file beside a module `net` and the plans good.toml, low.toml."""
    monkeypatch.setenv("PYTHONPATH", IMPORTABLE)
    pytester.makeini(f"[pytest]\naddopts = --strict-markers -W error {LOADED} {LEFT_OUT}\n")
    pytester.makepyfile(net=NET)
    for name, scheme in (("good", "int8x6"), ("low", "int8x1")):
        sites = [Site(id=site.id, scheme=scheme) for site in SITES]
        plan = Plan(criterion=[Criterion("y", "frobenius", 1e-5)], site=sites)
        save(plan, pytester.path / f"{name}.toml")

    def call(tests: str, *arguments: str) -> pytest.RunResult:
        pytester.makepyfile(test_it=HEAD + tests)
        return pytester.runpytest_subprocess(*arguments)

    return call


MARKED = """
@budget("good.toml")
def test_good(x):
    return net.forward(x)

@budget("low.toml")
def test_low(x):
    return net.forward(x)

@budget("low.toml", error=0.5)
def test_wide(x):
    return net.forward(x)

@budget("low.toml", error=0.01, criterion="max")
def test_criterion(x):
    return net.forward(x)

@budget("low.toml")
class TestMany:
    def test_method(self, x):
        mixpert_py.observe("y", net.forward(x))

@budget("own.toml")
def test_own(x):
    \"\"\"Its assertions are pytest's.\"\"\"
    y = x @ x
    assert y.shape == (40, 40), "message"
    return y

def test_unmarked(x):
    assert net.forward(x).shape == (40, 40)
"""


def test_plans_that_hold_and_some_that_do_not(run: Run, pytester: pytest.Pytester) -> None:
    (site,) = analyze((HEAD + MARKED).encode(), "test_it")  # a product of the test module itself
    plan = Plan(criterion=[Criterion("y", "max", 1e-9)], site=[Site(id=site.id, scheme="int8x1")])
    save(plan, pytester.path / "own.toml")
    done = run(MARKED)
    done.assert_outcomes(passed=3, failed=4)
    done.stdout.fnmatch_lines(["result: max error *own.toml*"])
    said = done.stdout.str()
    assert "result: frobenius error" in said
    assert "result: max error" in said
    assert "y: frobenius error" in said
    assert "low.toml, over the budget of 1e-05; tune again, or allow more" in said
    assert "Traceback" not in said
    assert "mixpert_py/" not in said
    assert "hidden" not in said


MISUSED = [
    ("no plan file", '@budget("none.toml")\ndef test_it(x): return net.forward(x)',
     "*none.toml: cannot read the plan: No such file or directory"),
    ("no arguments", "@budget\ndef test_it(x): return net.forward(x)",
     "mixpert_budget() missing 1 required positional argument: 'plan'; mixpert_budget(plan, *"),
    ("an unknown argument", '@budget("good.toml", eror=1)\ndef test_it(x): return net.forward(x)',
     "mixpert_budget() got an unexpected keyword argument 'eror'*"),
    ("async", '@budget("good.toml")\nasync def test_it(x): return net.forward(x)',
     "mixpert_budget marks plain test functions, not async ones"),
    ("unittest", 'import unittest\nclass TestIt(unittest.TestCase):\n    @budget("good.toml")\n'
     "    def test_it(self): pass", "mixpert_budget marks plain test functions, not unittest's"),
]  # fmt: skip


def test_misuse_gets_a_clear_line(run: Run, pytester: pytest.Pytester) -> None:
    texts = {f"test_{number}": HEAD + tests for number, (_, tests, _) in enumerate(MISUSED)}
    pytester.makepyfile(**texts)
    done = run("")
    done.assert_outcomes(failed=len(MISUSED))
    parts = re.split(r"^_{3,} .* _{3,}$", done.stdout.str(), flags=re.MULTILINE)[1:]
    for (name, _, line), part in zip(MISUSED, parts, strict=True):
        assert any(fnmatchcase(said, line) for said in part.splitlines()), (name, part)
    assert "During handling" not in done.stdout.str()
    assert "mixpert_py/" not in done.stdout.str()


def test_it_costs_nothing_until_a_marked_test_runs() -> None:
    code = (
        "import sys, mixpert_py.pytest_plugin; "
        "print({'numpy', 'libcst', 'mixpert_py.budget'} & sys.modules.keys())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout == "set()\n"


def test_the_entry_point_is_there() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (module,) = project["entry-points"]["pytest11"].values()
    assert import_module(module).MARKER == "mixpert_budget"
