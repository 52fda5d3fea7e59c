"""Complex arrays of a GPU that is not there: which launches multiply them, and what stays true."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime import worth
from mixpert_py.runtime.api import matmul
from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.gpu import multiply as gpu_backend
from mixpert_py.runtime.gpu import transfer
from mixpert_py.runtime.gpu.transfer import GRANULE
from mixpert_py.runtime.packed_array import pack
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.request import Product
from mixpert_py.runtime.tracing.trace import Trace
from tests.runtime.gpu.fake import FakeGpu, OutOfMemoryError, ndarray
from tests.runtime.gpu.requested import multiplied, transferred
from tests.runtime.gpu.test_foreign import Tensor
from tests.runtime.gpu.test_foreign import torch as torch
from tests.runtime.test_complex_product import normal

SITE = "m:f/matmul~aa#0"


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    fake = FakeGpu()
    fake.install(monkeypatch)
    return fake


def there(*shape: int, dtype: Any = "F", seed: int = 0) -> ndarray:
    return ndarray(normal(*shape, dtype=dtype, seed=seed))


def made(*args: Any, **given: Any) -> Product:
    result = multiplied(*args, **given)
    assert isinstance(result, Product)
    return result


@pytest.mark.parametrize("shapes", [((5, 6), (6, 4)), ((6,), (6, 4)), ((5, 6), (3, 6, 4))], ids=str)
def test_packed_operands(gpu: FakeGpu, shapes: Any) -> None:
    a, b = there(*shapes[0]), there(*shapes[1], seed=1)
    wanted = matmul(a, b, scheme="int8x6", backend="cuda").get()
    handle = pack(b, "int8x6")
    assert handle.packed is not None
    b.x[...] = 0  # its parts are kept, and nothing else is read
    np.testing.assert_array_equal(matmul(a, handle, backend="cuda").get(), wanted)
    if a.ndim > 1:
        left = pack(a, "int8x6", side="left")
        np.testing.assert_array_equal(matmul(left, handle, backend="cuda").get(), wanted)


def ran(a: Any, b: Any) -> tuple[Any, dict[str, int], list[Reason]]:
    trace = Trace()
    with use(Context(scheme="int8x6", backend="cuda", trace=trace)):
        value = matmul(a, b, site=SITE)
    record = trace.sites[SITE]
    assert sum(record.shapes.values()) == 1
    return value, dict(record.schemes), list(record.reasons)


@pytest.mark.parametrize("where", ["parts", "packing"])
def test_no_memory_has_a_reason(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    def none_left(x: Any) -> Any:
        raise OutOfMemoryError(1, 1)

    a = there(40, 40)
    if where == "packing":
        gpu.memory = 100
    else:
        kernels = gpu_backend.cuda_kernels()
        short = replace(kernels, complex=kernels.complex._replace(split=none_left))
        monkeypatch.setattr(gpu_backend, "cuda_kernels", lambda: short)
    value, schemes, reasons = ran(a, a)
    assert (schemes, reasons) == ({"native": 1}, [Reason.MEMORY])
    np.testing.assert_array_equal(value.get(), a.x @ a.x)


@pytest.mark.parametrize("pair", ["FF", "DD", "FD", "Ff"])
@pytest.mark.parametrize("m", [1, 5 * GRANULE + 1])
def test_numpy_arrays_move_in_panels(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, pair: str, m: int
) -> None:
    monkeypatch.setattr(transfer, "PANEL_BYTES", GRANULE * 50 * 16)
    a, b = normal(m, 50, dtype=pair[0]), normal(50, 40, dtype=pair[1], seed=1)
    result = transferred(a, b, "int8x6")
    assert isinstance(result, Product)
    assert (len(gpu.launches) > 2) == (m > 1 and pair != "Ff")
    wanted = made(*map(ndarray, (a, b)), "int8x6").value.get()
    assert result.value.dtype == wanted.dtype
    np.testing.assert_array_equal(result.value, wanted)


@pytest.mark.usefixtures("torch")
def test_tensors_that_are_marked_as_conjugates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tensor, "resolve_conj", lambda self: Tensor(self.x.conj()))
    a = normal(40, 40)
    value = matmul(Tensor(a), Tensor(a), scheme="int8x8", backend="cuda")
    assert type(value) is Tensor
    np.testing.assert_allclose(value.x, a.conj() @ a.conj(), atol=1e-4)


def test_moving_counts_four_products() -> None:
    known = worth.Figures(8e9, 0.0, 1e12, lambda *_: (0.0, 1.0))
    real, both = (np.broadcast_to(np.zeros((), t), (500, 500)) for t in "fF")
    shape = (500, 500, 500)
    assert not worth.moving_saves(real, real, shape, "int8x6", known)
    assert worth.moving_saves(both, both, shape, "int8x6", known)
