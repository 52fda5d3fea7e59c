"""Products of CuPy's integers modulo 2^w, by INT8 tensor cores: three launches.

`kernels/integer_packing.cu` splits each operand into digits of base 256, and finds on the device
how many of them are used; `kernels/integer_gemm.cu` multiplies these. CuPy multiplies modulo 2^w as
well, so that every bit is the same, whatever the entries are. The host reads nothing.
"""

from functools import lru_cache
from typing import Any, Final

import numpy as np

from mixpert_py.runtime.arrays import GpuArray
from mixpert_py.runtime.gpu.residues import GROUP, TILE_M, TILE_N, WGMMA, tiles
from mixpert_py.runtime.gpu.slices import keep_for_graph
from mixpert_py.runtime.kernels.abi import STEP
from mixpert_py.runtime.kernels.compile import cuda_kernel
from mixpert_py.runtime.kernels.kernel import Kernel
from mixpert_py.runtime.kernels.recording import Recording, Stream, allocate, clear, is_capturing
from mixpert_py.runtime.packing.operand import VECTOR
from mixpert_py.runtime.packing.residues import of_moduli
from mixpert_py.runtime.request import Product, Request
from mixpert_py.runtime.schemes.integers import BASE

THREADS, ROWS, STEPS = 256, 32, 4  # of a block that packs
TYPES: Final = {1: "char", 2: "short", 4: "int", 8: "long long"}  # of C, by their bytes
COUNTS: Final = 256  # bytes in front of the digits, for the numbers of those that are used


def multiply(request: Request, stream: Stream | None = None) -> Product:
    """A·B of matrices of integers on the current device, with CuPy's bits.

    K is below `worth.TOO_LONG_FOR_DIGITS` where the result has 64 bits. stream: as in
    `multiply.multiply`. Raises DeviceError if a kernel does not compile.
    """
    import cupy

    a, b, out = request.a, request.b, request.out
    dtype = np.result_type(a.dtype, b.dtype)
    if stream is None:
        stream = cupy.cuda.get_current_stream().ptr
    value = out if isinstance(stream, Recording) else cupy.empty((len(a), b.shape[1]), dtype)
    (m, n), count = value.shape, dtype.itemsize
    steps, (rows, columns) = -(-a.shape[1] // STEP), tiles(m, n)
    slice_of_a = rows * TILE_M * STEP * steps
    memory = allocate(COUNTS + count * (slice_of_a + columns * TILE_N * STEP * steps), stream)
    used, left = memory.ptr, memory.ptr + COUNTS
    right = left + count * slice_of_a
    clear(used, 8, stream)
    _pack(a, count, (left, used), steps, rows * TILE_M, stream)
    _pack(b.T, count, (right, used + 4), steps, columns * TILE_N, stream)
    kernel, blocks, shared = gemm(count, a.data.device_id)
    paired = int(value.data.ptr % (2 * count) == 0 == n % 2)
    problem = left, right, value.data.ptr, used, steps, rows, columns, GROUP, m, n, n, paired
    kernel.launch_words(min(blocks, rows * columns), WGMMA.threads, problem, shared, stream)
    if is_capturing(cupy.cuda, stream):
        keep_for_graph(value, memory)
    if out is not None and value is not out:
        out[...] = value
        value = out
    return Product(value, "exact")


def _pack(
    x: GpuArray, count: int, to: tuple[int, int], steps: int, padded: int, stream: Stream
) -> None:
    """Enqueue the digits of (rows, k). to: the addresses of the digits and of their number."""
    (rows, k), size = x.shape, x.itemsize
    row_stride, k_stride = (stride // size for stride in x.strides)
    along = int(abs(k_stride) == 1 or abs(row_stride) > abs(k_stride))
    vectors = int(k_stride == 1 and (x.data.ptr | row_stride * size) % VECTOR == 0)
    kernel = packing(x.dtype.name, count, x.data.device_id)
    grid = -(-rows // ROWS) * -(-steps // STEPS)
    words = x.data.ptr, *to, rows, k, row_stride, k_stride, steps, padded, along, vectors
    kernel.launch_words(grid, THREADS, words, 0, stream)


@lru_cache(maxsize=64)
def packing(dtype: str, count: int, device: int) -> Kernel:
    """The kernel that packs integers of a type as so many digits, on a device, the current one."""
    kind = "unsigned" if dtype.startswith("u") else "signed"
    definitions = ("COUNT", count), ("Entry", f"{kind} {TYPES[np.dtype(dtype).itemsize]}")
    return cuda_kernel("integer_packing.cu", "integers", definitions)


@lru_cache(maxsize=16)
def gemm(count: int, device: int) -> tuple[Kernel, int, int]:
    """The kernel that multiplies so many digits on a device, which is the current one; the blocks
    that it runs at a time, and the bytes of shared memory of each.
    """
    import cupy

    attributes: Any = cupy.cuda.Device(device).attributes
    shared = int(attributes["MaxSharedMemoryPerBlockOptin"])
    types = ("Value", f"signed {TYPES[count]}"), ("Pair", f"{TYPES[count]}2".replace(" ", ""))
    definitions = *of_moduli((BASE,) * count), *WGMMA.definitions(shared), *types
    kernel = cuda_kernel("integer_gemm.cu", "integer_gemm", definitions, WGMMA.bytes(shared))
    return kernel, int(attributes["MultiProcessorCount"]), WGMMA.bytes(shared)
