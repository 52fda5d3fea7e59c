"""A program that counts its runs, and what a tuning of it leaves."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mixpert_py.execution.worker import Result, SiteResult
from mixpert_py.launch.program import script
from mixpert_py.tuning.options import Limit, Limits, TuningOptions
from mixpert_py.tuning.search import TuningResult
from mixpert_py.tuning.trials import Trials
from tests.mixpert_py.tuning.tuned_program import tuned_program

# Counts its runs, so that one that is made twice is seen: beside itself, for it runs in copies of
# its working folder.
PROGRAM = """\
import os, numpy as np
with open(os.path.join(os.path.dirname(__file__), "runs"), "a") as file:
    file.write(".")
rng = np.random.default_rng(0)
a = rng.standard_normal((48, 48))
b = a @ a
c = b.dot(a)
"""
OPTIONS = ("--error", "1e-5", "--backend", "reference")

SITE = SiteResult(2, 0.1 + 0.2, [(3, 4, 5, 2)], {"native": 2}, {}, {"float64": 2}, {"int8x1": None})
RESULT = Result(1 / 3, {"s:f/matmul~0a#0": SITE}, {}, [])


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "s.py"
    path.write_text(PROGRAM)
    return path


def runs(program: Path) -> int:
    counted = program.with_name("runs")
    return counted.stat().st_size if counted.exists() else 0


def store(program: Path) -> Path:
    return program.with_name("s.mixpert.trials.jsonl")


def lines(program: Path, kind: str) -> list[dict[str, Any]]:
    """The lines of the file of trials that are of one kind: `tuning`, `run` or `record`."""
    found = map(json.loads, store(program).read_text().splitlines())
    return [line for line in found if line["type"] == kind]


def tuned(
    trials: Trials, on_run: Callable[[str], None] = lambda purpose: None, budget: float = 1e-5
) -> TuningResult:
    options = TuningOptions(Limits(Limit(budget)), backend="reference")
    return tuned_program(script("s.py"), options, on_run=on_run, trials=trials)
