"""The error of a whole product of arrays on a GPU that is not there."""

from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime import product_error
from mixpert_py.runtime.gpu.sampling import whole_error
from tests.runtime.gpu.fake import FakeGpu, ndarray


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    fake = FakeGpu()
    fake.install(monkeypatch)
    return fake


def operands(dtype: str) -> tuple[Any, Any]:
    a, b = np.random.default_rng(2).standard_normal((2, 96, 96)).astype(dtype)
    return a, b


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("dtype", ["f", "d", "F", "D"])
def test_it_is_what_the_host_finds(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product_error, "PART", 1000)  # of ten rows
    a, b = operands(dtype)
    product = a @ b * np.asarray(1 + 1e-4, dtype)
    found = whole_error(ndarray(a), ndarray(b), ndarray(product), turn=3)
    assert found == pytest.approx(1e-4, rel=1e-2)
    assert found == pytest.approx(product_error.whole_error(a, b, product, 3), rel=1e-9)
