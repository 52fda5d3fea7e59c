"""How long a product takes on a modelled device: what is beside its kernel, and the kernel.

Times are those of a product among others, not of a minute of them: a chip that products keep busy
for long lowers its clock.
"""

from functools import lru_cache
from typing import NamedTuple

from mixpert_py.errors import DeviceError
from mixpert_py.runtime.kernels import LEAST_CAPABILITY
from mixpert_py.runtime.kernels.abi import ELEMENTS
from mixpert_py.runtime.model.device_model import PackingCost
from mixpert_py.runtime.model.kernel_times import CORE_RATE, Depth, KernelTimes
from mixpert_py.runtime.packing import LARGE
from mixpert_py.runtime.packing.operand import layout
from mixpert_py.runtime.reasons import Shape
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes.int8 import INT8X1
from mixpert_py.runtime.schemes.residues import of_complex

# Of packing that nobody has measured.
BASE = 12e-6  # seconds
LENGTH = 4e-9  # seconds for each element of K, where operands are small
SHARE_OF_COPY = 0.8  # of the device's copying, in bytes
SHARE_OF_DRAM = 0.85  # copying, of what the memory could read

LAUNCH = 3e-6  # seconds of a kernel beside what it reads, computes and writes

# The vendor's kernels: their tiles, either way round, and how near the best rate each comes.
VENDOR_TILES = ((128, 128, 1.0), (128, 64, 0.76), (64, 64, 0.8), (32, 64, 0.7))
THIN_TILE = (128, 8, 0.35)  # of those for vectors and what is not much wider
LEAST_DEPTH = 1024  # elements of K that a tile's part has where tiles are cut along it


class Predicted(NamedTuple):
    """Seconds. packing: of both operands, and all else beside the kernel."""

    packing: float
    kernel: float

    @property
    def seconds(self) -> float:
        return self.packing + self.kernel


@lru_cache(maxsize=1024)
def product(
    times: KernelTimes,
    scheme: Scheme,
    shape: Shape,
    batch: int = 1,
    *,
    wide: bool = False,
    shares_b: bool = False,
    symmetric: bool = False,
) -> Predicted:
    """C (batch × m × n) = A·B by a scheme, both operands on the device.

    No step takes less than its bytes need: where the native product is bound by memory, this one
    takes longer.

    shape: (m, k, n). wide: of float64. shares_b: all products have one B. symmetric: B is A
    transposed in the same memory, which is packed once. Raises DeviceError where
    there are no kernels for the device.
    """
    require(times)
    m, k, n = shape
    elements, size = batch * m * k + (1 if shares_b else batch) * k * n, 8 if wide else 4
    if symmetric:
        elements //= 2
    if scheme.moduli:
        return _by_residues(times, scheme, shape, batch, elements, size, symmetric)
    depth = depth_of(scheme, k)
    tile = times.best(scheme, m, n, batch, depth, wide, symmetric)
    moved = elements * _slice_bytes(scheme) + batch * m * n * size
    made = times.seconds(scheme, tile, m, n, batch, depth, symmetric)
    kernel = max(made, _moving(times, moved))
    return Predicted(_packing(times, scheme, elements, k, size), kernel)


def _by_residues(
    times: KernelTimes,
    scheme: Scheme,
    shape: Shape,
    batch: int,
    elements: int,
    size: int,
    symmetric: bool,
) -> Predicted:
    """The time of a product by residues: one INT8 product for each modulus.

    Packing reads operands twice and writes residues; the remainder theorem reads those of C and
    writes C. elements: the number packed. size: the bytes of one element.
    """
    count, (m, _, n) = scheme.products, shape
    one = _modulo_one(times, shape, batch, symmetric)
    combined = LAUNCH + batch * m * n * (count + size) / _copy(times)
    packing = BASE + elements * (2 * size + count) / (SHARE_OF_COPY * _copy(times))
    return Predicted(packing, count * one + combined)


def joined(
    times: KernelTimes, scheme: Scheme, shape: Shape, batch: int = 1, *, wide: bool = True
) -> Predicted:
    """Predict, as `product` does, a complex product by residues: two INT8 products for each modulus
    make both parts of C. wide: whether it is of complex128.
    """
    count, size, (m, k, n) = 2 * len(of_complex(scheme.moduli)), 16 if wide else 8, shape
    made = count * _modulo_one(times, shape, batch, False)
    combined = LAUNCH + batch * m * n * (count + size) / _copy(times)
    packed = batch * (m * k + k * n) * (2 * size + count)
    return Predicted(BASE + packed / (SHARE_OF_COPY * _copy(times)), made + combined)


def _modulo_one(times: KernelTimes, shape: Shape, batch: int, symmetric: bool) -> float:
    """Seconds of an INT8 product, modulo one number."""
    m, k, n = shape
    depth = depth_of(INT8X1, k)
    tile = times.best(INT8X1, m, n, batch, depth, False, symmetric)
    one = times.seconds(INT8X1, tile, m, n, batch, depth, symmetric)
    return max(one, _moving(times, batch * (m * k + k * n + m * n)))


def native(
    times: KernelTimes, m: int, k: int, n: int, batch: int = 1, *, wide: bool = False
) -> float:
    """Seconds of the vendor's float32 product, or of its float64 one (wide). The transposed product
    takes as long.

    By waves of tiles, cut along K where they are too few to fill the device; but no less than it
    takes to read A and B and to write C, which is what products with vectors take.
    """
    model, count, name = times.model, times.chip.multiprocessors, "float64" if wide else "float32"
    # Of large products: measured, else what the device's cores could do.
    known = getattr(model.vendor, name) or getattr(model.rates, name)
    rate: float = known or model.chip.multiprocessors * model.chip.clock * CORE_RATE / (1 + wide)

    def tiles(height: int, width: int) -> int:
        return min(-(-m // h) * -(-n // w) for h, w in ((height, width), (width, height))) * batch

    def one(height: int, width: int, share: float) -> float:
        """Seconds of one tile for one of K, on one multiprocessor."""
        return 2 * height * width * count / (rate * share)

    def waves(height: int, width: int, share: float) -> float:
        number = tiles(height, width)
        parts = max(1, min(count // number, k // LEAST_DEPTH))
        rounds = -(-number * parts // count)
        return rounds * (k / parts) * one(height, width, share)

    # Thin kernels have many small blocks on a multiprocessor: no wave of them is half empty.
    thin = max(tiles(*THIN_TILE[:2]) * k / count, min(k, LEAST_DEPTH)) * one(*THIN_TILE)
    moved = (8 if wide else 4) * batch * (m * k + k * n + m * n)
    computed = min(thin, *(waves(*tile) for tile in VENDOR_TILES))
    return max(LAUNCH + computed, _moving(times, moved))


def joining(
    times: KernelTimes, m: int, n: int, batch: int, products: int, *, wide: bool = False
) -> float:
    """Seconds in which so many real products of parts become a complex C, of `batch` in all."""
    return (batch + 2 * batch // products) * m * n * (8 if wide else 4) / _copy(times)


def depth_of(scheme: Scheme, k: int) -> Depth:
    """K as the scheme's packed operands have it."""
    place = layout(scheme.left, 1, 1, k, scheme.lengths(k)[1])
    return Depth(place.steps, place.blocks, place.steps_per_block)


def require(times: KernelTimes) -> None:
    """Raise DeviceError where there are no kernels for a device."""
    model = times.model
    if model.capability < LEAST_CAPABILITY:
        raise DeviceError(
            f"{model.device} has compute capability {model.capability / 10}; the kernels need "
            f"{LEAST_CAPABILITY / 10} or later"
        )


def _packing(times: KernelTimes, scheme: Scheme, elements: int, k: int, size: int) -> float:
    moved = elements * (size + _slice_bytes(scheme))
    figures = _figures(times, scheme)
    if elements < LARGE:
        return max(figures.small + figures.length * k, moved / _copy(times))
    return figures.base + moved / figures.rate


def _slice_bytes(scheme: Scheme) -> float:
    """Bytes of all slices of an element, the mean of A's and B's."""
    bits = 8 * ELEMENTS[scheme.element.name].size
    return bits / 8 * (scheme.left.count + scheme.right.count) / 2


@lru_cache(maxsize=64)
def _figures(times: KernelTimes, scheme: Scheme) -> PackingCost:
    measured = {row.scheme: row for row in times.model.packing}.get(scheme.name)
    return measured or PackingCost(scheme.name, BASE, SHARE_OF_COPY * _copy(times), BASE, LENGTH)


def _moving(times: KernelTimes, moved: float) -> float:
    """Seconds of a kernel that reads and writes so many bytes, however little it computes."""
    return LAUNCH + moved / _copy(times)


def _copy(times: KernelTimes) -> float:
    """Bytes/s read and written."""
    dram = times.model.dram
    return dram.copy or SHARE_OF_DRAM * dram.bandwidth
