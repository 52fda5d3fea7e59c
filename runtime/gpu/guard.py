"""Whether the slices hold a product's operands: the device finds out by itself, and nobody waits.

A row of A, or column of B, that spans more powers of two than the slices hold leaves them, and
`repair` multiplies it: right for a few, at an eighth of the native product's speed for many. So
large products are prepared for both. After packing, a kernel of one block counts the rows that have
left, and writes a word. Where that is 1, both operands are packed anew, for `Scheme.wider`, mostly
over what was packed before, and multiplied so; what the other launches would do is left out, and
ends at once. Nothing waits, and a CUDA graph decides anew each time that it runs.

Up to 1024³ these launches take longer than the wider scheme does, which makes all such products of
`faithful`.
"""

from typing import Any, NamedTuple

import numpy as np

from mixpert_py.runtime import worth
from mixpert_py.runtime.gpu.device_state import state_of
from mixpert_py.runtime.kernels.compile import cuda_kernel
from mixpert_py.runtime.kernels.recording import Stream, allocate
from mixpert_py.runtime.packing import DevicePacked
from mixpert_py.runtime.scheme import Scheme

MOST = 256  # one row in so many may leave
THREADS = 1024
WORD = 4  # bytes


class Guard(NamedTuple):
    """The decision of a guard. word: memory of an int32, 1 if left and right, packed for
    `scheme`, are multiplied.
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


def wider_of(scheme: Scheme, a: Any, b: Any) -> Scheme | None:
    """The wider scheme for which products of these matrices, or stacks, are also prepared."""
    return scheme.wider if _count(a, b) >= worth.MIN_GUARDED else None


def safe(scheme: Scheme, a: Any, b: Any, device: int) -> Scheme:
    """The scheme by which a device multiplies these matrices: the given one if a guard watches
    whether slices represent them, else the wider one.
    """
    wider, state = scheme.wider, state_of(device)
    if wider is None or _count(a, b) >= worth.MIN_GUARDED:
        return scheme
    return wider if state.has_wider and wider.name not in state.refused else scheme


def _count(a: Any, b: Any) -> int:
    """The number of multiplications in a product or a stack of products."""
    return int(max(a.size * b.shape[-1], b.size * a.shape[-2]))


def outlier_guard(left: DevicePacked, right: DevicePacked, stream: Stream) -> Any:
    """The memory of the word for two packed operands: enqueued on a stream of the current device.

    Raises DeviceError where the kernel does not compile.
    """
    kernel = cuda_kernel("guard.cu", "guard", ())
    word = allocate(WORD, stream)
    words: tuple[int, ...] = ()
    for x in (left, right):
        count = x.batch * x.rows
        words += (x.flags, count, count // MOST)
    kernel.launch_words(1, THREADS, (*words, word.ptr), 0, stream)
    return word
