"""The applications on a GPU, small: every one in every mode."""

import numpy as np
import pytest

from mixpert_py.bench.apps import modes, tables
from mixpert_py.bench.apps.app import APPS
from mixpert_py.bench.apps.measure import measure
from mixpert_py.bench.apps.process import platform
from tests.mixpert_py.command import ROOT

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy", reason="CuPy is not installed")


@pytest.mark.parametrize("name", APPS)
def test_nothing_fails(name: str) -> None:
    app = APPS[name]
    record = measure(app, app.arguments("small"), ROOT / "samples", 1e-4, platform(None))
    assert tables.failures({"apps": [record], "host": []}) == []
    assert [mode["name"] for mode in record["modes"]] == [
        *(modes.FP32, modes.TF32, modes.FAITHFUL, modes.TUNED)
    ]


@pytest.mark.parametrize("shape", [(256, 256), (3, 64, 64)])
def test_tf32_inside_and_fp32_again_after(shape: tuple[int, ...]) -> None:
    a = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    exact = a.astype(np.float64) @ a.astype(np.float64)

    def error() -> float:
        x = cupy.asarray(a)
        found = cupy.asnumpy(cupy.matmul(x, x))
        return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))

    before = error()
    with modes.tensor_float(cupy):
        assert 1e-5 < error() < 1e-2
    assert error() == before < 1e-6
