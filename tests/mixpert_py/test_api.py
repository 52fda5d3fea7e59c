"""The public names, and that importing them is quick."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mixpert_py

ROOT = Path(__file__).parent.parent.parent
HEAVY = ("numpy", "libcst", "rich", "click", "tomlkit", "msgspec", "networkx", "cupy", "numba")
SOURCE_TOOLS = ("libcst", "rich", "click", "mixpert_py.passes.")
GPU = ("cupy", "numba", "torch")
LATE = (
    "model.",
    "gpu.multiply",
    "gpu.gemm",
    "gpu.slices",
    "products.dask_array",
    "packing",
    "probes",
)
RUNTIME = tuple(f"mixpert_py.runtime.{name}" for name in LATE)
CALLS = """\
import numpy
from mixpert_py import einsum, matmul
a = numpy.eye(8)
matmul(a, a, site="m:f/x~1#0")
matmul(a, a, scheme="int8x6", backend="reference")
matmul(a, a, scheme="int8x6")
matmul(numpy.ones((1200, 1200), "f"), numpy.ones((1200, 2), "f"))
einsum("ij,jk", a, a, scheme="fp16")
"""


@pytest.mark.parametrize(
    ("code", "needless"),
    [
        ("import mixpert_py", (*HEAVY, "mixpert_py.")),
        ("import mixpert_py.cli", tuple({*HEAVY} - {"click"})),
        (
            "import mixpert_py.runtime.api",
            (*RUNTIME, *SOURCE_TOOLS, *GPU, "dask", "sqlite3", "asyncio"),
        ),
        (CALLS, (*SOURCE_TOOLS, *GPU, "dask")),
    ],
)
def test_a_process_loads_what_it_needs(code: str, needless: tuple[str, ...]) -> None:
    """Programs start as quickly as without us only if little is imported beside them."""
    words = [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 0, done.stderr
    loaded = done.stdout.split()
    assert "mixpert_py" in loaded
    assert not [name for name in loaded if name.startswith(needless)]


def test_a_program_found_in_the_cache_loads_no_source_tools(tmp_path: Path) -> None:
    script = tmp_path / "s.py"
    script.write_text("import sys, numpy as np\nx = np.eye(2)\ny = x @ x\nprint(*sys.modules)\n")
    words = [sys.executable, "-m", "mixpert_py", "run", str(script)]
    for _ in range(2):
        done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=60)
        assert done.returncode == 0, done.stderr
    loaded = done.stdout.split()
    assert "mixpert_py.runtime.api" in loaded
    heavy = {name.partition(".")[0] for name in loaded} & set(HEAVY)
    assert heavy == {"numpy", "click", "msgspec"}
    parts = ("tuner", "tuning", "commands", "passes")
    beyond = [name for name in loaded for part in parts if name.startswith(f"mixpert_py.{part}.")]
    assert beyond == ["mixpert_py.commands.run"]


def test_every_public_name_is_there() -> None:
    assert mixpert_py.__all__ == sorted(mixpert_py.__all__)
    for name in mixpert_py.__all__:
        value = getattr(mixpert_py, name)
        assert callable(value)
        assert value.__doc__
        assert getattr(mixpert_py, name) is value
    with pytest.raises(AttributeError, match="no attribute 'einsumm'"):
        _ = mixpert_py.einsumm


def test_errors_are_public() -> None:
    with pytest.raises(mixpert_py.PlanError, match="unknown scheme"):
        mixpert_py.matmul(np.eye(2), np.eye(2), scheme="no")
    assert issubclass(mixpert_py.PlanError, mixpert_py.MixPertError)
    for name in ("BudgetError", "DeviceError", "ProgramError", "ShapeError", "SourceError"):
        assert issubclass(getattr(mixpert_py, name), mixpert_py.MixPertError)
