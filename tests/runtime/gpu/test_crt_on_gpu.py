"""`crt` on a GPU: the decisions and the bits of the reference backend, by the path of users."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.api import matmul
from mixpert_py.runtime.context import current, use
from mixpert_py.runtime.gpu.device import Device, find
from mixpert_py.runtime.gpu.device_state import state_of
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.reference import residues
from mixpert_py.runtime.schemes import emulation_of
from mixpert_py.runtime.schemes.crt import moduli_for
from mixpert_py.runtime.tracing.trace import Trace
from tests.runtime.families import EVERYDAY, FAMILIES

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
    trace = Trace()
    with use(replace(current(), trace=trace)):
        value = matmul(a, b, scheme="crt", backend="cuda", site="s", **given)
    found = trace.sites["s"]
    if list(found.schemes) == ["crt"]:
        return value, True
    assert list(found.reasons) == [Reason.SPREAD], found.reasons
    return value, False


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


@pytest.mark.parametrize("family", ["normal", "log-normal 1"])
def test_numpy_arrays_are_moved(family: str) -> None:
    a, b = ALL[family](np.random.default_rng(0), M, K, N)
    value, by_residues = made(a, b)
    assert by_residues
    assert isinstance(value, np.ndarray)
    np.testing.assert_array_equal(value, made(*map(cupy.asarray, (a, b)))[0].get())


def test_numpy_arrays_of_much_spread_are_multiplied_in_fp64_on_the_gpu() -> None:
    draw = np.random.default_rng(0)
    a, b = (
        draw.random(shape) * np.exp(8 * draw.standard_normal(shape)) for shape in ((M, K), (K, N))
    )
    trace = Trace()
    for _ in range(2):
        with use(replace(current(), trace=trace)):
            value = matmul(a, b, scheme="crt", backend="cuda", site="s")
        assert np.linalg.norm(value - a @ b) <= 1e-14 * np.linalg.norm(a) * np.linalg.norm(b)
    assert trace.sites["s"].schemes == {"float64": 2}


def test_a_signature_learns() -> None:
    rng = np.random.default_rng(1)
    normal, skewed = (ALL[name](rng, M, K, N) for name in ("normal", "log-normal 1"))
    hopeless = ALL["spread 4"](rng, M, K, N)
    for operands, count in ((normal, 14), (skewed, 15), (normal, 14)):
        x, y = map(cupy.asarray, operands)
        value, by_residues = made(x, y)
        assert by_residues
        (outlook,) = state_of(0).outlooks.values()
        assert outlook.count == count
        np.testing.assert_allclose(value.get(), operands[0] @ operands[1], atol=1e-9)
    x, y = map(cupy.asarray, hopeless)
    for _ in range(3):
        assert not made(x, y)[1]
    assert outlook.failures == 2
    assert outlook.unseen == 3


def test_results_go_where_they_are_wanted() -> None:
    rng = np.random.default_rng(2)
    for family in ("normal", "spread 4"):
        a, b = ALL[family](rng, 300, 300, 300)
        x, y = cupy.asarray(a), cupy.asarray(b)
        wanted = matmul(x, y, scheme="crt", backend="cuda").get()
        for place in (x, y):
            state_of(0).outlooks.clear()
            kept = place.copy()
            found = matmul(x, y, scheme="crt", backend="cuda", out=place)
            assert found is place
            np.testing.assert_array_equal(place.get(), wanted)
            place[...] = kept


def test_a_capture_is_native() -> None:
    """CuPy's own product refuses a capture, and so says what it says without us."""
    x, y = (cupy.asarray(v) for v in ALL["normal"](np.random.default_rng(3), M, K, N))
    made(x, y)
    out = cupy.empty((M, N))
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        with pytest.raises(NotImplementedError, match="during stream capture"):
            matmul(x, y, scheme="crt", backend="cuda", out=out)
        stream.end_capture()
    assert made(x, y)[1]


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
