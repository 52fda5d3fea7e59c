"""The certificate: what it reports of each operand, and that it covers what is really lost."""

import numpy as np
import pytest

from mixpert_py.runtime.reference import multiply
from tests.runtime.emulations import EMULATIONS
from tests.runtime.families import FAMILIES


@pytest.mark.parametrize(("name", "low", "high"), [("int8x1", 5e-3, 2e-2), ("int8x6", 1e-7, 2e-7)])
def test_losses_are_relative_to_the_rows_own_norm(name: str, low: float, high: float) -> None:
    a, b = (
        x.astype(np.float32) for x in FAMILIES["scaled rows"](np.random.default_rng(1), 30, 256, 20)
    )
    certificate = multiply(a, b, EMULATIONS[name]).certificate
    assert certificate.left_loss.shape == (30,)
    assert certificate.right_loss.shape == (20,)
    for loss in (certificate.left_loss, certificate.right_loss):
        assert low < loss.min() <= loss.max() < high


def test_exact_operands_lose_nothing() -> None:
    a, b = FAMILIES["integers"](np.random.default_rng(2), 9, 40, 8)
    certificate = multiply(a, b, EMULATIONS["int8x1"]).certificate
    assert not certificate.left_loss.any()
    assert not certificate.right_loss.any()
    assert certificate.bound().max() < 1e-11


def test_zero_rows_have_no_bound_to_speak_of() -> None:
    a, b = np.zeros((3, 50)), np.ones((50, 4))
    certificate = multiply(a, b, EMULATIONS["int8x6"]).certificate
    assert not certificate.left_loss.any()
    assert certificate.bound().max() <= 1e-300


def test_bound_follows_rows_and_columns() -> None:
    """It scales with A(i,:) and B(:,j), and not with their neighbours."""
    a, b = FAMILIES["normal"](np.random.default_rng(3), 12, 200, 10)
    bound = multiply(a, b, EMULATIONS["int8x6"]).certificate.bound()
    a[3] *= 2.0**30
    b[:, 7] *= 2.0**-20
    scaled = multiply(a, b, EMULATIONS["int8x6"]).certificate.bound()
    bound[3] *= 2.0**30
    bound[:, 7] *= 2.0**-20
    np.testing.assert_allclose(scaled, bound, rtol=1e-9)


def test_bound_is_reached_when_errors_agree() -> None:
    """Constant operands: every element loses the same, and no two losses cancel."""
    a, b = np.full((2, 128), 1 + 0.4 / 128), np.full((128, 2), 1.0)
    product = multiply(a, b, EMULATIONS["int8x1"])
    error = np.abs(product.value - a @ b)
    bound = product.certificate.bound()
    assert (error <= bound).all()
    assert (bound <= 1.05 * error).all()
