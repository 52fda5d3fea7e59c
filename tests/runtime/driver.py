"""A CUDA driver that notes what it launches, alone or by graphs, and may refuse a call."""

import ctypes
import struct
from typing import Any

from mixpert_py.runtime.kernels.recording import KERNEL_NODE, MEMSET_NODE, RELAXED


class Driver:
    """sizes: of the arguments of each kernel, by its handle. refuses: the call that fails.

    found: (handle, stream, shape, attributes, arguments) or ("clear", stream, address, byte, size).
    graphs: the launches of graphs, by their handles; done: the names of calls about graphs.
    """

    def __init__(self, sizes: dict[int, list[int]], refuses: str = "") -> None:
        self.sizes, self.refuses = sizes, refuses
        self.found: list[tuple[Any, ...]] = []
        self.graphs: dict[int, dict[int, tuple[Any, ...]]] = {}
        self.done: list[str] = []
        self.mode = self._made = 0

    def cuLaunchKernelEx(self, config: int, handle: int, where: int, extra: None) -> int:  # noqa: N802
        *shape, stream, _, attributes = struct.unpack("7I4xQQI4x", ctypes.string_at(config, 56))
        self.found.append((handle, stream, tuple(shape), attributes, self._read(handle, where)))
        return 0

    def cuMemsetD8Async(self, target: Any, byte: Any, size: Any, stream: Any) -> int:  # noqa: N802
        self.found.append(("clear", stream.value or 0, target.value, byte.value, size.value))
        return 0

    def cuThreadExchangeStreamCaptureMode(self, mode: Any) -> int:  # noqa: N802
        self.mode, mode._obj.value = mode._obj.value, self.mode
        return 0

    def __getattr__(self, name: str) -> Any:
        def call(first: Any, *given: Any) -> int:
            self.done.append(name)
            if name == self.refuses:
                return 1
            if name == "cuGraphLaunch":
                launches = self.graphs[first.value].values()
                self.found += [(one[0], given[0], *one[2:]) for one in launches]
            elif name != "cuCtxGetCurrent":
                assert self.mode == RELAXED  # else it may end another thread's capture
                self._change(name, first, *given)
            return 0

        return call

    def _change(self, name: str, first: Any, *given: Any) -> None:
        """Make or destroy a graph, or add a node to one."""
        if name.endswith("Destroy"):
            del self.graphs[first.value]
            return
        self._made += 1
        first._obj.value = self._made
        if name.startswith("cuGraphAdd"):
            self.graphs[given[0].value][self._made] = self._launch(given[3])
        else:
            self.graphs[self._made] = dict(self.graphs.get(getattr(given[0], "value", 0), {}))

    def _read(self, handle: int, where: int) -> bytes:
        sizes = self.sizes[handle]
        pointers = (ctypes.c_void_p * len(sizes)).from_address(where)
        return b"".join(ctypes.string_at(p, n) for p, n in zip(pointers, sizes, strict=True))

    def _launch(self, parameters: bytes) -> tuple[Any, ...]:
        """What a node does, with the arguments that are in memory now."""
        if len(parameters) == MEMSET_NODE.size:
            address, _, byte, _, size, _ = MEMSET_NODE.unpack(parameters)
            return "clear", 0, address, byte, size
        handle, *shape, where = KERNEL_NODE.unpack(parameters)[:9]
        return handle, 0, tuple(shape), 0, self._read(handle, where)
