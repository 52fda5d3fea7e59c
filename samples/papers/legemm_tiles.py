"""A tile model after LE-GEMM: the largest tile that leaves a chip threads enough.

After LE-GEMM (Zhang et al., J. Systems Architecture 160, 2025, 103336), §4.2. The text of its eq.
12–17 was not at hand, so this is not the paper's model word for word, but what earlier code shows:

- the parallelism of a tiling, TLP = Σ ⌈M / tile m⌉ · ⌈N / tile n⌉ · threads over the products of a
  batch, and a list of tiles to choose from (Li et al., PPoPP 2019; lixiuhong/batched_gemm,
  tiling/gemm.cu; there 256 threads, and 65,536 are enough);
- that it is counted in units of the hardware, wavefronts of 64 threads, and the rule: the largest
  tile, or the next smaller one while there are not enough of them (zhangyu0722/BatchGEMM,
  CUDA/framework/gemm.cu, by LE-GEMM's first author; there 6,000 are too few, more enough).

The paper leaves φ and Work_num open. Our reading: φ takes threads to multiprocessors, and Work_num
is what one of them has at a time, the threads of the blocks that it holds: enough is one full wave,
by the device model's multiprocessors. Shared memory, registers and the time of a tile do not enter,
except through which tiles are offered.
"""

from collections.abc import Sequence
from typing import NamedTuple

from mixpert_py.runtime.model.device_model import DeviceModel


class Tiling(NamedTuple):
    """m × n of C, by a block of so many threads."""

    m: int
    n: int
    threads: int

    @property
    def work(self) -> float:
        """Elements of C that a thread computes."""
        return self.m * self.n / self.threads


def parallelism(tiling: Tiling, m: int, n: int, batch: int = 1) -> int:
    """Threads that work on C (batch × m × n): TLP."""
    return -(-m // tiling.m) * -(-n // tiling.n) * batch * tiling.threads


def enough(model: DeviceModel, tiling: Tiling, blocks: int = 1) -> int:
    """Threads that a device has at a time. blocks: that a multiprocessor holds."""
    return model.chip.multiprocessors * blocks * tiling.threads


def chosen(
    tilings: Sequence[Tiling], needed: Sequence[int], m: int, n: int, batch: int = 1
) -> Tiling:
    """The first tiling, largest first, with as many threads as it needs; else the last."""
    pairs = zip(tilings, needed, strict=True)
    full = (one for one, least in pairs if parallelism(one, m, n, batch) >= least)
    return next(full, tilings[-1])
