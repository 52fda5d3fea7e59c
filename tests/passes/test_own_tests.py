"""Packages whose modules are rewritten pass their own tests for them.

`pytest -m slow tests/passes/test_own_tests.py` takes minutes.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent.parent
PATIENCE = 900


class Case(NamedTuple):
    """What of a package is rewritten, the files that test it; at least so many sites and calls."""

    package: str
    modules: str
    tests: str
    sites: int
    calls: int


RANKS = "algorithms/link_analysis"
CASES = (
    Case("sklearn", "utils/extmath.py", "utils/tests/test_extmath.py", 8, 1_000),
    Case("networkx", RANKS, f"{RANKS}/tests/test_*.py", 6, 200),
    Case("scipy", "sparse/linalg", "sparse/linalg/**/test_*.py", 80, 100_000),
)


@dataclass(frozen=True)
class Ran:
    """A run of the tests. code: pytest's. passing: sites called without a trace, calls: with."""

    code: int
    outcomes: dict[str, str]
    passing: list[str]
    calls: dict[str, int]


def copied(case: Case, place: Path) -> Path:
    """A copy of the installed package, with its tests, beside the libraries that it loads."""
    spec = importlib.util.find_spec(case.package)
    if spec is None or spec.origin is None:
        pytest.skip(f"{case.package} is not installed")
    installed = Path(spec.origin).parent
    if not any(installed.glob(case.tests)):
        pytest.skip(f"{case.package} is installed without its tests")
    copy = place / case.package
    shutil.copytree(installed, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for libraries in installed.parent.glob("*.libs"):
        (place / libraries.name).symlink_to(libraries)
    return copy


def python(place: Path, *arguments: str) -> str:
    """Output of a Python that finds the copy first, and this checkout."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("MIXPERT_", "PYTEST_"))}
    done = subprocess.run(
        [sys.executable, "-P", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=place,
        timeout=PATIENCE,
        env={**clean, "PYTHONPATH": os.pathsep.join((str(place), str(ROOT)))},
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def ran(case: Case, place: Path, *, traced: bool = False) -> Ran:
    out = place / "record.json"
    quiet = ("-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(place))
    tests = sorted(str(file) for file in (place / case.package).glob(case.tests))
    runner = str(Path(__file__).with_name("recorded_run.py"))
    said = python(place, runner, str(out), str(int(traced)), *quiet, *tests)
    found = Ran(**json.loads(out.read_text()))
    # 2 and above: a test file that could not be read, an interruption, nothing to run
    assert found.code in (0, 1), said[-4000:]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.package)
def test_rewritten_modules_pass_their_own_tests(case: Case, tmp_path: Path) -> None:
    """Untouched, rewritten and without a plan, and under a trace: the same tests pass."""
    copy = copied(case, tmp_path)
    before = ran(case, tmp_path)
    assert "passed" in before.outcomes.values()
    assert before.passing == []

    options = ("-w", "--exclude", "test_*")  # the judges stay as they are
    python(tmp_path, "-m", "mixpert_py", "rewrite", *options, str(copy / case.modules))
    after = ran(case, tmp_path)
    assert after.outcomes == before.outcomes
    assert len(after.passing) >= case.sites

    traced = ran(case, tmp_path, traced=True)
    assert traced.outcomes == before.outcomes
    assert len(traced.calls) >= case.sites
    assert sum(traced.calls.values()) >= case.calls
