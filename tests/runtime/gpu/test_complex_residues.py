"""Complex products by residues on a GPU that is not there: whether parts have one scale."""

from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.gpu import guard
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.reference.emulation import emulate
from mixpert_py.runtime.request import Product
from tests.runtime.gpu.fake import FakeGpu, Stream, ndarray
from tests.runtime.gpu.requested import multiplied, transferred

ROWS, HIDDEN = 300, 1  # more than are looked at before, and one that is not
K = 60
ONE = [(1, ROWS, 40)]


def operands(kind: str) -> tuple[Any, Any]:
    """A and B, whose parts are alike but for those of A and one column of B."""
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(-1, 1, (*s, 2)).view("D")[..., 0] for s in ((ROWS, K), (K, 40)))
    if kind == "differ":
        a.imag *= 1e-5
        b.imag[:, 3] *= 1e-5
    if kind == "differ in a hidden row":
        a.imag[HIDDEN] *= 1e-5
        b.imag[:, 3] *= 1e-5
    if kind == "not finite":
        a[HIDDEN, 3] = complex(1, np.nan)
    return a, b


@pytest.mark.parametrize("kind", ["alike", "differ", "differ in a hidden row", "not finite"])
@pytest.mark.parametrize("scheme", ["crt14", "crt9", "crt16", "crt"])
def test_parts_have_one_scale_where_they_are_alike(gpu: FakeGpu, scheme: str, kind: str) -> None:
    """Whatever ran before, and with the bits of the reference."""
    a, b = operands(kind)
    wanted = emulate(a, b, scheme)
    assert (wanted is None) == (scheme == "crt" and kind != "alike")
    for before in ("alike", "differ"):
        for _ in range(5):
            multiplied(*map(ndarray, operands(before)), scheme)
        gpu.launches.clear()
        product = multiplied(ndarray(a), ndarray(b), scheme)
        if wanted is None:
            assert product is Reason.SPREAD
            continue
        assert isinstance(product, Product)
        assert product.scheme == scheme
        assert (gpu.launches == ONE) == (kind == "alike")
        value = product.value.get()
        finite = np.isfinite(wanted)
        np.testing.assert_array_equal(np.isfinite(value), finite)
        np.testing.assert_array_equal(value[finite], wanted[finite])


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("scheme", ["crt14", "crt"])
def test_operands_are_as_they_were_until_a_product_does(scheme: str) -> None:
    a, b = operands("differ in a hidden row")
    a, b = a[:, :40], b[:40]
    out = ndarray(b.copy())
    wanted = emulate(a[:40], out.x, scheme)
    product = multiplied(ndarray(a[:40].copy()), out, scheme, out=out)
    if scheme == "crt":
        assert product is Reason.SPREAD
        np.testing.assert_array_equal(out.get(), b)
    else:
        np.testing.assert_array_equal(out.get(), wanted)


def test_numpy_arrays_that_move(gpu: FakeGpu) -> None:
    a, b = operands("alike")
    product = transferred(a, b, "crt")
    assert isinstance(product, Product)
    np.testing.assert_array_equal(product.value, emulate(a, b, "crt"))
    assert gpu.launches == ONE
    assert isinstance(transferred(*operands("differ"), "crt"), Product)  # in the device's FP64
    assert gpu.launches == ONE


def test_graphs_and_operands_that_kernels_cannot_read(gpu: FakeGpu) -> None:
    """Their parts are multiplied: the host may not wait, or alignment is that of the parts."""
    a, b = operands("alike")
    with Stream(ptr=99) as stream:
        stream.capturing = True
        assert isinstance(multiplied(ndarray(a), ndarray(b), "crt14"), Product)
        assert multiplied(ndarray(a), ndarray(b), "crt") is Reason.SPREAD
    memory = np.empty(a.nbytes + 16, np.uint8)
    apart = memory[(8 - memory.ctypes.data) % 16 :][: a.nbytes].view("D").reshape(a.shape)
    apart[...] = a
    gpu.launches.clear()
    product = multiplied(ndarray(apart), ndarray(b), "crt14")
    assert isinstance(product, Product)
    assert gpu.launches != ONE
    np.testing.assert_allclose(product.value.get(), a @ b, atol=1e-11)


def turned(x: Any, *, conjugate: bool) -> Any:
    return ndarray(np.conj(x.x)).swapaxes(-1, -2) if conjugate else x.swapaxes(-1, -2)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("scheme", ["crt14", "crt"])
def test_half_of_a_product_with_ones_own_conjugate_transpose_is_made(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, scheme: str, order: Any
) -> None:
    """With the bits that two arrays have, also where B is nearly the conjugate transpose."""
    monkeypatch.setattr(guard, "MIN_HERMITIAN", 1)
    a = np.asarray(operands("alike")[0], order=order)
    stack = np.stack([a, a[::-1]])
    for x in (a, a.T, stack):
        for conjugate, nearly in ((False, False), (True, False), (True, True)):
            y = turned(ndarray(x), conjugate=True) if conjugate else None
            left = ndarray(x)
            right = left.swapaxes(-1, -2) if y is None else y
            if nearly:
                right.x[..., 2, 3] *= 1 + 1e-15j
            gpu.mirrored = 0
            product = multiplied(left, right, scheme)
            assert isinstance(product, Product)
            wanted = emulate(left.x, right.x.copy(), scheme)
            np.testing.assert_array_equal(product.value.get(), wanted)
            assert gpu.mirrored == (x.size // a.size if conjugate and not nearly else 0)
