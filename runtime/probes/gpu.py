"""The GPU that probes run on: kernels of this folder, launches, times by events, and the text of
what a probe finds.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from mixpert_py.errors import DeviceError
from mixpert_py.runtime.gpu.device import Absent, Device, find
from mixpert_py.runtime.kernels.compile import cuda_kernel
from mixpert_py.runtime.kernels.kernel import Kernel

PACKAGE = "mixpert_py.runtime.probes"
# cudaDeviceAttr
MULTIPROCESSORS = 16
L2_SIZE = 38
REPEATS = 5  # of what is timed; the least counts, since whatever else runs only adds to it


@dataclass(frozen=True, slots=True)
class Gpu:
    """The current device, through CuPy."""

    cupy: ModuleType
    device: Device

    @classmethod
    def current(cls) -> "Gpu":
        """Raises DeviceError where there is none that can be used."""
        found = find()
        if isinstance(found, Absent):
            raise DeviceError(f"nothing to probe: {found.sentence}")
        import cupy

        return cls(cupy, found)

    def attribute(self, number: int) -> int:
        """The attribute of the device that has this number in cudaDeviceAttr."""
        return int(self.cupy.cuda.runtime.deviceGetAttribute(number, self.device.id))

    @property
    def multiprocessors(self) -> int:
        return self.attribute(MULTIPROCESSORS)

    def kernel(
        self,
        file: str,
        name: str,
        constants: Mapping[str, int | str] | None = None,
        shared: int = 0,
    ) -> Kernel:
        """A kernel of a file in this folder; see `cuda_kernel`."""
        found = cuda_kernel(file, name, tuple((constants or {}).items()), shared, PACKAGE)
        return replace(found, early=False)  # what is timed begins when what was before has ended

    def words(self, count: int) -> Any:
        """Memory of so many 64-bit integers, zeros."""
        return self.cupy.zeros(count, "uint64")

    def run(self, kernel: Kernel, grid: int, block: int, *words: int, shared: int = 0) -> None:
        """Launch; does not wait."""
        stream = self.cupy.cuda.get_current_stream().ptr
        kernel.launch_words(grid, block, words, shared, stream)

    def seconds(self, call: Callable[[], Any]) -> float:
        """The time of a call on the device: the least of several, after one that is not timed."""
        call()
        times: list[float] = []
        for _ in range(REPEATS):
            start, stop = self.cupy.cuda.Event(), self.cupy.cuda.Event()
            start.record()
            call()
            stop.record()
            stop.synchronize()
            times.append(self.cupy.cuda.get_elapsed_time(start, stop) / 1e3)
        return min(times)


@dataclass(frozen=True, slots=True)
class Found:
    """The results of a probe. text: for a person. tables: its part of the device model."""

    text: str
    tables: Mapping[str, Any]


PREFIXES = (
    (1e15, "P"),
    (1e12, "T"),
    (1e9, "G"),
    (1e6, "M"),
    (1e3, "k"),
    (1.0, ""),
    (1e-3, "m"),
    (1e-6, "µ"),
    (1e-9, "n"),
)


def quantity(value: float, unit: str) -> str:
    """A number with three digits, and the unit with its prefix: 4.82 TB/s."""
    scale, prefix = next((pair for pair in PREFIXES if value >= pair[0]), PREFIXES[-1])
    return f"{value / scale:.3g} {prefix}{unit}"


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Columns one below the other, the first to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *others in rows:
        cells = [first.ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
