"""With `--gpu`, samples keep arrays of the host and of the device apart, as CuPy wants it."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.samples.test_samples import CASES, SAMPLES, figure, printed

STRICT = Path(__file__).with_name("strict")  # in which `cupy` is NumPy that mixes nothing
WITHOUT = {"knn_digits.py"}


@pytest.fixture(autouse=True)
def strict_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(STRICT))


@pytest.mark.parametrize(
    ("name", "arguments", "label", "bounds"),
    [case for case in CASES if case.values[0] not in WITHOUT],
)
def test_the_figure_is_sensible_there_too(
    name: str, arguments: list[str], label: str, bounds: tuple[float, float]
) -> None:
    low, high = bounds
    assert low <= figure(printed(name, *arguments, "--gpu"), label) <= high


def test_the_others_have_no_such_switch() -> None:
    switched = {path.name for path in SAMPLES.glob("*.py") if "--gpu" in path.read_text("utf-8")}
    assert switched == {path.name for path in SAMPLES.glob("*.py")} - WITHOUT


@pytest.mark.parametrize(
    "mixed",
    [
        "cupy.zeros(2) + numpy.zeros(2)",
        "numpy.zeros((2, 2)) @ cupy.zeros(2)",
        "cupy.dot(cupy.zeros(2), numpy.zeros(2))",
        "cupy.zeros(2)[numpy.array([1])]",
        "cupy.concatenate([cupy.zeros(2), numpy.zeros(2)])",
        "numpy.asarray(cupy.zeros(2))",
        "numpy.linalg.norm(cupy.zeros(2))",
    ],
)
def test_what_is_mixed_is_refused(mixed: str) -> None:
    program = [sys.executable, "-c", f"import cupy, numpy; {mixed}"]
    run = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert "of the device" in run.stderr.splitlines()[-1]
