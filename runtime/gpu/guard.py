"""The guard: the device itself decides whether the slices can represent a product's operands.

A row of A, or a column of B, that spans more powers of two than the slices can represent is an
outlier: `repair` multiplies it. For a few outliers that is cheap; for many it runs at an eighth of
the native product's speed. So the launches of a large product are enqueued for two schemes. After
packing, a kernel of one block counts the outliers and writes a word to the device's memory. If the
word is 1, both operands are packed again for `Scheme.wider`, mostly into the same memory, and
multiplied by that scheme, and the kernels of the first scheme return at once; if it is 0, the
kernels of the wider scheme do. The host never waits, and a CUDA graph decides each time it runs.

Up to 1024³ these launches take longer than the wider scheme alone, so all `faithful` products of
these sizes use the wider scheme.

The product of a large matrix with itself is enqueued also as one with its own transpose, of which
half the tiles are made. A second word says whether the matrix is symmetric, bit for bit. Complex
operands of residues are likewise compared, A's conjugate transpose with B.
"""

from typing import Any, NamedTuple

import numpy as np

from mixpert_py.runtime import worth
from mixpert_py.runtime.arrays import GpuArray
from mixpert_py.runtime.gpu.device import state_of
from mixpert_py.runtime.kernels.compile import cuda_kernel
from mixpert_py.runtime.kernels.recording import Stream, allocate
from mixpert_py.runtime.packing.operand import DevicePacked, Operand
from mixpert_py.runtime.packing.residues import reals
from mixpert_py.runtime.scheme import Scheme

ROWS_PER_OUTLIER = 256  # the wider scheme is used if there are more outliers than one in so many
THREADS = 1024
WORD = 4  # bytes
MIN_SQUARED = 4096  # rows of a matrix: to look whether it is symmetric then costs 1 % at most
MIRRORED = 2  # the second word: 0 of a matrix that is not symmetric, 1 for the wider scheme
MIRROR_BLOCKS, MIRROR_THREADS = 264, 1024  # which an H200 holds at a time
# Rows of A from which complex operands are compared: where they differ, this costs 1 % at most.
MIN_HERMITIAN = 2048
GENERAL, HERMITIAN = 1, 2  # the word of products by residues; 0: moduli do not suffice


class Guard(NamedTuple):
    """The wider scheme, and both operands packed for it.

    word: an int32 on the device, 1 if these operands are multiplied.
    """

    word: Any
    scheme: Scheme
    left: Any
    right: Any

    def flag(self) -> bool:
        """Whether the word is not 0. Waits for the device."""
        import cupy

        found, stream = np.zeros(1, np.int32), cupy.cuda.get_current_stream()
        self.word.copy_to_host_async(found.ctypes.data, WORD, stream)
        stream.synchronize()
        return bool(found[0])


def wider_of(scheme: Scheme, a: GpuArray, b: GpuArray) -> Scheme | None:
    """The wider scheme for which these matrices, or stacks, are also packed; None: no other one."""
    return scheme.wider if _count(a, b) >= worth.MIN_GUARDED else None


def safe(scheme: Scheme, a: GpuArray, b: GpuArray, device: int) -> Scheme:
    """The scheme by which a device multiplies these matrices: the given one if a guard decides
    whether its slices represent them, else the wider one.
    """
    wider, state = scheme.wider, state_of(device)
    if wider is None or _count(a, b) >= worth.MIN_GUARDED:
        return scheme
    return wider if state.has_wider and wider.name not in state.refused else scheme


def _count(a: GpuArray, b: GpuArray) -> int:
    """The number of multiplications in a product or a stack of products."""
    return int(max(a.size * b.shape[-1], b.size * a.shape[-2]))


def is_squared(left: DevicePacked, right: DevicePacked) -> bool:
    """Return whether both operands are the same large float32 matrix, which may be symmetric."""
    a, b = left.operand, right.operand
    return (
        a.address == b.address
        and a.memory == b.memory == "float32"
        and a.batch == b.batch == 1
        and a.rows == b.rows == a.k >= MIN_SQUARED
        and (a.form.row_stride, a.form.k_stride) == (b.form.k_stride, b.form.row_stride)
        and min(a.form.row_stride, a.form.k_stride) == 1
        and left.splitter == right.splitter
    )


def may_be_hermitian(left: DevicePacked, right: DevicePacked) -> bool:
    """Return whether B may be A's conjugate transpose, in other memory of the same layout, and a
    comparison may pay: both are complex, A is large, and without gaps.
    """
    it = left.operand.form
    return (
        left is not right
        and reals(it) == 2
        and it == right.operand.form
        and it.rows >= MIN_HERMITIAN
        and (it.row_stride, it.k_stride) in ((it.k, 1), (1, it.rows))
        and it.batch_stride in (0, it.rows * it.k)
    )


def look_at_hermitian(a: Operand, b: Operand, word: int, stream: Stream) -> None:
    """Enqueue that the int32 at the address `word` becomes GENERAL where it is HERMITIAN and B is
    not A's conjugate transpose, bit for bit. Raises DeviceError if the kernel does not compile.
    """
    single = int(a.memory == "complex64")
    count = a.batch * a.rows * a.k * (2 - single)
    words = a.address, b.address, count, single, word, HERMITIAN, GENERAL
    kernel = cuda_kernel("guard.cu", "conjugate", ())
    kernel.launch_words(MIRROR_BLOCKS, MIRROR_THREADS, words, 0, stream)


def outlier_guard(left: DevicePacked, right: DevicePacked, stream: Stream) -> Any:
    """Enqueue the count of outliers of two packed operands; returns the memory of its word, and,
    where `is_squared`, of a second one.

    Raises DeviceError if a kernel does not compile.
    """
    kernel = cuda_kernel("guard.cu", "guard", ())
    word, mirrored = allocate(2 * WORD, stream), MIRRORED * is_squared(left, right)
    words: tuple[int, ...] = ()
    for x in (left, right):
        count = x.batch * x.rows
        words += (x.flags, count, count // ROWS_PER_OUTLIER)
    kernel.launch_words(1, THREADS, (*words, word.ptr, mirrored), 0, stream)
    if mirrored:
        its, n = left.operand, left.rows
        words = its.address, n, max(its.form.row_stride, its.form.k_stride), word.ptr, mirrored
        look = cuda_kernel("guard.cu", "mirror", ())
        look.launch_words(MIRROR_BLOCKS, MIRROR_THREADS, words, 0, stream)
    return word
