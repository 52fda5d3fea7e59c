"""Which tensor cores a certificate of the GPU is for."""

import numpy as np
import pytest

from mixpert_py.runtime.certificates import tensor_cores
from mixpert_py.runtime.gpu.certificate import rounding
from mixpert_py.runtime.model.known_devices import find as model_of
from mixpert_py.runtime.reference import reference
from mixpert_py.runtime.request import Product
from mixpert_py.runtime.scheme import UNIT32, UNIT64
from mixpert_py.runtime.schemes import emulation_of
from tests.runtime.emulations import EMULATIONS
from tests.runtime.gpu.fake import FakeGpu, ndarray
from tests.runtime.gpu.requested import multiplied


@pytest.mark.parametrize("scheme", ["fp16x3", "bf16x6", "tf32x3"])
@pytest.mark.parametrize(
    ("name", "capability", "chip"),
    [
        ("NVIDIA H200", (9, 0), "h200"),
        ("NVIDIA H100 80GB HBM3", (9, 0), "h200"),
        ("NVIDIA GeForce RTX 3090", (8, 6), "rtx 3090"),
        ("NVIDIA L40S", (8, 9), "a100"),
        ("NVIDIA B200", (10, 0), "a100"),
    ],
)
def test_sums_are_rounded_as_the_device_rounds_them(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    capability: tuple[int, int],
    chip: str,
    scheme: str,
) -> None:
    FakeGpu(name, capability).install(monkeypatch)
    emulation = EMULATIONS[scheme]
    how = getattr(model_of(chip).accumulation, emulation.element.name)
    wanted = tensor_cores.rounding(emulation, 500, how, hopper=capability == (9, 0))
    assert rounding(emulation, 500, UNIT32, 0) == wanted


def test_integers_are_the_same_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeGpu().install(monkeypatch)
    emulation = EMULATIONS["int8x6"]
    for unit in (UNIT32, UNIT64):
        assert rounding(emulation, 500, unit, 0) == emulation.rounding(500, unit)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", ["crt7", "crt14"])
def test_residues_have_one_though_packing_measures_nothing(
    monkeypatch: pytest.MonkeyPatch, name: str, dtype: str
) -> None:
    """No more than four times the one that is made of measured losses, of either operand."""
    FakeGpu().install(monkeypatch)
    rng, scheme = np.random.default_rng(0), emulation_of(name)
    a, b = rng.standard_normal((2, 20, 300)), rng.standard_normal((300, 10))
    a *= 2.0 ** rng.integers(-60, 60, (2, 20, 1))
    a[0, 3], a[1, 4, 5] = 0, np.nan
    a, b = a.astype(dtype), b.astype(dtype)
    product = multiplied(ndarray(a), ndarray(b), name, certificate=True)
    assert isinstance(product, Product)
    assert product.certificate is not None
    bound = product.certificate.bound()
    assert bound.shape == (2, 20, 10)
    for value, rows, found in zip(product.value.get(), a, bound, strict=True):
        finite = np.isfinite(rows).all(axis=1)
        exact = rows[finite].astype(np.longdouble) @ b.astype(np.longdouble)
        assert (abs(value[finite] - exact) <= found[finite]).all()
        wanted = reference.multiply(rows, b, scheme).certificate.bound()
        assert (found[finite] <= 4 * wanted[finite] + 1e-300).all()
        assert (found[finite] >= wanted[finite]).all()
    assert product.certificate.left_loss[0, 3] == 0
    assert (product.certificate.right_loss > 0).all()
