"""Tuning where a GPU runs the products: CuPy arrays, NumPy arrays that are moved, float64."""

import json
from pathlib import Path

import pytest

from mixpert_py import config
from mixpert_py.execution.executor import usable_gpu
from mixpert_py.launch.program import script
from mixpert_py.runtime.schemes import ladder
from mixpert_py.tuner.records import StopReason
from mixpert_py.tuning.experiment import Experiment
from mixpert_py.tuning.options import Limit, Limits, TuningOptions
from mixpert_py.tuning.search import TuningResult
from tests.mixpert_py.command import Mixpert
from tests.mixpert_py.tuning.tuned_program import tuned_program

pytestmark = pytest.mark.gpu
pytest.importorskip("cupy", reason="CuPy is not installed")

PROGRAM = """\
import cupy as cp
draw = cp.random.default_rng(0)
a, b = (draw.standard_normal((2048, 2048), dtype="{dtype}") for _ in range(2))
for _ in range(100):
    c = a @ b
for _ in range(100):
    d = cp.tanh(c / 50).dot(b)
"""
INT8, CRT = ([name for rung in ladder(kind) for name in rung] for kind in ("int8", "crt"))
DTYPES = [("float32", 1e-3), ("float64", 1e-5)]


def ladder_here(dtype: str) -> list[str]:
    """The schemes that this GPU has for products of a type."""
    found = usable_gpu(None)
    assert found is not None
    return CRT if dtype == "float64" else INT8


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tuned(text: str, options: TuningOptions) -> TuningResult:
    Path("s.py").write_text(text)
    return tuned_program(script("s.py"), options)


@pytest.mark.parametrize(("dtype", "budget"), DTYPES)
def test_products_of_cupy_are_tuned_on_the_ladder_of_the_gpu(dtype: str, budget: float) -> None:
    """Whichever schemes are faster here, none that is over budget or fails is kept."""
    found = tuned(PROGRAM.format(dtype=dtype), TuningOptions(Limits(Limit(budget))))
    assert not found.predicted
    assert set(found.plan.schemes().values()) <= set(ladder_here(dtype))
    assert found.verification.error <= budget
    for verdict in found.outcome.verdicts:
        assert verdict.operator.local_errors.keys() == set(ladder_here(dtype)[1:])
    for trial in found.outcome.trials:
        assert trial.measurement.problem is None
        assert trial.reason is not StopReason.KEPT or trial.measurement.error <= budget


MOVED = """\
import numpy as np
draw = np.random.default_rng(0)
a, b = (draw.standard_normal((1536, 1536), dtype="float32") for _ in range(2))
c = a @ b
"""


def test_the_backend_cuda_from_one_end_to_the_other(mixpert: Mixpert, folder: Path) -> None:
    (folder / "s.py").write_text(MOVED)
    options = ["--error", "1e-3", "--backend", "cuda", "--json"]
    said = mixpert("tune", *options, "s.py")
    assert said.code == 0, said.err
    record = json.loads(said.out)
    assert all(trial["problem"] is None for trial in record["trials"])
    # Not more: whether a trial is worth its time depends on how busy the GPU is.
    assert record["trials"]
    plan = config.load_plan(folder / "s.mixpert.toml")
    assert plan.provenance.backend == "cuda"
    held = mixpert("verify", "s.mixpert.toml", "s.py")
    assert held.code == 0, held.out + held.err


# Notes who ran it and what it drew.
TELLS = """\
import os, cupy as cp, mixpert_py
with open(os.path.join(os.path.dirname(__file__), "told"), "a") as file:
    print(os.getpid(), float(cp.random.rand()), file=file)
a = cp.random.default_rng(0).standard_normal((1024, 1024), dtype="float32")
c = a @ a
mixpert_py.observe("c", c)
if float(abs(c[:4] - (a[:4, :, None] * a).sum(1)).max()) > 0.1:
    text = 'extern "C" __global__ void f(int* p) { *p = 1; }'
    cp.RawKernel(text, "f")((1,), (1,), (cp.uint64(8),))
    cp.cuda.Device().synchronize()
"""


def experiment(text: str) -> Experiment:
    Path("s.py").write_text(text)
    return Experiment(script("s.py"), TuningOptions(Limits(Limit(1.0)), backend="cuda"))


def told() -> list[list[str]]:
    return [line.split() for line in Path("told").read_text().splitlines()]


def test_a_trial_has_a_process_of_its_own() -> None:
    it = experiment(TELLS)
    native = it.native()
    assert it.on_gpu
    (site,) = native.result.sites
    plans = [{site: name} for name in ("native", "int8x6", "int8x1", "int8x6", "int8x10")]
    measured = [it.measure(plan, native.values) for plan in plans]
    problems = [one.problem for one in measured]
    assert [problem is None for problem in problems] == [True, True, False, True, True]
    assert "ended with exit code 1" in str(problems[2])
    assert measured[1].error == measured[3].error <= 1e-6
    pids, drawn = zip(*told(), strict=True)
    assert len(set(pids)) == len(set(drawn)) == 6


def test_small_numpy_products_keep_the_ladder_of_the_host() -> None:
    text = MOVED.replace("1536", "300").replace('dtype="float32"', "dtype=float")
    found = tuned(text, TuningOptions(Limits(Limit(1e-3))))
    assert set(found.plan.schemes().values()) <= {"native", "float32"}
