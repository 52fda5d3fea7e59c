"""Products whose launches are kept: a later call of the same signature finds them ready.

`PreparedProducts` holds, for one signature of a call (see `runtime.signatures`), the launches for
each layout that operands have had. A call that finds its own costs two allocations and the
launches; one that does not, or whose stream is being captured, is made the direct way.
"""

import sys
from types import ModuleType
from typing import Any

import numpy as np

from mixpert_py.runtime.arrays import GpuArray
from mixpert_py.runtime.gpu.compile_ahead import compiling_ahead
from mixpert_py.runtime.gpu.device_state import state_of
from mixpert_py.runtime.gpu.foreign import (
    Library,
    cupy_is_full,
    needed_by_torch,
    torch_is_full,
)
from mixpert_py.runtime.gpu.multiply import multiply
from mixpert_py.runtime.kernels.kernel import cuda_driver
from mixpert_py.runtime.kernels.recording import (
    LEFT,
    RESULT,
    RIGHT,
    Recording,
    Replay,
    is_capturing,
)
from mixpert_py.runtime.packing.operand import VECTOR
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.request import Request, result_shape
from mixpert_py.runtime.schemes import emulation_of
from mixpert_py.runtime.signatures import NATIVE

MOST_PRODUCTS = 1024  # that are kept in all, by any context
MOST_LAYOUTS = 16  # of one signature: a program whose strides never repeat gains nothing by more
ALIGNED = VECTOR - 1  # the bits of an address on which kernels depend
START = ~ALIGNED
REAL = "fd"

# Strides of both operands, and the bits of their addresses that matter.
Layouts = tuple[tuple[int, ...], tuple[int, ...], int, int]


class PreparedProducts:
    """The products of one signature of CuPy's arrays, on one device.

    is_chosen: whether somebody chose the scheme; where not, it stands for the library's FP32
    product only, and not for one of TF32.
    """

    def __init__(self, request: Request, *, is_chosen: bool) -> None:
        self.scheme = request.scheme
        self._is_chosen = is_chosen
        self._device = request.a.data.device_id
        self._shape = result_shape(request.a, request.b)
        self._dtype = np.result_type(request.a.dtype, request.b.dtype)
        self._ready: dict[Layouts, Replay] = {}

    def add(self, request: Request, a: GpuArray, b: GpuArray) -> bool:
        """Record the product of operands of this layout, on the current device: whether there are
        launches now that were not there. request: with both as CuPy arrays.
        """
        layouts = self._layouts(a, b)
        if layouts in self._ready or len(self._ready) == MOST_LAYOUTS:
            return False
        if emulation_of(request.scheme, request.block).name in state_of(self._device).refused:
            return False
        replay = _record(request)
        if replay is None:
            return False
        self._ready[layouts] = replay
        return True

    def __call__(self, a: GpuArray, b: GpuArray) -> Any:
        """A·B on the current stream of the operands' library; None where it cannot be made so.

        a, b: of the signature that this was made for. Does not wait for the device.
        """
        import cupy

        first, second = a.data.ptr, b.data.ptr
        ready = self._ready.get((a.strides, b.strides, first & ALIGNED, second & ALIGNED))
        if ready is None or cupy.cuda.runtime.getDevice() != self._device:
            return None
        stream = cupy.cuda.get_current_stream().ptr
        if is_capturing(cupy.cuda, stream):
            return None  # what a graph uses has to be kept
        if not self._is_chosen and not cupy_is_full():
            return None
        try:
            result = cupy.ndarray(self._shape, self._dtype)
            workspace = cupy.cuda.alloc(ready.bytes)
            addresses = first & START, second & START, result.data.ptr, workspace.ptr
            if (result.data.ptr | workspace.ptr) & ALIGNED:
                return None  # an allocator of the program's own
            ready.enqueue(addresses, stream)
        except (cupy.cuda.memory.OutOfMemoryError, cupy.cuda.driver.CUDADriverError):
            return None
        return result

    def _layouts(self, a: GpuArray, b: GpuArray) -> Layouts:
        return a.strides, b.strides, a.data.ptr & ALIGNED, b.data.ptr & ALIGNED


class PreparedTensors(PreparedProducts):
    """The same of PyTorch's tensors, on its current stream, in memory of its own."""

    def __call__(self, a: Any, b: Any) -> Any:
        try:
            return self._product(sys.modules["torch"], a, b)
        except RuntimeError:  # no memory, or tensors in name only
            return None

    def _product(self, torch: ModuleType, a: Any, b: Any) -> Any:
        import cupy

        if needed_by_torch(torch, a, b) is not None:
            return NATIVE
        if not self._is_plain(torch, a, b):
            return None
        first, second = a.data_ptr(), b.data_ptr()
        ready = self._ready.get((a.stride(), b.stride(), first & ALIGNED, second & ALIGNED))
        if ready is None or torch.cuda.current_device() != self._device:
            return None
        stream = _stream(torch, self._device)
        if is_capturing(cupy.cuda, stream):
            return None
        result = torch.empty(self._shape, dtype=a.dtype, device=a.device)
        workspace = torch.empty(ready.bytes, dtype=torch.uint8, device=a.device)
        addresses = first & START, second & START, result.data_ptr(), workspace.data_ptr()
        if not all(addresses[:3]) or (ready.bytes and not addresses[3]):
            return None  # tensors without memory, which are being traced
        if (addresses[2] | addresses[3]) & ALIGNED:
            return None  # an allocator of the program's own
        ready.enqueue(addresses, stream)
        return result

    def _layouts(self, a: Any, b: Any) -> Layouts:
        return a.stride(), b.stride(), a.data_ptr() & ALIGNED, b.data_ptr() & ALIGNED

    def _is_plain(self, torch: ModuleType, a: Any, b: Any) -> bool:
        """Whether tensors are nothing but memory, of which nobody wants a derivative."""
        if torch.autograd.forward_ad._current_level >= 0:
            return False
        if a.layout is not torch.strided or b.layout is not torch.strided:
            return False
        if a.is_neg() or b.is_neg():
            return False
        return self._is_chosen or torch_is_full()


# By library, scheme, block, whether it was chosen, device, shapes and types: contexts come and go,
# and the launches are the same.
_products: dict[tuple[Any, ...], PreparedProducts] = {}


def _stream(torch: ModuleType, device: int) -> int:
    """The address of PyTorch's current stream."""
    ask = getattr(torch._C, "_cuda_getCurrentRawStream", None)  # which takes 0.1 µs, and not 5
    if ask is None:
        return int(torch.cuda.current_stream(device).cuda_stream)
    return int(ask(device))


def prepare(library: Library, request: Request, *, is_chosen: bool) -> PreparedProducts:
    """What keeps the launches for a library's arrays, of the signature that a request is of."""
    a, b = request.a, request.b
    key = (
        *(library, request.scheme, request.block, is_chosen, a.data.device_id),
        *(a.shape, b.shape, a.dtype.char, b.dtype.char),
    )
    found = _products.get(key)
    if found is None:
        if len(_products) >= MOST_PRODUCTS:
            _products.clear()
        kind = PreparedTensors if library == "torch" else PreparedProducts
        found = _products.setdefault(key, kind(request, is_chosen=is_chosen))
    return found


def _record(request: Request) -> Replay | None:
    """The launches of a product, at addresses to come; None where it is not launches alone."""
    a = request.a[np.newaxis, :] if request.a.ndim == 1 else request.a
    b = request.b[:, np.newaxis] if request.b.ndim == 1 else request.b
    if request.scheme in ("float64", "crt") or not all(map(_is_recordable, (a, b))):
        return None
    recording, device = Recording(), a.data.device_id
    request = request._replace(
        a=placeholder(LEFT, a.shape, a.dtype, device, a.strides, a.data.ptr & ALIGNED),
        b=placeholder(RIGHT, b.shape, b.dtype, device, b.strides, b.data.ptr & ALIGNED),
        out=placeholder(RESULT, result_shape(a, b), np.result_type(a.dtype, b.dtype), device),
    )
    state = state_of(device)
    has_wider = state.has_wider
    with compiling_ahead(request):
        outcome = multiply(request, recording)
    if has_wider and not state.has_wider:  # the wider scheme's launches are to be left out
        recording = Recording()
        outcome = multiply(request, recording)
    return None if isinstance(outcome, Reason) else Replay(recording, cuda_driver())


def _is_recordable(x: GpuArray) -> bool:
    """Whether kernels read an operand as it is: nothing copies it, or takes it apart, before."""
    return x.dtype.char in REAL and 0 not in x.shape and (x.ndim <= 3 or x.flags.c_contiguous)


def placeholder(
    base: int,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    device: int,
    strides: tuple[int, ...] | None = None,
    past: int = 0,
) -> Any:
    """A CuPy array that begins at a recording's base, or so many bytes past it: kernels depend on
    some bits of an operand's address. There is no memory: nothing may look at it.
    """
    import cupy

    memory = cupy.cuda.UnownedMemory(base, 1 << 50, None, device)
    return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(memory, past), strides)
