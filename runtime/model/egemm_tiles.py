"""A tile model after EGEMM-TC: the tile that does most with a byte, within a chip's budget.

After EGEMM-TC (Feng et al., PPoPP 2021), §6. The text of its eq. 2–8 was not at hand, so this is
not the paper's model word for word. Its outline, from memory: block and warp tiles (bm, bn, bk) and
(wm, wn, wk) with the most operations a byte, within the shared memory and the registers of a
multiprocessor, such that moving operands takes no longer than multiplying them. How each term is
counted below is ours, and so is the order among tiles of one intensity.

The times of instructions, which the paper leaves open, are the device model's: a multiprocessor's
rate of matrix instructions (`rates`), its share of the L2's bandwidth, and what shared memory gives
(`shared.bandwidth`). Padding, operands on their way through registers, addresses, barriers and the
size of the product do not enter.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from mixpert_py.runtime.kernels.abi import ELEMENTS, STEP
from mixpert_py.runtime.model.device_model import DeviceModel
from mixpert_py.runtime.model.kernel_times import SHARED_BANDWIDTH
from mixpert_py.runtime.model.tile import HOPPER, Family, Tile
from mixpert_py.runtime.scheme import Scheme

WARP = 32
WARPGROUP = 128


@dataclass(frozen=True, slots=True)
class Blocking:
    """bm × bn of C a block, bk of K at a time; wm × wn a warp, wk at a time. In elements.

    group: threads of a warp, or of a warpgroup that multiplies together. fragments: whether slices
    are read into registers once for all terms, or from shared memory by every instruction (wgmma).
    """

    bm: int
    bn: int
    bk: int
    wm: int
    wn: int
    wk: int
    group: int = WARP
    fragments: bool = True

    @property
    def groups(self) -> int:
        """Warps, or warpgroups, of a block."""
        return self.bm // self.wm * (self.bn // self.wn)


@dataclass(frozen=True, slots=True)
class Assessment:
    """What a blocking needs of a multiprocessor, and what it gives.

    intensity: operations a byte that is loaded into shared memory, what is to be large. reuse: the
    same of a byte that is read from there. shared: bytes of a block. registers: of 32 bits, of a
    block. compute, load, fetch: seconds that bk of K takes to be multiplied, to come from the L2
    into shared memory, and from there; inf and None where the device model does not say.
    broken: the constraints that do not hold, in words.
    """

    blocking: Blocking
    intensity: float
    reuse: float
    shared: int
    registers: int
    compute: float
    load: float | None
    fetch: float
    broken: tuple[str, ...]


def assess(model: DeviceModel, scheme: Scheme, blocking: Blocking) -> Assessment:
    """A blocking for a scheme on a device.

    With l and r slices of A and B, e bytes an element, t terms, c accumulators:
    operations = 2 · t · bm · bn · bk;  bytes loaded = e · bk · (l · bm + r · bn);
    bytes fetched = groups · e · bk · (l · wm + r · wn), without fragments t · (wm + wn);
    registers = c · bm · bn, and what is fetched for wk.
    """
    b, count = blocking, model.chip.multiprocessors
    left, right = scheme.left.count, scheme.right.count
    size = ELEMENTS[scheme.element.name].size
    operations = 2 * scheme.products * b.bm * b.bn * b.bk
    loaded = (left * b.bm + right * b.bn) * b.bk * size
    of_group = left * b.wm + right * b.wn if b.fragments else scheme.products * (b.wm + b.wn)
    fetched = b.groups * of_group * b.bk * size
    held = b.groups * of_group * b.wk * size / 4 if b.fragments else 0
    registers = len(scheme.accumulators()) * b.bm * b.bn + int(held)
    rate = getattr(model.rates, scheme.element.name) or model.rates.float16 or model.rates.int8
    bandwidth = (model.shared.bandwidth or SHARED_BANDWIDTH) * model.chip.clock
    compute = operations * count / rate if rate else math.inf
    load = loaded * count / model.l2.bandwidth if model.l2.bandwidth else None
    fetch = fetched / bandwidth
    limits = {
        "shared memory": loaded <= model.shared.per_block,
        "registers": registers <= model.registers.per_multiprocessor,
        "registers a thread": registers <= model.registers.per_thread * b.groups * b.group,
        "L2 to shared memory": load is None or load <= compute,
        "shared memory to registers": fetch <= compute,
    }
    broken = tuple(name for name, holds in limits.items() if not holds)
    intensity, reuse = operations / loaded, operations / fetched
    return Assessment(b, intensity, reuse, int(loaded), registers, compute, load, fetch, broken)


def best(assessed: Iterable[Assessment]) -> Assessment:
    """The most intense of those that break no constraint, or else of all; then the one with most
    reuse, then that with the least shared memory.
    """
    found = list(assessed)
    return min([one for one in found if not one.broken] or found, key=_order)


def blocking_of(scheme: Scheme, tile: Tile, family: Family) -> Blocking:
    """What a tile of our kernels is in the paper's terms."""
    size = ELEMENTS[scheme.element.name].size
    bk, wk = STEP // size, STEP // (2 * size)
    if family is HOPPER:  # warpgroups one below the other
        return Blocking(tile.m, tile.n, bk, 64, tile.n, wk, WARPGROUP, fragments=False)
    across = 2 if tile.m > tile.n else 4  # of eight warps, as in gemm_sm80.cu
    return Blocking(tile.m, tile.n, bk, tile.m // (8 // across), tile.n // across, wk)


def _order(one: Assessment) -> tuple[float, float, int]:
    return -one.intensity, -one.reuse, one.shared
