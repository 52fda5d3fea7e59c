"""The papers' baselines that are no scheme and no mode of cuBLAS."""

from collections.abc import Callable
from types import ModuleType

import numpy as np

from tests.benchmarks import gemm
from tests.benchmarks.families import Array
from tests.benchmarks.gemm import Contender, Parts

SEPARATE_CALLS = "cuBLAS-TC emulation"
SDK = "SDK-style kernel"
EDGE = 32

Multiply = Callable[[Array, Array], Array]

# Each block has a tile of C, each thread one element of it; A and B pass through shared memory.
TILED = """
extern "C" __global__ void tiled(const float* a, const float* b, float* c, int m, int k, int n) {
  __shared__ float left[EDGE][EDGE], right[EDGE][EDGE];
  const int x = threadIdx.x, y = threadIdx.y;
  const int i = blockIdx.y * EDGE + y, j = blockIdx.x * EDGE + x;
  float sum = 0.0f;
  for (int start = 0; start < k; start += EDGE) {
    left[y][x] = i < m && start + x < k ? a[(size_t)i * k + start + x] : 0.0f;
    right[y][x] = start + y < k && j < n ? b[(size_t)(start + y) * n + j] : 0.0f;
    __syncthreads();
#pragma unroll
    for (int step = 0; step < EDGE; ++step) sum += left[y][step] * right[step][x];
    __syncthreads();
  }
  if (i < m && j < n) c[(size_t)i * n + j] = sum;
}
""".replace("EDGE", str(EDGE))


def baselines(xp: ModuleType) -> dict[str, Contender]:
    """Baselines by name; of NumPy, products of cuBLAS as well, which NumPy then stands for."""
    half = _half_on_cpu if xp is np else _half_on_gpu

    def emulated(a: Array, b: Array) -> Parts:
        return Parts(lambda: by_separate_calls(a, b, half))

    found = {SEPARATE_CALLS: Contender(SEPARATE_CALLS, "vendor", emulated)}
    if xp is not np:
        found[SDK] = Contender(SDK, "vendor", _sdk)
        return found
    for name, multiply in ((gemm.FP32.name, np.matmul), ("cuBLAS FP16", _of_halves)):
        found[name] = Contender(name, "vendor", _calling(multiply))
    return found


def by_separate_calls(a: Array, b: Array, half: Multiply) -> Array:
    """C of float32 operands split in two halves each, by four products of `half`, added up."""
    (high_a, low_a), (high_b, low_b) = split(a), split(b)
    c = half(low_a, low_b)
    c += half(low_a, high_b)
    c += half(high_a, low_b)
    c += half(high_a, high_b)
    return c


def split(x: Array) -> tuple[Array, Array]:
    """x rounded to float16, and the rest of it, rounded too."""
    high = x.astype(np.float16)
    return high, (x - high.astype(np.float32)).astype(np.float16)


def _half_on_gpu(a: Array, b: Array) -> Array:
    return gemm.product(gemm.MODES["cuBLAS FP16"], a, b)


def _half_on_cpu(a: Array, b: Array) -> Array:
    return a.astype(np.float32) @ b.astype(np.float32)


def _of_halves(a: Array, b: Array) -> Array:
    return _half_on_cpu(a.astype(np.float16), b.astype(np.float16))


def _calling(multiply: Multiply) -> Callable[[Array, Array], Parts]:
    return lambda a, b: Parts(lambda: multiply(a, b))


def _sdk(a: Array, b: Array) -> Parts:
    """One element a thread, on CUDA cores, as the matrixMul sample of the CUDA toolkit has it."""
    import cupy

    kernel = cupy.RawKernel(TILED, "tiled")
    (m, k), n = a.shape, b.shape[1]
    grid = -(-n // EDGE), -(-m // EDGE)
    a, b = cupy.ascontiguousarray(a), cupy.ascontiguousarray(b)
    sizes = tuple(map(np.int32, (m, k, n)))

    def call() -> Array:
        c = cupy.empty((m, n), "float32")
        kernel(grid, (EDGE, EDGE), (a, b, c, *sizes))
        return c

    return Parts(call)
