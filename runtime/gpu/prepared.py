"""Products by prepared launches, for the later calls of a signature.

`PreparedProducts` holds, for one call signature (see `runtime.signatures`), the launches for each
layout that operands have had. A call with a known layout costs two allocations and the launches. A
call with a new layout, or on a CuPy stream that is being captured, takes the path of a first call;
so does a product of residues whose operands turn out to need another scheme than the last ones did.
A stack whose axes kernels cannot walk as one, such as the heads in
`x.view(b, t, h, d).transpose(1, 2)`, is copied first.
"""

import math
import sys
import threading
from typing import Any, NamedTuple

import numpy as np

from mixpert_py.runtime.arrays import GpuArray, Tensor, is_transposed
from mixpert_py.runtime.complex_product import is_complex
from mixpert_py.runtime.gpu.compile_ahead import compiling_ahead
from mixpert_py.runtime.gpu.device import state_of
from mixpert_py.runtime.gpu.foreign import Library, cupy_is_full, needed_by_torch, torch_is_full
from mixpert_py.runtime.gpu.multiply import are_packed_whole, multiply, outlook_of
from mixpert_py.runtime.gpu.speculation import Outlook, Watch, findings_from
from mixpert_py.runtime.gpu.stacks import is_by_columns, is_one_stack
from mixpert_py.runtime.kernels.kernel import cuda_driver
from mixpert_py.runtime.kernels.recording import (
    LEFT,
    LEGACY,
    RESULT,
    RIGHT,
    ROW,
    Addresses,
    Recording,
    Replay,
    is_capturing,
)
from mixpert_py.runtime.packing.operand import VECTOR
from mixpert_py.runtime.packing.residues import FIRST
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.request import Request, result_shape
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes import emulation_of
from mixpert_py.runtime.signatures import NATIVE

MOST_PRODUCTS = 1024  # signatures, in the whole process
MOST_LAYOUTS = 16  # of one signature: if strides do not repeat by then, more are of no use
ALIGNED = VECTOR - 1  # the bits of an address on which kernels depend
START = ~ALIGNED
NUMBERS = "fdFDbBhHiIlLqQ"
MOST_KEPT = 1 << 26  # bytes of a workspace that is kept: to allocate it takes as long as to launch

# Strides of A and B, the low bits of both addresses, and whether both addresses are the same.
Layouts = tuple[tuple[int, ...], tuple[int, ...], int, int, bool]


class OperandPlace(NamedTuple):
    """The places of an operand's elements.

    strides: in bytes. past: the significant bits of its address. is_copy: whether this describes a
    copy, because the operand is not one stack. by_columns: whether its matrices' columns are
    contiguous.
    """

    strides: tuple[int, ...]
    past: int
    is_copy: bool
    by_columns: bool


class Ready(NamedTuple):
    """The launches for one pair of layouts. sum: those that add a row to every row of the product,
    as `F.linear` does; None: there are none.

    Where operands decide the scheme, `replay` ends with the launch that tells the host what they
    need, and `rest` has the others; scheme: that of these launches; outlook: of the layouts.
    """

    replay: Replay
    rest: Replay | None
    a: OperandPlace
    b: OperandPlace
    sum: Replay | None = None
    scheme: Scheme | None = None
    outlook: Outlook | None = None


class PreparedProducts:
    """The products of one signature of CuPy arrays, on one device.

    is_chosen: whether somebody chose the scheme; otherwise `faithful` only replaces the library's
    FP32 product, not one in TF32.
    """

    def __init__(self, request: Request, *, is_chosen: bool) -> None:
        self.scheme = request.scheme
        self._is_free = is_chosen or request.scheme != "faithful"
        self._device, self._k = request.a.data.device_id, request.a.shape[-1]
        self._shape = result_shape(request.a, request.b)
        self._dtype = np.result_type(request.a.dtype, request.b.dtype)
        # The second key is the scheme that operands are expected to need, where they decide it.
        self._ready: dict[tuple[Layouts, Scheme | None], Ready] = {}
        self._outlooks: dict[Layouts, Outlook] = {}

    def add(self, request: Request, a: GpuArray, b: GpuArray) -> bool:
        """Record the product of operands of this layout on the current device; return whether
        launches were added.

        request: with both operands as CuPy arrays.
        """
        layouts, scheme = self._layouts(a, b), emulation_of(request.scheme)
        outlook = expected = None
        if request.scheme == "crt" or (scheme.moduli and self._dtype.kind == "c"):
            outlook = outlook_of(request.a, request.b)
            expected = outlook.expected
            if expected is None or not (request.scheme == "crt" or expected.moduli == FIRST.moduli):
                return False
        key = layouts, expected
        if key in self._ready or len(self._ready) == MOST_LAYOUTS:
            return False
        if scheme.name in state_of(self._device).refused:
            return False
        ready = _record(request, expected, with_row=isinstance(self, PreparedTensors))
        if ready is None:
            return False
        self._ready[key] = ready._replace(outlook=outlook)
        if outlook is not None:
            self._outlooks[layouts] = outlook
        return True

    def _expected(self, layouts: Layouts) -> Ready | None:
        """The launches for the next product of such operands; None if there are none."""
        outlook = self._outlooks.get(layouts) if self._outlooks else None
        return self._ready.get((layouts, None if outlook is None else outlook.expected))

    def _is_made(
        self, ready: Ready, replay: Replay, addresses: Addresses, stream: int, *, as_graph: bool
    ) -> bool:
        """Enqueue a product at the addresses of the operands, the result, the workspace and a row;
        return whether its scheme is right for the operands; if not, the result must not be used.
        Where operands decide the scheme, the host waits until they are packed.
        """
        rest, outlook, expected = ready.rest, ready.outlook, ready.scheme
        if rest is None or outlook is None:
            replay.enqueue((*addresses, 0), stream, as_graph=as_graph)
            return True
        idle = state_of(self._device).findings
        findings = findings_from(idle, is_complex=self._dtype.kind == "c")
        addresses = *addresses, findings.address
        replay.enqueue(addresses, stream)
        findings.follow(stream)
        rest.enqueue(addresses, stream)
        needed = findings.scheme(self._k, expected)
        outlook.learn(needed and findings.quickest(self._k, needed))
        idle.append(findings)
        return needed is expected

    def __call__(self, a: GpuArray, b: GpuArray) -> Any:
        """A·B on the current stream of the operands' library; None if it cannot be made so.

        a, b: of this object's signature. Waits only for the packing of residues.
        """
        import cupy

        first, second = a.data.ptr, b.data.ptr
        layouts = a.strides, b.strides, first & ALIGNED, second & ALIGNED, first == second
        ready = self._expected(layouts)
        here = b.data.device_id == cupy.cuda.runtime.getDevice() == self._device
        if ready is None or not here:
            return None
        stream = cupy.cuda.get_current_stream().ptr
        # A graph would need the workspace later, when it is freed.
        if is_capturing(cupy.cuda, stream) or not (self._is_free or cupy_is_full()):
            return None
        try:
            if ready.a.is_copy or ready.b.is_copy:
                a, b = self._copied(a, ready.a), self._copied(b, ready.b)
                first, second = a.data.ptr, b.data.ptr
            result = cupy.ndarray(self._shape, self._dtype)
            workspace = cupy.cuda.alloc(ready.replay.bytes)
            addresses = first & START, second & START, result.data.ptr, workspace.ptr, 0
            if (result.data.ptr | workspace.ptr) & ALIGNED:
                return None  # by an allocator of the program, which aligns less
            if not hasattr(_thread, "has_context"):
                _make_context_current(self._device)
            if not self._is_made(ready, ready.replay, addresses, stream, as_graph=True):
                return None
        except (cupy.cuda.memory.OutOfMemoryError, cupy.cuda.driver.CUDADriverError):
            return None
        return result

    def _layouts(self, a: GpuArray, b: GpuArray) -> Layouts:
        first, second = a.data.ptr, b.data.ptr
        return a.strides, b.strides, first & ALIGNED, second & ALIGNED, first == second

    def _copied(self, x: Any, layout: OperandPlace) -> Any:
        """An operand, or a copy of it, in a layout that kernels can walk."""
        if not layout.is_copy:
            return x
        if layout.by_columns:
            return self._in_order(x.swapaxes(-2, -1)).swapaxes(-2, -1)
        return self._in_order(x)

    def _in_order(self, x: Any) -> Any:
        """A copy of x in C order."""
        import cupy

        return cupy.ascontiguousarray(x)


class PreparedTensors(PreparedProducts):
    """The products of one signature of PyTorch tensors, on PyTorch's current stream, in its
    memory.
    """

    def add(self, request: Request, a: Tensor, b: Tensor) -> bool:  # type: ignore[override]
        if a.is_neg() or b.is_neg():
            return False  # the request has copies of these
        return super().add(request, a.resolve_conj(), b.resolve_conj())

    def __call__(self, a: Any, b: Any) -> Any:
        torch = sys.modules["torch"]
        try:
            if needed_by_torch(torch, a, b) is not None:
                return NATIVE
            if torch.autograd.forward_ad._current_level >= 0 or a.is_neg() or b.is_neg():
                return None
            if b.get_device() != self._device:
                return None
            return self.below_autograd(a, b) if a.layout is b.layout is torch.strided else None
        except RuntimeError:  # tensors in name only
            return None

    def below_autograd(self, a: Any, b: Any, row: Any = None) -> Any:
        """A·B of tensors in plain memory, without derivatives; None if it cannot be made so. row: a
        vector of the product's type and device that is added to each of its rows.
        """
        torch: Any = sys.modules["torch"]
        core = torch._C
        if self._dtype.kind == "c":
            a, b = a.resolve_conj(), b.resolve_conj()
        first, second = a.data_ptr(), b.data_ptr()
        layouts = a.stride(), b.stride(), first & ALIGNED, second & ALIGNED, first == second
        ready = self._expected(layouts)
        if ready is None or core._cuda_getDevice() != self._device:
            return None
        replay = ready.replay if row is None else ready.sum
        if replay is None or not (self._is_free or torch_is_full()):
            return None
        stream = core._cuda_getCurrentRawStream(self._device)
        # A graph that is being captured owns the memory which PyTorch's allocator gives out
        # meanwhile, and the driver copies the arguments of launches.
        captured = stream > LEGACY and core._cuda_isCurrentStreamCapturing()
        if captured and ready.rest is not None:
            return None  # the host may not wait
        # The default stream is never captured or destroyed, and its work is done in turn.
        idle = state_of(self._device).workspaces if stream <= LEGACY else []
        try:
            if ready.a.is_copy or ready.b.is_copy:
                a, b = self._copied(a, ready.a), self._copied(b, ready.b)
                first, second = a.data_ptr(), b.data_ptr()
            result = a.new_empty(self._shape)
            workspace = idle.pop() if idle else None
            if workspace is None or workspace.nbytes < replay.bytes:
                workspace = torch.empty(replay.bytes, dtype=torch.uint8, device=a.device)
            third, fourth = result.data_ptr(), workspace.data_ptr()
            if not (first and second and third) or (replay.bytes and not fourth):
                return None  # tensors without memory, which are being traced
            if (third | fourth) & ALIGNED:
                return None  # an allocator of the program's own
            fifth = 0 if row is None else row.data_ptr()
            addresses = first & START, second & START, third, fourth, fifth
            if not hasattr(_thread, "has_context"):
                _make_context_current(self._device)
            if not self._is_made(ready, replay, addresses, stream, as_graph=not captured):
                return None
        except RuntimeError:  # no memory
            return None
        if workspace.nbytes <= MOST_KEPT:
            idle.append(workspace)
        return result

    def _layouts(self, a: Any, b: Any) -> Layouts:
        first, second = a.data_ptr(), b.data_ptr()
        return a.stride(), b.stride(), first & ALIGNED, second & ALIGNED, first == second

    def _in_order(self, x: Any) -> Any:
        return x.contiguous()


_thread = threading.local()


def _make_context_current(device: int) -> None:
    """Make CUDA's context this thread's: it may have none yet, as PyTorch's for backward passes."""
    import cupy

    cupy.cuda.runtime.setDevice(device)
    _thread.has_context = True


# By library, scheme, whether it was chosen, device, shapes and types: contexts come and go,
# and the launches are the same.
_products: dict[tuple[Any, ...], PreparedProducts] = {}


def prepare(library: Library, request: Request, *, is_chosen: bool) -> PreparedProducts:
    """The object that keeps launches for a library's arrays and a request's signature."""
    a, b = request.a, request.b
    key = (
        *(library, request.scheme, is_chosen, a.data.device_id),
        *(a.shape, b.shape, a.dtype.char, b.dtype.char),
    )
    found = _products.get(key)
    if found is None:
        if len(_products) >= MOST_PRODUCTS:
            _products.clear()
        kind = PreparedTensors if library == "torch" else PreparedProducts
        found = _products.setdefault(key, kind(request, is_chosen=is_chosen))
    return found


def prepared_tensors(scheme: str, a: Any, b: Any, *, is_chosen: bool) -> PreparedProducts | None:
    """The object that keeps the launches for two tensors, or None."""
    kinds = (np.dtype(str(x.dtype).rpartition(".")[2]).char for x in (a, b))
    key = ("torch", scheme, is_chosen, a.get_device(), a.shape, b.shape, *kinds)
    return _products.get(key)


def _record(request: Request, expected: Scheme | None, *, with_row: bool) -> Ready | None:
    """The launches of a product, without addresses; None if launches alone cannot make it.
    expected: the scheme that the operands are expected to need, where operands decide it. with_row:
    whether the launches of a product with a row are wanted, too.
    """
    a = request.a[np.newaxis, :] if request.a.ndim == 1 else request.a
    b = request.b[:, np.newaxis] if request.b.ndim == 1 else request.b
    # Kernels can read what is not empty, or a copy of it.
    is_recordable = all(x.dtype.char in NUMBERS and 0 not in x.shape for x in (a, b))
    if request.scheme == "float64" or not is_recordable:
        return None
    if is_complex(a, b) and (a.dtype != b.dtype or (expected and not are_packed_whole(a, b))):
        return None
    device, left, right = a.data.device_id, layout(a), layout(b)
    is_one = not left.is_copy and is_transposed(a, b)
    request = request._replace(
        a=placeholder(LEFT, a.shape, a.dtype, device, left.strides, left.past),
        b=placeholder(RIGHT, b.shape, b.dtype, device, right.strides, right.past),
        out=placeholder(RESULT, result_shape(a, b), np.result_type(a.dtype, b.dtype), device),
    )
    one = request
    if is_one:
        one = request._replace(b=request.a.swapaxes(-2, -1))
    elif (a.data.ptr, a.shape, a.strides) == (b.data.ptr, b.shape, b.strides):
        one = request._replace(b=request.a)  # which may be found symmetric
    if expected is not None:
        part = expected if request.scheme == "crt" else emulation_of(request.scheme)
        replays = _replays(one, part=part)
        return replays and Ready(*replays, left, right, scheme=expected)
    with compiling_ahead(one):
        replays = _replays(one)
    if replays is None:
        return None
    # Of a float32 product, repair never replaces elements: no row is large, see `Side.room`.
    is_sum = with_row and request.scheme == "faithful" and a.ndim == b.ndim == 2
    is_sum = is_sum and a.dtype == b.dtype == np.float32
    sums = _replays(request, ROW) if is_sum else None
    return Ready(*replays, left, right, sums and sums[0])


def _replays(
    request: Request, row: int = 0, part: Scheme | None = None
) -> tuple[Replay, Replay | None] | None:
    """Record the launches of a product of placeholders. Return those up to the point where the host
    learns which scheme the operands need, and the later ones, if any; None for a native product.

    row: the base address of the row that is added, as in `Recording`; 0 for none. part: as for
    `multiply`, where the operands decide.
    """
    state, driver = state_of(request.a.data.device_id), cuda_driver()
    for _ in range(2):
        has_wider, recording = state.has_wider, Recording(row)
        watch = None if part is None else Watch(recording, None)
        outcome = multiply(request, recording, watch, part)
        if has_wider == state.has_wider:  # else the wider scheme's launches are to be left out
            break
    if isinstance(outcome, Reason):
        return None
    mark = recording.mark
    rest = None if mark is None else Replay(recording, driver, slice(mark, None))
    return Replay(recording, driver, slice(mark)), rest


def layout(x: GpuArray) -> OperandPlace:
    """The layout of an operand of two or more dimensions, or of its copy."""
    by_columns = is_by_columns(x)
    if is_one_stack(x):
        return OperandPlace(x.strides, x.data.ptr & ALIGNED, is_copy=False, by_columns=by_columns)
    *stack, rows, columns = x.shape
    shape = (*stack, columns, rows) if by_columns else x.shape
    strides = [x.itemsize * math.prod(shape[axis:]) for axis in range(1, x.ndim + 1)]
    if by_columns:
        strides[-2:] = strides[-1], strides[-2]
    return OperandPlace(tuple(strides), 0, is_copy=True, by_columns=by_columns)


def placeholder(
    base: int,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    device: int,
    strides: tuple[int, ...] | None = None,
    past: int = 0,
) -> Any:
    """A CuPy array at a recording's base address, or some bytes after it, because kernels depend
    on some bits of an operand's address. It has no memory and must not be read.
    """
    import cupy

    memory = cupy.cuda.UnownedMemory(base, 1 << 50, None, device)
    return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(memory, past), strides)
