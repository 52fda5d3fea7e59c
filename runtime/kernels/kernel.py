"""Compiled kernels, launched without the checks and conversions of CuPy's own launches."""

import ctypes
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from struct import Struct
from typing import Any, Final, NamedTuple

from mixpert_py.runtime.kernels.recording import Recording, Stream, places_of

# CUlaunchConfig: grid, block, shared memory, stream, attributes and their number.
CONFIG: Final = "7I4xQQI4x"
CONFIG_BYTES: Final = 56
# CUlaunchAttribute: CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, and that it holds.
EARLY: Final = ctypes.create_string_buffer(Struct("I4xI60x").pack(6, 1))


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """A kernel loaded on one device. `module` keeps the code alive; driver: the CUDA driver's
    functions. early: whether it waits by itself for the launch before it, so that the device may
    start it sooner.
    """

    name: str
    handle: int
    module: Any
    driver: Any
    early: bool = False

    def launch(
        self,
        grid: int,
        block: int,
        layout: "ArgumentLayout",
        values: Iterable[float],
        shared: int,
        stream: Stream,
    ) -> None:
        """Enqueue on a stream. values: what lies in the arguments, by the layout's format.

        A CuPy launch converts and checks each argument, which costs more than the kernel does.
        """
        if isinstance(stream, Recording):
            stream.launch(self, layout, (grid, block, shared), values)
            return
        free = layout.free
        try:
            arguments = free.pop()
        except IndexError:
            arguments = ArgumentArray.of(layout)
        self._fill(arguments, (grid, block, shared), stream, values)
        status = self.driver.cuLaunchKernelEx(arguments.config, self.handle, arguments.where, None)
        if status:
            import cupy

            raise cupy.cuda.driver.CUDADriverError(status)
        free.append(arguments)

    def filled(
        self, layout: "ArgumentLayout", shape: tuple[int, int, int], values: Iterable[float]
    ) -> "ArgumentArray":
        """New arguments with a launch in them, but for its stream; see `Recording.launch`."""
        arguments = ArgumentArray.of(layout)
        self._fill(arguments, shape, 0, values)
        return arguments

    def _fill(
        self,
        arguments: "ArgumentArray",
        shape: tuple[int, int, int],
        stream: int,
        values: Iterable[float],
    ) -> None:
        grid, block, shared = shape
        attributes = (ctypes.addressof(EARLY), 1) if self.early else (0, 0)
        arguments.fill(
            arguments.memory, 0, grid, 1, 1, block, 1, 1, shared, stream, *attributes, *values
        )

    def launch_words(
        self, grid: int, block: int, words: tuple[int, ...], shared: int, stream: Stream
    ) -> None:
        """The same for a kernel that takes addresses and 64-bit integers only."""
        self.launch(grid, block, words_of(len(words)), words, shared, stream)


class ArgumentArray(NamedTuple):
    """Memory for a launch's shape and arguments, which the driver copies, and pointers to these.

    To make it takes longer than to launch: it is kept. Whoever takes it has it alone, be it another
    thread or what interrupts this one.
    """

    fill: Callable[..., None]
    memory: Any
    pointers: Any
    config: int
    where: int

    @classmethod
    def of(cls, layout: "ArgumentLayout") -> "ArgumentArray":
        memory = ctypes.create_string_buffer(layout.format.size)
        start = ctypes.addressof(memory)
        offsets = layout.offsets
        first = start + CONFIG_BYTES
        pointers = (ctypes.c_void_p * len(offsets))(*[first + offset for offset in offsets])
        fill = layout.format.pack_into
        return cls(fill, memory, pointers, start, ctypes.addressof(pointers))


class ArgumentLayout(NamedTuple):
    """The layout of a kernel's arguments.

    format: of the launch's shape and all arguments. offsets: the beginning of each argument. size:
    their bytes. places: the place of each value, from the shape on.
    """

    format: Struct
    offsets: tuple[int, ...]
    size: int
    places: tuple[int, ...]
    free: list[ArgumentArray]

    @classmethod
    def of(cls, format: str, offsets: tuple[int, ...] = (0,)) -> "ArgumentLayout":
        whole = Struct(CONFIG + format)
        places = places_of(format, CONFIG_BYTES)
        return cls(whole, offsets, whole.size - CONFIG_BYTES, places, [])


@cache
def words_of(count: int) -> ArgumentLayout:
    """The layout of so many addresses and 64-bit integers."""
    return ArgumentLayout.of(f"{count}q", tuple(range(0, 8 * count, 8)))


@cache
def cuda_driver() -> Any:
    """The CUDA driver's library, which CuPy has loaded by itself."""
    library = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    for name, arguments in {
        "cuGraphAddKernelNode_v2": (pointer, pointer, pointer, size, pointer),
        "cuGraphAddMemsetNode": (pointer, pointer, pointer, size, pointer, pointer),
        "cuGraphCreate": (pointer, ctypes.c_uint),
        "cuGraphDestroy": (pointer,),
        "cuGraphExecDestroy": (pointer,),
        "cuGraphInstantiateWithFlags": (pointer, pointer, ctypes.c_ulonglong),
        "cuGraphLaunch": (pointer, pointer),
        "cuLaunchKernelEx": (pointer,) * 4,
        "cuMemsetD8Async": (ctypes.c_uint64, ctypes.c_ubyte, size, pointer),
    }.items():
        getattr(library, name).argtypes = arguments
    return library
