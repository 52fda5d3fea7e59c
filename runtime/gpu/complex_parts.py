"""Complex arrays of a GPU as real and imaginary parts, and products of parts as complex arrays.

Each is one launch of `kernels/complex_parts.cu`, which a recording takes as well.
"""

import math
from functools import partial
from typing import Any, Final

import numpy as np

from mixpert_py.runtime.arrays import GpuArray
from mixpert_py.runtime.complex_product import PartFunctions
from mixpert_py.runtime.gpu.stacks import is_by_columns, is_one_stack, matrices
from mixpert_py.runtime.kernels.compile import cuda_kernel
from mixpert_py.runtime.kernels.recording import Recording, Stream, allocate

THREADS: Final = 256
MAX_BLOCKS: Final = 4096


def way_on(stream: Stream) -> PartFunctions:
    """The functions for CuPy's arrays on a stream of the current device."""
    import cupy

    return PartFunctions(cupy, partial(split, stream=stream), partial(join, stream=stream))


def empty(shape: tuple[int, ...], dtype: "np.dtype[Any] | str", device: int, stream: Stream) -> Any:
    """An array in C order for work on a stream; of a recording, in its workspace."""
    import cupy

    memory = allocate(max(math.prod(shape), 1) * np.dtype(dtype).itemsize, stream)
    if isinstance(stream, Recording):
        place = cupy.cuda.UnownedMemory(memory.ptr, 1 << 50, None, device)
        memory = cupy.cuda.MemoryPointer(place, 0)
    return cupy.ndarray(shape, dtype, memory)


def split(z: GpuArray, *, stream: Stream) -> Any:
    """Split z, complex64 or complex128 of shape s with any strides, into (2, *s) real numbers.

    Parts are stored by columns where z is.
    """
    if is_by_columns(z):
        return split(z.swapaxes(-2, -1), stream=stream).swapaxes(-2, -1)
    parts = empty((2, *z.shape), z.dtype.char.lower(), z.data.device_id, stream)
    if z.size:
        stack = matrices(z)
        _launch("split", stack, (stack.data.ptr, parts.data.ptr), (), stream)
    return parts


def join(products: GpuArray, out: GpuArray, *, stream: Stream) -> None:
    """Join products of parts, (2, 2, *s) or (2, *s) in C order, into the complex array `out` of
    shape s.
    """
    is_walked = is_one_stack(out)
    target = out if is_walked else empty(out.shape, out.dtype, out.data.device_id, stream)
    if out.size:
        addresses = products.data.ptr, target.data.ptr
        four = int(products.ndim == out.ndim + 2)
        _launch("join", matrices(target), addresses, (four,), stream)
    if not is_walked:
        out[...] = target


def _launch(
    name: str, z: GpuArray, addresses: tuple[int, int], more: tuple[int, ...], stream: Stream
) -> None:
    """z: one or more complex matrices, (…, rows, columns)."""
    count, item = z.size, z.itemsize
    *stack, rows, columns = z.shape
    apart = z.strides[0] // item if stack else 0
    down, across = (stride // item for stride in z.strides[-2:])
    is_one_row = down == columns * across and (not stack or apart == rows * down)
    sizes = count, rows, count if is_one_row else columns, apart, down, across
    whole = int(z.data.ptr % item == 0)
    kernel = cuda_kernel("complex_parts.cu", name, (("SINGLE", int(z.dtype.char == "F")),))
    grid = min(-(-count // THREADS), MAX_BLOCKS)
    kernel.launch_words(grid, THREADS, (*addresses, *sizes, whole, *more), 0, stream)
