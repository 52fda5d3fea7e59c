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


def meant(a: Any, b: Any, count: int) -> Any:
    """The bits of so many moduli."""
    return residues.execute(residues.pack(a, b, emulation_of(f"crt{count}")), np.dtype("d"))


@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_the_same_operands_have_the_same_bits_whatever_ran_before(library: str) -> None:
    rng = np.random.default_rng(3)
    put = cupy.asarray
    if library == "torch":
        put = partial(pytest.importorskip("torch").tensor, device="cuda")
    pairs, wanted = [], []
    for family in ("normal", "log-normal 1", "spread 4", "huge entry", "integers", "low-rank"):
        a, b = ALL[family](rng, 4 * M, K, N)
        pairs.append((put(a), put(b)))
        count = moduli_for(residues.rows_of(a), residues.rows_of(b.T))
        exact = 14 if holds_integers(a, b) else count
        wanted.append(None if exact is None else meant(a, b, exact))
    are_native = [each is None for each in wanted]
    for which in rng.integers(0, len(pairs), 40):
        for _ in range(1 + which):
            value, by_residues = made(*pairs[which])
            assert by_residues != are_native[which]
            bits = cupy.asarray(value).get()
            if wanted[which] is None:
                wanted[which] = bits
            np.testing.assert_array_equal(bits, wanted[which])


def test_products_are_native_in_a_graph() -> None:
    torch = pytest.importorskip("torch")
    a, b = (torch.randn(600, 600, dtype=torch.float64, device="cuda") for _ in "ab")
    for _ in range(5):
        assert made(a, b)[1]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value, native = made(a, b), a @ b
    assert not value[1]
    graph.replay()
    assert torch.equal(value[0], native)


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
        if (m, k, n) == (M, K, N):
            assert outlook.scheme.name == name
        x[m // 2, k - 1] = 0.5  # no integer any more
        value, _ = made(x, y)
        np.testing.assert_allclose(value.get(), x.get() @ y.get(), rtol=1e-13)
        assert not outlook.scheme or outlook.scheme.name.startswith("crt1")
