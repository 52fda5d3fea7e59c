"""PyTorch's tensors on a GPU, on one and a PyTorch that are not there."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mixpert_py.errors import DeviceError
from mixpert_py.runtime import worth
from mixpert_py.runtime.api import matmul
from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.gpu import device
from mixpert_py.runtime.gpu.device import Absent
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.signatures import NATIVE
from tests.runtime.gpu.fake import FakeGpu, Stream, ndarray, pays_from
from tests.runtime.operands import SITE, traced


class Dtype(str):
    """As torch.float32: printed with its module, and no NumPy dtype."""


class Tensor:
    """As much of a tensor as the runtime looks at."""

    requires_grad = False
    is_cuda = True
    layout = "strided"
    tangent = None

    def __init__(self, x: Any, device: int = 0, **attributes: Any) -> None:
        self.x, self.device = x, SimpleNamespace(index=device)
        self.shape, self.ndim = x.shape, x.ndim
        self.dtype = Dtype(f"torch.{x.dtype}")
        for name, value in attributes.items():
            setattr(self, name, value)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        raise RuntimeError("Can't call __cuda_array_interface__ on a tensor that requires grad")

    def __matmul__(self, other: "Tensor") -> "Tensor":
        return type(self)(self.x @ other.x, native=True)

    def get_device(self) -> int:
        return int(self.device.index) if self.is_cuda else -1

    def numel(self) -> int:
        return int(self.x.size)

    def data_ptr(self) -> int:
        return int(getattr(self, "address", 1 << 20))

    def stride(self) -> tuple[int, ...]:
        return tuple(step // self.x.itemsize for step in self.x.strides)

    def detach(self) -> "Tensor":
        return Tensor(self.x)

    def resolve_conj(self) -> "Tensor":
        return self

    def resolve_neg(self) -> "Tensor":
        return self

    def lend(self) -> ndarray:
        assert Stream.here.ptr == 77
        return ndarray(self.x)


class Parameter(Tensor):
    pass


class Subclass(Tensor):
    pass


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    fake: Any = ModuleType("torch")
    fake.Tensor, fake.nn = Tensor, SimpleNamespace(Parameter=Parameter)
    fake.strided = "strided"
    fake.grad, fake.autocast, fake.precision, fake.waits = True, False, "highest", 0
    fake.is_grad_enabled = lambda: fake.grad
    fake.is_autocast_enabled = lambda kind: fake.autocast
    fake.get_float32_matmul_precision = lambda: fake.precision
    fake.from_dlpack = lambda x: Tensor(x.x)
    fake.autograd = SimpleNamespace(
        forward_ad=SimpleNamespace(unpack_dual=lambda x: SimpleNamespace(tangent=x.tangent))
    )

    def wait() -> None:
        fake.waits += 1

    fake.cuda = SimpleNamespace(
        current_stream=lambda device: SimpleNamespace(cuda_stream=77, synchronize=wait),
        is_current_stream_capturing=lambda: False,
        get_device_name=lambda device: "NVIDIA H200",
    )
    monkeypatch.setitem(sys.modules, "torch", fake)
    figures = pays_from(8**3, 2.0)
    monkeypatch.setattr(worth, "figures", lambda name: figures)
    FakeGpu().install(monkeypatch)
    return fake


def tensor(*shape: int, kind: type[Tensor] = Tensor, dtype: Any = np.float32, **given: Any) -> Any:
    x = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    return kind(x, **given)


def ran(a: Any, b: Any, scheme: str | None = None) -> tuple[str, Reason | None]:
    result, record = traced(matmul, a, b, scheme=scheme)
    (name,) = record.schemes
    assert hasattr(result, "native") == (name == "native")
    assert record.dtypes == {str(a.dtype).partition(".")[2]: 1}
    return name, next(iter(record.reasons), None)


@pytest.mark.parametrize("scheme", [None, "int8x8"])
def test_tensors_come_back_as_tensors_on_their_stream(torch: Any, scheme: str | None) -> None:
    a, b = tensor(9, 20), tensor(20, 8)
    with use(Context(scheme=scheme)):
        result = matmul(a, b)
    assert type(result) is Tensor
    np.testing.assert_allclose(result.x, a.x @ b.x, atol=1e-5)
    assert torch.waits == 0
    assert ran(a, b, scheme) == (scheme or "faithful", None)
    assert torch.waits == 3  # for operands and the result, only where the time is asked for


@pytest.mark.parametrize(
    ("a", "reason"),
    [
        (tensor(8, 8, requires_grad=True), Reason.GRADIENT),
        (tensor(8, 8, kind=Parameter, requires_grad=True), Reason.GRADIENT),
        (tensor(8, 8, tangent=1), Reason.GRADIENT),
        (tensor(8, 8, layout="sparse"), Reason.SPARSE),
        (tensor(8, 8, kind=Subclass), Reason.SUBCLASS),
        (tensor(8, 8, dtype=np.float16), Reason.DTYPE),
        (tensor(7, 8), Reason.TOO_SMALL),
    ],
    ids=["gradient", "parameter", "tangent", "sparse", "subclass", "half", "small"],
)
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.usefixtures("torch")
def test_tensors_that_stay_with_pytorch(a: Any, reason: Reason, side: int) -> None:
    pair = (a, tensor(8, 8)) if side == 0 or a.shape != (8, 8) else (tensor(8, 8), a)
    result, record = traced(matmul, *pair, scheme="int8x6")
    assert result.native
    assert record.reasons == {reason: 1}


def test_under_autocast_pytorch_chooses(torch: Any) -> None:
    torch.autocast = True
    a = tensor(8, 8)
    assert ran(a, a) == ran(a, a, "int8x6") == ("native", Reason.AUTOCAST)


def test_who_asked_for_tf32_keeps_it(torch: Any) -> None:
    torch.precision = "high"
    a = tensor(8, 8)
    assert ran(a, a) == ("native", None)
    assert ran(a, a, "int8x3") == ("int8x3", None)


@pytest.mark.usefixtures("torch")
def test_tensors_of_the_host_and_other_devices() -> None:
    a = tensor(8, 8)
    assert ran(tensor(8, 8, is_cuda=False), a, "int8x6") == ("native", Reason.NOT_AN_ARRAY)
    elsewhere = Tensor(a.x, device=1)
    a.device = elsewhere.device
    with pytest.raises(DeviceError, match=r"cuda:1 and cuda:0: move one, as in `b.to\('cuda:1"):
        ran(a, tensor(8, 8), "int8x6")


@pytest.mark.usefixtures("torch")
def test_tensors_without_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    a = tensor(8, 8)
    assert ran(a, a, "int8x6") == ("native", Reason.NO_TENSOR_CORE)
    assert ran(a, a) == ("native", None)


def test_what_pays_is_known_without_cupy(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "cupy")
    looks: list[int] = []
    absent = Absent(Reason.NO_TENSOR_CORE, "")
    monkeypatch.setattr(device, "find", lambda number: looks.append(number) or absent)
    for size, count in ((4, 0), (9, 1)):
        a = tensor(size, size)
        assert ran(a, a) == ("native", None)
        assert len(looks) == count


def test_a_tensor_in_name_only_says_nothing_of_others(torch: Any) -> None:
    """What is kept for a signature is so of all its calls."""
    a = tensor(9, 9)
    with use(Context(scheme="int8x6")):
        for given, is_native in (({}, False), ({"address": 0}, True), ({}, False)):
            x = tensor(9, 9, **given)
            assert hasattr(matmul(x, a, site=SITE), "native") == is_native


@pytest.mark.parametrize(
    ("needed", "condition"),
    [
        ({"requires_grad": True}, {"grad": True}),
        ({}, {"autocast": True}),
        ({}, {"precision": "high"}),
        ({"layout": "sparse"}, {}),
    ],
    ids=["gradient", "autocast", "TF32", "sparse"],
)
def test_what_pytorch_has_to_make_is_known_for_as_long_as_it_has_to(
    torch: Any, needed: dict[str, Any], condition: dict[str, Any]
) -> None:
    """A decision takes longer than a small product: later calls ask the condition alone."""
    a, b = tensor(9, 20, **needed), tensor(20, 8)
    for name, value in condition.items():
        setattr(torch, name, value)
    with use(Context()) as context:
        assert hasattr(matmul(a, b, site=SITE), "native")
        ((known),) = context.known.values()
        assert known(a, b) is NATIVE
        assert hasattr(matmul(a, b, site=SITE), "native")
        torch.grad, torch.autocast, torch.precision = False, False, "highest"
        a.layout = "strided"
        assert known(a, b) is None
        assert not hasattr(matmul(a, b, site=SITE), "native")


@pytest.mark.usefixtures("torch")
def test_tensors_that_are_marked_as_conjugates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tensor, "resolve_conj", lambda self: Tensor(self.x.conj()))
    a = tensor(40, 40).x + 1j * tensor(40, 40).x.T
    value = matmul(Tensor(a), Tensor(a), scheme="int8x8", backend="cuda")
    assert type(value) is Tensor
    np.testing.assert_allclose(value.x, a.conj() @ a.conj(), atol=1e-4)
