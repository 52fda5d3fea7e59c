"""The elements of A, B and C that each thread of a warp holds, found by running instructions."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mixpert_py.errors import DeviceError
from mixpert_py.runtime.kernels.compile import cuda_kernel
from samples.papers.gpu import PACKAGE, Gpu

Places = NDArray[np.int64]

LANES = 32
SUMS = 4  # registers of C of an mma.sync
DIGITS = 2  # in base 16, of an element of B: fragments.cu
WMMA = 16  # edge of its matrices


@dataclass(frozen=True, slots=True, eq=False)
class Fragment:
    """An operand. places: (lanes, elements of a thread), row · columns + column of each."""

    operand: str
    rows: int
    columns: int
    places: Places


def fragments(gpu: Gpu) -> dict[str, list[Fragment]]:
    """Those of wmma m16n16k16 and mma.sync m16n8k16 of float16, and mma.sync m16n8k32 of int8."""
    return {
        "wmma m16n16k16 float16": wmma(gpu),
        "mma.sync m16n8k16 float16": mma(gpu, 0, (16, 8, 16)),
        "mma.sync m16n8k32 int8": mma(gpu, 1, (16, 8, 32)),
    }


def mma(gpu: Gpu, element: int, shape: tuple[int, int, int]) -> list[Fragment]:
    """The fragments of an mma.sync. element: as fragments.cu numbers them."""
    m, _, k = shape
    kernel = cuda_kernel("fragments.cu", "products", (("ELEMENT", element),), package=PACKAGE)
    out = gpu.cupy.empty((DIGITS, m * k, LANES * SUMS), "int32")
    gpu.run(kernel, DIGITS * m * k, LANES, out.data.ptr, m * k)
    return deduced(out.get(), shape)


def wmma(gpu: Gpu) -> list[Fragment]:
    """The fragments of wmma m16n16k16, from matrices of their elements' places."""
    kernel = cuda_kernel("fragments.cu", "loads", (("ELEMENT", 0),), package=PACKAGE)
    numbers = np.arange(WMMA * WMMA)
    halves, floats = (gpu.cupy.asarray(numbers.astype(kind)) for kind in ("float16", "float32"))
    out = gpu.cupy.empty((3, LANES, 8), "uint32")
    gpu.run(kernel, 1, LANES, halves.data.ptr, floats.data.ptr, out.data.ptr)
    a, b, c = out.get()
    in_columns = _halves(b)
    return [
        Fragment("A", WMMA, WMMA, _halves(a)),
        Fragment("B", WMMA, WMMA, in_columns % WMMA * WMMA + in_columns // WMMA),
        Fragment("C", WMMA, WMMA, c.view(np.float32).astype(np.int64)),
    ]


def _halves(registers: NDArray[np.uint32]) -> Places:
    return np.ascontiguousarray(registers).view(np.float16).astype(np.int64)


def deduced(products: NDArray[np.int32], shape: tuple[int, int, int]) -> list[Fragment]:
    """The fragments of an mma.sync from what `products` of fragments.cu writes.

    Which element of B meets which of A in which sum says which of them share a row, a column or a
    place along K, but not their numbers: any order gives the same product. They are numbered as
    registers name them: first those of the first register of each thread. Raises DeviceError where
    no map explains what was seen.
    """
    m, n, k = shape
    first, second = products
    met = np.where(first > 0, 16 * (second - 1) + first - 1, -1)  # (of A, sum) → of B, or −1
    seen = met >= 0
    if not ((seen.sum(axis=1) == n).all() and (seen.sum(axis=0) == k).all()):
        raise DeviceError("no fragment map explains what mma.sync does here")
    row_of_a = seen.argmax(axis=1)  # the first sum that it reaches stands for its row
    row_of_c = row_of_a[seen.argmax(axis=0)]
    depth_of_a = met.max(axis=1)  # the last element of B that it meets stands for its place along K
    depth_of_b, column_of_b = np.full(k * n, -1), np.full(k * n, -1)
    column_of_c = met.max(axis=0)
    for one, sum_ in np.argwhere(seen):
        depth_of_b[met[one, sum_]] = depth_of_a[one]
        column_of_b[met[one, sum_]] = column_of_c[sum_]
    in_a = _by_registers(m * k, 4)
    in_c = _by_registers(m * n, SUMS // 2)
    rows, columns = _numbers(row_of_c[in_c], m), _numbers(column_of_c[in_c], n)
    depths = _numbers(depth_of_a[in_a], k)
    return [
        Fragment("A", m, k, _places(row_of_a, rows, depth_of_a, depths, k)),
        Fragment("B", k, n, _places(depth_of_b, depths, column_of_b, columns, n)),
        Fragment("C", m, n, _places(row_of_c, rows, column_of_c, columns, n)),
    ]


def _by_registers(elements: int, registers: int) -> Places:
    """Elements, which are numbered by thread, in the order of registers, then of threads."""
    numbers = np.arange(elements).reshape(LANES, registers, -1)
    return numbers.transpose(1, 0, 2).ravel()


def _numbers(keys: Iterable[int], count: int) -> dict[int, int]:
    """0, 1, … in the order in which the keys appear."""
    numbers = {int(key): number for number, key in enumerate(dict.fromkeys(map(int, keys)))}
    if len(numbers) != count:
        raise DeviceError("no fragment map explains what mma.sync does here")
    return numbers


def _places(
    outer: Sequence[int] | Places,
    outer_numbers: dict[int, int],
    inner: Sequence[int] | Places,
    inner_numbers: dict[int, int],
    columns: int,
) -> Places:
    places = [
        outer_numbers[int(i)] * columns + inner_numbers[int(j)]
        for i, j in zip(outer, inner, strict=True)
    ]
    return np.array(places).reshape(LANES, -1)
