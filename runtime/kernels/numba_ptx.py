"""The PTX that Numba makes of kernels in Python, for any device, whether or not it is there."""

import gc
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from mixpert_py.errors import DeviceError

# The compiler declares its own version of PTX, which the driver need not know. Our kernels use
# nothing that is later than 8.1, which drivers of CUDA 12.1 know; devices after these need more.
VERSION = re.compile(rb"\.version \S+")
OLD_VERSION = b".version 8.1"
NEWEST_OLD = 90
# A hint which bytes of the next load are used, which only PTX 8.3 and later have.
HINT = re.compile(rb'\s*\.pragma "used_bytes_mask[^;]*;')
CLUSTERED = b".explicitcluster"  # in the PTX of kernels that are launched in clusters


def compiled(module: str, factory: str, constants: tuple[Any, ...], capability: str) -> bytes:
    """The PTX of a Numba factory's kernel, as `numba_kernel` takes it. Raises DeviceError."""
    try:
        from numba.core.errors import NumbaError
        from numba.cuda.cudadrv.error import NvvmError
    except ImportError as error:
        raise DeviceError(f"kernel {factory!r}: numba-cuda cannot be imported ({error})") from error
    function, signature = getattr(import_module(module), factory)(*constants)
    try:
        ptx = ptx_of(function, signature, capability)
    # A library that is missing is a RuntimeError, or an ImportError, depending on which.
    except (NumbaError, NvvmError, RuntimeError, ImportError) as error:
        raise DeviceError(f"kernel {factory!r}: {str(error).partition(chr(10))[0]}") from error
    if int(capability) <= NEWEST_OLD:
        ptx = VERSION.sub(OLD_VERSION, HINT.sub(b"", ptx), count=1)
    return _clustered(ptx, getattr(function, "cluster", 0))


def _clustered(ptx: bytes, blocks: int) -> bytes:
    """The PTX of one kernel, to be launched in clusters of so many blocks; 0: as it is.

    Said here rather than by the launch: a loop over the blocks that is not unrolled takes 12 % more
    time at 16, and a launch that says nothing of a cluster of one is an illegal instruction.
    """
    if not blocks:
        return ptx
    directives = b"\n" + CLUSTERED + f"\n.reqnctapercluster {blocks}, 1, 1".encode()
    # Performance directives stand between the entry's parameters and its body.
    return re.sub(rb"\.entry [^)]*\)", lambda found: found[0] + directives, ptx, count=1)


def ptx_of(function: Any, signature: tuple[Any, ...], capability: str) -> bytes:
    """The PTX that Numba makes of a kernel, as its factory gives it. Raises Numba's errors."""
    from numba import cuda

    with _no_garbage_collected():
        ptx, _ = cuda.compile(
            function,
            signature,
            cc=(int(capability[:-1]), int(capability[-1])),
            device=False,
            abi="numba",
            output="ptx",
            launch_bounds=getattr(function, "launch_bounds", None),
        )
    return ptx if isinstance(ptx, bytes) else ptx.encode()


@contextmanager
def _no_garbage_collected() -> Iterator[None]:
    """The compiler makes so many objects that looking for cycles takes a quarter of its time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
