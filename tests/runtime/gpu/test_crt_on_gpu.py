"""`crt` on a GPU: the decisions and the bits of the reference backend, by the path of users."""

from functools import partial
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.api import matmul
from mixpert_py.runtime.gpu.device import Device, find, state_of
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.reference import residues
from mixpert_py.runtime.schemes import emulation_of
from mixpert_py.runtime.schemes.crt import moduli_for
from tests.runtime.families import EVERYDAY, FAMILIES
from tests.runtime.operands import ran

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy", reason="CuPy is not installed")

ALL = {**FAMILIES, **EVERYDAY}
M, K, N = 130, 1000, 70


@pytest.fixture(autouse=True)
def nothing_known() -> None:
    here = find()
    assert isinstance(here, Device)
    state_of(here.id).outlooks.clear()


def made(a: Any, b: Any, **given: Any) -> tuple[Any, bool]:
    """The product, and whether `crt` made it; else it was native, for the operands' spread."""
    value, *how = ran(partial(matmul, scheme="crt", backend="cuda"), a, b, **given)
    assert how in (["crt", None], ["native", Reason.SPREAD])
    return value, how[0] == "crt"


def check(a: Any, b: Any, order: str = "C") -> int | None:
    """The number of moduli that the reference takes, and the GPU with the same bits."""
    x, y = cupy.asarray(a, order=order), cupy.asarray(b, order=order)
    state_of(0).outlooks.clear()
    needed = moduli_for(residues.rows_of(a), residues.rows_of(b.T))
    value, by_residues = made(x, y)
    assert by_residues == (needed is not None)
    if needed is None:
        np.testing.assert_array_equal(value.get(), cupy.matmul(x, y).get())
    elif needed is not None and not holds_integers(a, b):
        scheme = emulation_of(f"crt{needed}")
        wanted = residues.execute(residues.pack(a, b, scheme), np.dtype("d"))
        np.testing.assert_array_equal(value.get(), wanted)
    return needed


def holds_integers(a: Any, b: Any) -> bool:
    return bool((a == np.rint(a)).all() and (b == np.rint(b)).all())


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("family", ALL)
def test_every_family(family: str, order: str) -> None:
    with np.errstate(all="ignore"):
        check(*ALL[family](np.random.default_rng(0), M, K, N), order)


def meant(a: Any, b: Any, count: int = 14) -> Any:
    """The bits of so many moduli, of a stack by a matrix too."""
    pair = residues.pack(a.reshape(-1, a.shape[-1]), b, emulation_of(f"crt{count}"))
    return residues.execute(pair, np.dtype("d")).reshape(*a.shape[:-1], b.shape[-1])


def assert_as_of_fp64(a: Any, b: Any, value: Any) -> None:
    """Within FP64's bound, and NaN where that is."""
    with np.errstate(all="ignore"):
        exact = a.astype(np.longdouble) @ b.astype(np.longdouble)
        bound = a.shape[-1] * 2.0**-53 * (np.abs(a) @ np.abs(b)) + 1e-300
    np.testing.assert_array_equal(np.isnan(value), np.isnan(exact))
    finite = np.isfinite(exact)
    assert (abs(value - exact)[finite] <= bound[finite]).all()


@pytest.mark.parametrize("shape", [(M, K), (3, 40, K)], ids=str)
def test_a_graph_decides_each_time(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    rows = int(np.prod(shape[:-1]))

    def drawn(family: str) -> tuple[Any, Any]:
        a, b = ALL[family](rng, rows, K, N)
        return a.reshape(shape), b

    a, b = drawn("normal")
    x, y = cupy.asarray(a), cupy.asarray(b)
    made(x, y)
    cupy.cuda.Device().synchronize()
    stream = cupy.cuda.Stream(non_blocking=True)
    decided = set()
    with stream:
        stream.begin_capture()
        value = matmul(x, y, scheme="crt", backend="cuda")
        graph = stream.end_capture()
        for family in ("normal", "spread 4", "log-normal 1", "normal", "not finite", "normal"):
            a, b = drawn("normal" if family == "not finite" else family)
            if family == "not finite":
                a[..., 7, 5], b[3, 9] = np.nan, np.inf
            x.set(np.ascontiguousarray(a))
            y.set(np.ascontiguousarray(b))
            graph.launch()
            found = value.get()
            flat = a.reshape(-1, K)
            needed = moduli_for(residues.rows_of(flat), residues.rows_of(b.T))
            decided.add(needed)
            if needed == 14:
                np.testing.assert_array_equal(found, meant(a, b))
            else:
                assert_as_of_fp64(a, b, found)
    assert {14, None} <= decided


INTEGERS = {
    "0/1": ((0, 1), "crt of integers 1s1s"),
    "[0, 255]": ((0, 255), "crt of integers 1u1u"),
    "signed bytes": ((-128, 127), "crt of integers 1s1s"),
    "±30,000": ((-30_000, 30_000), "crt of integers 2s2s"),
    "16 bits": ((0, 65_535), "crt of integers 2u2u"),
    "±2^21": ((1 - 2**21, 2**21 - 1), "crt of integers 7"),
}


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("kind", INTEGERS)
def test_integers_are_exact(kind: str, order: str) -> None:
    bounds, name = INTEGERS[kind]
    rng = np.random.default_rng(5)
    for m, k, n in ((M, K, N), (513, 700, 390), (5, 20_000, 3)):
        state_of(0).outlooks.clear()
        wide = [rng.integers(*bounds, shape, endpoint=True) for shape in ((m, k), (k, n))]
        x, y = (cupy.asarray(v.astype(float), order=order) for v in wide)
        exact = (wide[0].astype(object) @ wide[1].astype(object)).astype(float)
        for _ in range(3):
            value, by_residues = made(x, y)
            assert by_residues
            np.testing.assert_array_equal(value.get(), exact)
        (outlook,) = state_of(0).outlooks.values()
        assert outlook.integers is not None
        if (m, k, n) == (M, K, N):
            assert outlook.integers.name == name
        x[m // 2, k - 1] = 0.5  # no integer any more
        value, _ = made(x, y)
        np.testing.assert_allclose(value.get(), x.get() @ y.get(), rtol=1e-13)
        assert outlook.integers is None
