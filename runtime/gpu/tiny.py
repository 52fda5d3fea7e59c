"""Stacks of products with sides of up to 32, in FP32: one launch, limited by memory.

For so short sums, a chain of fused multiply-adds is as accurate as the native product, which is
one.
"""

from functools import lru_cache
from typing import Any, Literal, NamedTuple

from mixpert_py.runtime.arrays import GpuArray
from mixpert_py.runtime.gpu import slices
from mixpert_py.runtime.gpu.stacks import batches, launches, matrices, stack_sizes
from mixpert_py.runtime.kernels.compile import numba_kernel
from mixpert_py.runtime.kernels.kernel import Kernel
from mixpert_py.runtime.kernels.recording import Stream, is_capturing
from mixpert_py.runtime.kernels.tiny_block import EDGE, FOUR, Memory, block
from mixpert_py.runtime.packing import by_columns, by_rows
from mixpert_py.runtime.packing.operand import Form, Operand
from mixpert_py.runtime.request import broadcast

KERNELS = "mixpert_py.runtime.kernels.tiny_kernels"


def suits(a: GpuArray, b: GpuArray) -> bool:
    """Whether `multiply` makes the product of a (…, m, k) and b (…, k, n)."""
    return bool(
        max(a.ndim, b.ndim) > 2
        and a.dtype.char == b.dtype.char == "f"
        and max(*a.shape[-2:], b.shape[-1]) <= EDGE
        and 0 not in a.shape
        and 0 not in b.shape
    )


def multiply(
    kernels: slices.ProductSteps,
    a: GpuArray,
    b: GpuArray,
    out: GpuArray | None = None,
    stream: Stream | None = None,
) -> Any:
    """C = A·B on the current device, of stacks that `suits` and that broadcast. stream: None for
    the current one.

    Each element is fma(a_k, b_k, … fma(a_1, b_1, fma(a_0, b_0, +0))), whatever the strides. out: an
    array of C's shape and type, any strides; it may overlap the operands.
    Does not wait for the device. Raises DeviceError where the kernel does not compile, CuPy's
    OutOfMemoryError.
    """
    xp = kernels.xp
    shape = (*broadcast(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
    result: GpuArray
    used: list[GpuArray] = []
    is_one_stack = out is not None and (out.ndim <= 3 or out.flags.c_contiguous)
    if out is not None and is_one_stack and not slices.overlaps(xp, out, a, b):
        result = out
    else:
        result = xp.empty(shape, a.dtype)
        if out is not None:
            used.append(result)
    if stream is None:
        stream = xp.cuda.get_current_stream().ptr
    x, y = (x if x.ndim <= 3 else matrices(x) for x in (a, b))
    c = result if result.ndim == 3 else result.reshape(-1, *shape[-2:])
    batch = batches(stack_sizes(a), stack_sizes(b), shape[:-2])
    for left, right, target in launches(x, y, c, batch):
        kernels.tiny(by_rows(left), by_columns(right), target, stream=stream)
    if used and out is not None:
        out[...] = result
        result = out
    if is_capturing(xp.cuda, stream):
        used += [made for made, given in ((x, a), (y, b)) if not xp.may_share_memory(made, given)]
        slices.keep_for_graph(result, used)
    return result


def multiply_tiny(a: Operand, b: Operand, out: GpuArray, *, stream: Stream) -> None:
    """out = A·B in one launch. out: (batch, m, n) float32 on the device; a, b: of as many matrices,
    or one that all share; no side longer than EDGE.
    """
    memory = out.data
    aligned = memory.ptr % 16 == 0
    how = _planned(a.form, b.form, out.shape[0], out.strides, aligned, memory.device_id)
    words = a.address, b.address, memory.ptr, *how.words
    how.kernel.launch_words(how.grid, how.threads, words, 0, stream)


class Launch(NamedTuple):
    """A launch without addresses."""

    kernel: Kernel
    grid: int
    threads: int
    words: tuple[int, ...]


@lru_cache(4096)
def _planned(
    a: Form, b: Form, batch: int, c_strides: tuple[int, ...], aligned: bool, device: int
) -> Launch:
    """The launch for the current device."""
    constants, grid, threads, words = plan(a, b, batch, c_strides, aligned)
    return Launch(numba_kernel(KERNELS, "tiny_kernel", constants), grid, threads, words)


class Stack(NamedTuple):
    """Matrices in memory, `lines` of `length` elements. Strides are in elements; product: from one
    matrix to the next, 0 where all products share one.
    """

    lines: int
    length: int
    product: int
    line: int
    place: int
    aligned: bool


def plan(
    a: Form, b: Form, batch: int, c_strides: tuple[int, ...], aligned: bool
) -> tuple[tuple[Any, ...], int, int, tuple[int, ...]]:
    """The constants of the kernel, its thread blocks, threads per block, and integer arguments.

    c_strides: in bytes. aligned: whether C is.
    """
    m, k, n = a.rows, a.k, b.rows
    between = [x.batch_stride if x.batch > 1 else 0 for x in (a, b)]
    left = Stack(m, k, between[0], a.row_stride, a.k_stride, a.aligned)
    right = Stack(k, n, between[1], b.k_stride, b.row_stride, b.aligned)
    product, line, place = (stride // 4 for stride in c_strides)
    c = Stack(m, n, product, line, place, aligned)
    memories = memory_of(left), memory_of(right)
    how = block(m, k, n, *memories)
    words = batch, *(stride for x in (left, right, c) for stride in x[2:5])
    wide = are_fours(c, "along")
    return (m, k, n, *memories, wide), -(-batch // how.products), how.threads, words


def memory_of(x: Stack) -> Memory:
    """The order in which it is read, and whether four elements are read at once."""
    for order in ("along", "across"):
        if are_fours(x, order):
            return Memory(order, True)
    strides: dict[Literal["along", "across", "stack"], tuple[int, bool]] = {
        "along": (x.place, x.length > 1),
        "across": (x.line, x.lines > 1),
        "stack": (x.product, x.product != 0),
    }
    moving = {order: abs(stride) for order, (stride, moves) in strides.items() if moves}
    return Memory(min(moving, key=lambda order: moving[order], default="along"), False)


def are_fours(x: Stack, order: Literal["along", "across"]) -> bool:
    """Whether each four neighbours in this order are aligned: of one line, of four lines if
    their length allows it, or of a stack without gaps.
    """
    run, step, count, other = x.length, x.place, x.lines, x.line
    if order == "across":
        run, step, count, other = count, other, run, step
    if not x.aligned or (run > 1 and step != 1):
        return False
    if run % FOUR == 0:
        return (count == 1 or other % FOUR == 0) and x.product % FOUR == 0
    return (count == 1 or other == run) and x.product == run * count
