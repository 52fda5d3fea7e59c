"""Complex arrays of a GPU that is not there: which launches multiply them, and what stays true."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mixpert_py.errors import DeviceError
from mixpert_py.runtime import worth
from mixpert_py.runtime.api import matmul
from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.gpu import multiply as gpu_backend
from mixpert_py.runtime.gpu import transfer
from mixpert_py.runtime.gpu.transfer import GRANULE
from mixpert_py.runtime.packed_array import pack
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.reference.emulation import emulate
from mixpert_py.runtime.request import Product
from mixpert_py.runtime.tracing.trace import Trace
from mixpert_py.runtime.worth import figures
from tests.every_check import sweep
from tests.runtime.gpu.fake import FakeGpu, OutOfMemoryError, Stream, ndarray
from tests.runtime.gpu.requested import multiplied, transferred
from tests.runtime.gpu.test_foreign import Tensor
from tests.runtime.gpu.test_foreign import torch as torch
from tests.runtime.gpu.test_multiply import SHAPES, VIEWS
from tests.runtime.test_complex_product import PAIRS, normal

SITE = "m:f/matmul~aa#0"
H200 = "NVIDIA H200"


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


@pytest.mark.parametrize(
    ("shapes", "pair", "scheme"), sweep(SHAPES, PAIRS, ["int8x8", "faithful", "float64"])
)
@pytest.mark.usefixtures("gpu")
def test_shape_type_and_value_are_those_of_matmul(shapes: Any, pair: str, scheme: str) -> None:
    a, b = (there(*s, dtype=t) for s, t in zip(shapes, pair, strict=True))
    wanted = np.matmul(a.x, b.x)
    value = made(a, b, scheme).value
    assert type(value) is ndarray
    assert (value.shape, value.dtype) == (wanted.shape, wanted.dtype)
    np.testing.assert_allclose(value.get(), wanted, atol=4e-6)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.usefixtures("gpu")
def test_any_view(view: str, side: int) -> None:
    pair = [normal(3, 6, 6), normal(3, 6, 6, seed=1)]
    pair[side] = VIEWS[view](pair[side])
    value = made(*map(ndarray, pair), "int8x8").value
    np.testing.assert_allclose(value.get(), np.matmul(*pair), atol=4e-6)


@pytest.mark.parametrize(
    ("pair", "launches"), [("FF", [(2, 5, 4)] * 2), ("Ff", [(2, 5, 4)]), ("fF", [(2, 5, 4)])]
)
def test_every_part_is_packed_once(gpu: FakeGpu, pair: str, launches: Any) -> None:
    a, b = there(5, 6, dtype=pair[0]), there(6, 4, dtype=pair[1])
    value = made(a, b, "int8x6").value
    assert gpu.launches == launches
    np.testing.assert_array_equal(value.get(), emulate(a.x, b.x, "int8x6"))


OUTS: dict[str, Any] = {
    "C": lambda: np.zeros((6, 6), "F"),
    "Fortran": lambda: np.zeros((6, 6), "F").T,
    "every other column": lambda: np.zeros((6, 12), "F")[:, ::2],
    "reversed": lambda: np.zeros((6, 6), "F")[::-1, ::-1],
}


@pytest.mark.parametrize("kind", OUTS)
@pytest.mark.usefixtures("gpu")
def test_out_takes_the_product(kind: str) -> None:
    a, out = there(6, 6), ndarray(OUTS[kind]())
    assert made(a, a, "int8x8", out=out).value is out
    np.testing.assert_allclose(out.get(), a.x @ a.x, atol=4e-6)


@pytest.mark.usefixtures("gpu")
def test_out_may_be_an_operand() -> None:
    a, b = there(6, 6), there(6, 6, seed=1)
    wanted = a.x @ b.x
    with use(Context(scheme="int8x8", backend="cuda")):
        assert matmul(a, b, out=b, native=np.matmul) is b
    np.testing.assert_allclose(b.get(), wanted, atol=4e-6)


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


@pytest.mark.usefixtures("gpu")
def test_a_packed_operand_meets_a_real_one() -> None:
    a, b = there(5, 6, dtype="f"), there(6, 4)
    result = matmul(a, pack(b, "int8x8"), backend="cuda")
    np.testing.assert_allclose(result.get(), a.x @ b.x, atol=4e-6)


def ran(a: Any, b: Any) -> tuple[Any, dict[str, int], list[Reason]]:
    trace = Trace()
    with use(Context(scheme="int8x6", backend="cuda", trace=trace)):
        value = matmul(a, b, site=SITE)
    record = trace.sites[SITE]
    assert sum(record.shapes.values()) == 1
    return value, dict(record.schemes), list(record.reasons)


def test_packing_goes_in_parts_where_memory_is_short(gpu: FakeGpu) -> None:
    a, b = there(300, 40), there(40, 200, seed=1)
    wanted = made(a, b, "int8x6").value.get()
    count, gpu.memory = len(gpu.launches), 140_000
    value, schemes, reasons = ran(a, b)
    assert (schemes, reasons) == ({"int8x6": 1}, [])
    assert len(gpu.launches) > 2 * count
    np.testing.assert_array_equal(value.get(), wanted)


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


def test_a_kernel_that_does_not_compile_has_a_reason(gpu: FakeGpu) -> None:
    gpu.refuses = DeviceError("no")
    assert ran(there(40, 40), there(40, 40))[1:] == ({"native": 1}, [Reason.KERNEL])


@pytest.mark.usefixtures("gpu")
def test_a_captured_product_keeps_what_its_graph_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: dict[int, Any] = {}

    def finalize(owner: Any, function: Any, used: Any) -> Any:
        kept[id(owner)] = used
        return SimpleNamespace()

    monkeypatch.setattr("mixpert_py.runtime.gpu.slices.weakref.finalize", finalize)
    a = there(6, 6)
    with Stream(ptr=99) as stream:
        stream.capturing = True
        value = made(a, a, "int8x6").value
    (products,) = kept[id(value)]
    assert products.value.shape == (2, 2, 6, 6)
    assert id(products.value) in kept, "and with them what they have used"


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


@pytest.mark.parametrize("scheme", ["faithful", "int8x6", "int8x3"])
def test_large_products_are_faster_and_small_ones_are_not(scheme: str) -> None:
    faster = figures(H200).faster
    edges = [faster(scheme, (n, n), (n, n), False, 0, 4) for n in range(128, 4096, 128)]
    assert edges == sorted(edges)
    assert not edges[2]
    assert edges[-1]
    for products in (2, 4):
        assert faster(scheme, (2048, 2048), (2048, 2048), False, 0, products)
    assert not faster(scheme, (8, 4096), (4096, 4096), False, 0, 4)


def test_moving_counts_four_products() -> None:
    known = worth.Figures(8e9, 0.0, 1e12, lambda *_: (0.0, 1.0))
    real, both = (np.broadcast_to(np.zeros((), t), (500, 500)) for t in "fF")
    shape = (500, 500, 500)
    assert not worth.moving_saves(real, real, shape, "int8x6", known)
    assert worth.moving_saves(both, both, shape, "int8x6", known)
