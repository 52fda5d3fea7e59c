"""The GPU on which the exhibits run kernels of their own, which lie in this folder."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mixpert_py.runtime.kernels.compile import cuda_kernel
from mixpert_py.runtime.kernels.kernel import Kernel
from mixpert_py.runtime.probes import gpu

PACKAGE = "samples.papers"


class Gpu(gpu.Gpu):
    """The current device, with kernels and memory for them."""

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
