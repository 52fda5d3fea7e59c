"""Looking at crest factors: the kernel in Numba's simulator, and on a GPU."""

from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime import crest
from mixpert_py.runtime.packing.crest import words
from mixpert_py.runtime.packing.operand import Form
from tests.runtime.packing.child import run


def test_the_kernel_in_the_simulator() -> None:
    assert "passed" in run("tests/runtime/packing/simulated/crest_checks.py", simulated=True)


def test_no_more_than_it_needs() -> None:
    a = Form("float32", 3, 1000, 50_000, 7, 6, 5, True)
    b = Form("float32", 1, 9, 50_000, 0, 1, 9, True)
    counts, integers = words(a, b)
    assert counts == (crest.LINES, 9)
    assert integers[2:4] == (12_500, 4)
    assert integers[4:] == (3000, 1000, 7, 6, 5, 9, 9, 0, 1, 9)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shapes", [((300, 5000), (5000, 20)), ((3, 90, 40_000), (40_000, 7))])
def test_on_the_device(shapes: Any, dtype: str) -> None:
    import cupy

    from mixpert_py.runtime.packing import by_columns, by_rows
    from mixpert_py.runtime.packing.crest import crests

    draw = np.random.default_rng(0)
    a, b = (draw.standard_normal(shape).astype(dtype) for shape in shapes)
    a[..., 0, 3] = 100
    b[5, ::3] = 1e4
    wanted = crest.mean_square(a), crest.mean_square(b.T)
    x, y = cupy.asarray(a), cupy.asarray(np.asfortranarray(b))
    told = [crests(by_rows(x), by_columns(y)) for _ in range(3)]
    for one in told:
        assert one() == pytest.approx(wanted, rel=1e-9)
    assert crests(by_rows(x), by_columns(y))() == pytest.approx(wanted, rel=1e-9)


@pytest.mark.gpu
def test_it_waits_for_what_writes_the_operands() -> None:
    """Of its stream, and for nothing of others."""
    import cupy

    from mixpert_py.runtime.packing import by_columns, by_rows
    from mixpert_py.runtime.packing.crest import crests

    a, b = cupy.ones((64, 4096), "float32"), cupy.ones((4096, 64), "float32")
    large = cupy.ones((8192, 8192), "float32")
    with cupy.cuda.Stream(non_blocking=True):
        for _ in range(20):
            large @ large
        a[:, 0] = 1e6
        left, right = crests(by_rows(a), by_columns(b))()
    assert left == pytest.approx(4096, rel=1e-3)
    assert right == pytest.approx(1)
