"""The number of BLAS threads that the user sets holds in a tuning, and stands in its plan."""

from pathlib import Path

import pytest

from mixpert_py import plan
from tests.mixpert_py.command import Mixpert, Shell

PROGRAM = """\
import os
import numpy as np
names = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")
with open(os.path.join(os.path.dirname(__file__), "seen"), "a") as file:
    print(*(os.environ.get(name) for name in names), file=file)
a = np.random.default_rng(0).standard_normal((400, 400))
b = a @ a
"""


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)


def test_the_users_number_holds_in_every_run_and_stands_in_the_plan(
    tmp_path: Path, new_mixpert: Mixpert
) -> None:
    sh = Shell(tmp_path, new_mixpert)
    sh.write({"s.py": PROGRAM})
    said = new_mixpert("tune", "--error", "1e-4", "s.py", OPENBLAS_NUM_THREADS="3")
    assert said.code in (0, 1), said
    assert set(sh.read("seen").splitlines()) == {"3 None None"}
    assert plan.load(tmp_path / "s.mixpert.toml").provenance.blas_threads == 3
