"""Borrows GPU arrays of CuPy and PyTorch as CuPy arrays, and gives results back.

Nothing here imports a library of GPU arrays: a program with such an array has imported it.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from operator import attrgetter
from typing import Any, Literal, NamedTuple

import numpy as np

from mixpert_py.runtime import signatures
from mixpert_py.runtime.arrays import Tensor
from mixpert_py.runtime.gpu import native
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.signatures import DEVICE_OF_CUPY, NATIVE, Known, device_of
from mixpert_py.runtime.worth import size_of

SIZE_OF_CUPY: Callable[[Any], int] = attrgetter("size")
Library = Literal["cupy", "torch"]


class Borrowed(NamedTuple):
    """Operands as CuPy arrays.

    scope: a context manager that selects their device and stream; None: they are the current ones.
    give_back: turns a result into an array of the operands' library; None if that is CuPy.
    """

    a: Any
    b: Any
    scope: Callable[[], Any] | None = None
    give_back: Callable[[Any], Any] | None = None


class Placement(NamedTuple):
    """The GPU of two operands, and whose arrays they are."""

    device: int
    library: Library

    def is_full(self) -> bool:
        """Return whether the library multiplies float32 arrays in FP32 and not in TF32."""
        return cupy_is_full() if self.library == "cupy" else torch_is_full()


class Apart(NamedTuple):
    """Two operands on different devices. first, second: the names of the devices. move: how to
    move the second operand to the first.
    """

    first: str
    second: str
    move: str

    @property
    def sentence(self) -> str:
        return f"operands are on {self.first} and {self.second}: move one, {self.move}"


def may_be_on_device(kind: object) -> bool:
    """Whether instances of a type can be arrays on a GPU."""
    try:
        return _may_be_on_device(kind)
    except TypeError:  # a class that cannot be hashed is nobody's array
        return False


@lru_cache(maxsize=256)
def _may_be_on_device(kind: Any) -> bool:
    if issubclass(kind, (np.ndarray, np.generic)):
        return False
    attributes = [vars(base) for base in kind.__mro__]
    return any("__cuda_array_interface__" in a or "__dlpack__" in a for a in attributes)


def placement(a: Any, b: Any) -> Placement | Apart | Reason | None:
    """The common GPU of two arrays, or the reason why they cannot be borrowed; None if they are
    on no GPU.
    """
    cupy = sys.modules.get("cupy")
    array = getattr(cupy, "ndarray", None)
    kind, other = type(a), type(b)
    if kind is array and other is array:
        first, second = a.data.device_id, b.data.device_id
        if first != second:
            move = f"as in `with cupy.cuda.Device({first}): b = cupy.array(b)`"
            return Apart(f"cuda:{first}", f"cuda:{second}", move)
        here = cupy.cuda.runtime.getDevice()  # type: ignore[union-attr]
        if first != here:
            return Reason.OTHER_DEVICE
        if kind not in device_of:
            size_of[kind], device_of[kind] = SIZE_OF_CUPY, DEVICE_OF_CUPY
            native.use_cupys_gemm()
        return Placement(here, "cupy")
    if not may_be_on_device(kind) or not may_be_on_device(other):
        return None
    if array is not None and (issubclass(kind, array) or issubclass(other, array)):
        return Reason.SUBCLASS
    try:
        torch = sys.modules.get("torch")
        tensor = getattr(torch, "Tensor", None)
        is_torchs = tensor is not None and isinstance(a, tensor) and isinstance(b, tensor)
        return _tensors(torch, a, b) if is_torchs else None
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError):
        return Reason.NOT_AN_ARRAY  # it has no memory: it is traced, batched, deleted …


def borrow(placement: Placement, a: Any, b: Any) -> Borrowed | Reason:
    """The operands as CuPy arrays that share memory, or the reason why their library does not
    allow that.
    """
    try:
        return Borrowed(a, b) if placement.library == "cupy" else _borrow_tensors(a, b)
    except ImportError:
        return Reason.NO_TENSOR_CORE
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError):
        return Reason.NOT_AN_ARRAY


def on_host(x: Any) -> Any:
    """A copy of an array as a NumPy array; other objects are returned unchanged."""
    if isinstance(x, (np.ndarray, np.generic)):
        return np.array(x)
    if not may_be_on_device(type(x)):
        return x
    array = getattr(sys.modules.get("cupy"), "ndarray", None)  # None while CuPy is being imported
    if array is not None and isinstance(x, array):
        return x.get()
    if not hasattr(x, "detach"):
        return np.array(x)
    tensor = _as_written(x).cpu()
    try:
        return tensor.numpy()
    except TypeError:
        return tensor.float().numpy()  # bfloat16, which NumPy has not


def wait_for(x: object) -> bool:
    """Wait until the current stream of an array's library has reached this point.

    While the stream is captured nothing runs: then return False without waiting.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        if x.is_cuda:
            if torch.cuda.is_current_stream_capturing():
                return False
            torch.cuda.current_stream(x.device).synchronize()
        return True
    cupy = sys.modules.get("cupy")
    if cupy is not None and may_be_on_device(type(x)):
        stream = cupy.cuda.get_current_stream()
        if stream.is_capturing():
            return False
        stream.synchronize()
    return True


def cupy_is_full() -> bool:
    """Whether CuPy makes float32 products in FP32, because TF32 is not allowed."""
    linalg = sys.modules["cupy"]._core._routines_linalg
    return bool(linalg.get_compute_type("f") != linalg.COMPUTE_TYPE_TF32)


def torch_is_full() -> bool:
    """Whether PyTorch makes float32 products in FP32, because TF32 and BF16 are not allowed."""
    torch = sys.modules["torch"]
    try:
        return bool(torch.get_float32_matmul_precision() == "highest")
    except RuntimeError:  # the program set PyTorch's newer switches, with which this call fails
        return False


def native_if_reduced(a: object, b: object) -> Known | None:
    """Return NATIVE while PyTorch, or CuPy, may make float32 products in lower precision (TF32)."""
    torch = sys.modules.get("torch")
    is_tensor = torch is not None and isinstance(a, torch.Tensor)
    return None if (torch_is_full if is_tensor else cupy_is_full)() else NATIVE


def native_if_sparse(a: Tensor, b: Tensor) -> Known | None:
    """Return NATIVE if a tensor is sparse; dense tensors of its shape may take a scheme."""
    torch: Any = sys.modules["torch"]
    return None if a.layout is b.layout is torch.strided else NATIVE


def native_if_needed(a: Tensor, b: Tensor) -> Known | None:
    """Return NATIVE if only PyTorch can make a product of tensors, see `needed_by_torch`."""
    return None if needed_by_torch(sys.modules["torch"], a, b) is None else NATIVE


def needed_by_torch(torch: Any, a: Tensor, b: Tensor) -> Reason | None:
    """Why only PyTorch can make a product of tensors: gradients or autocast; None: others can."""
    if torch.is_autocast_enabled("cuda"):
        return Reason.AUTOCAST
    if torch.is_grad_enabled() and (a.requires_grad or b.requires_grad):
        return Reason.GRADIENT
    return None


def _tensors(torch: Any, a: Any, b: Any) -> Placement | Apart | Reason | None:
    plain = (torch.Tensor, torch.nn.Parameter)
    is_plain = type(a) in plain and type(b) in plain
    if is_plain:
        signatures.ask_torch()
    if not (a.is_cuda and b.is_cuda):
        return None
    if getattr(a, "is_nested", False) or getattr(b, "is_nested", False):
        return Reason.NOT_AN_ARRAY  # tensors of several lengths have no shape
    if not is_plain:
        return Reason.SUBCLASS
    if a.layout is not torch.strided or b.layout is not torch.strided:
        return Reason.SPARSE
    if a.device != b.device:
        first, second = (f"cuda:{x.device.index}" for x in (a, b))
        return Apart(first, second, f"as in `b.to({first!r})`")
    if a.dtype != b.dtype:
        return Reason.DTYPE  # PyTorch's own product refuses them
    return Placement(a.device.index, "torch")


class _Stream(NamedTuple):
    """A stream by its address, with the method by which CuPy accepts streams of other libraries."""

    address: int

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.address


def _borrow_tensors(a: Tensor, b: Tensor) -> Borrowed | Reason:
    torch = sys.modules["torch"]
    reason = needed_by_torch(torch, a, b)
    if reason is not None:
        return reason
    tangents = torch.autograd.forward_ad.unpack_dual
    if tangents(a).tangent is not None or tangents(b).tangent is not None:
        return Reason.GRADIENT
    if any(x.numel() and not x.data_ptr() for x in (a, b)):
        return Reason.NOT_AN_ARRAY  # it is being traced, and has no memory
    import cupy

    number = a.device.index
    stream = _Stream(torch.cuda.current_stream(a.device).cuda_stream)

    @contextmanager
    def scope() -> Iterator[None]:
        with cupy.cuda.Device(number), cupy.cuda.Stream.from_external(stream):
            yield

    with scope():
        left, right = (cupy.from_dlpack(_as_written(x)) for x in (a, b))
    return Borrowed(left, right, scope, torch.from_dlpack)


def _as_written(tensor: Tensor) -> Any:
    """A tensor whose memory holds its values, because PyTorch conjugates and negates lazily."""
    return tensor.detach().resolve_conj().resolve_neg()
