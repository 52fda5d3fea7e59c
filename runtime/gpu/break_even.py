"""Decides which products beat the vendor's on a device, by the times that its model predicts."""

import math
from bisect import bisect_left
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Protocol

import numpy as np

from mixpert_py.errors import DeviceError
from mixpert_py.runtime import processor
from mixpert_py.runtime.dtypes import is_wide, name_of, real_products
from mixpert_py.runtime.gpu.copiers import MOST_COPIERS
from mixpert_py.runtime.model import STANDS_IN
from mixpert_py.runtime.reasons import Shape
from mixpert_py.runtime.request import Array, broadcast, result_shape
from mixpert_py.runtime.signatures import TINY_COUNT

if TYPE_CHECKING:
    from mixpert_py.runtime.model.kernel_times import KernelTimes

SHIPPED = STANDS_IN  # its figures say whether a GPU is worth looking for
# Seconds until CuPy is imported and CUDA has begun, where their files were read before: 0.65 beside
# an H200, and 2.5 where they come from the disk.
STARTING = 1.0
SAFETY = 1.2  # by how much moving must be faster: the host may be busier than when measured
STAGING = 5e9  # bytes/s where a model does not say
HOST = 65e9  # operations/s of a NumPy product by each core, where a model does not say
LATENCY = 1e-3  # seconds: memory, streams, launches, and the host's steps between them

Dims = tuple[int, ...]


class Times(Protocol):
    """Predicted seconds of a scheme, and of the native product, on a device that holds both
    operands.

    a, b: shapes. wide: for float64, or complex128. packed: elements that are packed already.
    products: the number of real ones, 2 or 4 for complex operands.
    """

    def __call__(
        self, scheme: str, a: Dims, b: Dims, wide: bool, packed: int, products: int = 1
    ) -> tuple[float, float]: ...


# Seconds that a product of complex arrays keeps the host for each real one, since its launches are
# not prepared: beside an H200 0.12e-3 of CuPy's, 0.19e-3 of tensors.
PART = 0.19e-3

# How much faster `crt` must be, with 14 moduli, to be taken by default: with 15, which log-normal
# data needs, it takes 1/14 longer.
CRT_MARGIN = 1.07

# Rows of a tile. Tiles that are partly filled make gains come and go as rows grow; between two
# multiples of these they come once at most, but for gains below a hundredth.
TILE_ROWS = 64


@dataclass(frozen=True, slots=True)
class Figures:
    """The break-even figures of one device.

    staging: bytes/s between NumPy arrays and the device. latency: seconds for the smallest product
    of NumPy arrays there. host: operations/s of a float32 product of NumPy arrays. enqueuing:
    additional seconds of the host for a product, compared with a native one.
    """

    staging: float
    latency: float
    host: float
    times: Times
    enqueuing: float = 0.0

    def faster(
        self,
        scheme: str,
        a: Dims,
        b: Dims,
        wide: bool,
        packed: int,
        products: int = 1,
        *,
        by_default: bool = False,
    ) -> bool:
        """Return whether a scheme beats the native product. Arguments as in Times.

        by_default: whether nobody has chosen the scheme. Then it must be faster by `enqueuing` as
        well, so that a program that waits for the host does not lose; and `crt` by CRT_MARGIN.
        """
        ours, native = self.times(scheme, a, b, wide, packed, products)
        if by_default:
            ours = ours * (CRT_MARGIN if scheme == "crt" else 1.0) + self.enqueuing
        return ours < native


@cache
def figures(device: str) -> Figures:
    """Break-even figures of a device; a device without a model uses the nearest known one.

    The known device may be in another machine, so the host's figures follow the cores of this one.
    """
    # Not at the start: only who multiplies something large needs a model.
    from mixpert_py.runtime.model.known_devices import model_of

    model = model_of(device)
    cores = processor.cores()
    measured_on = model.host.cores or cores
    copying = min(cores, MOST_COPIERS) / min(measured_on, MOST_COPIERS)
    rate = model.host.float32
    return Figures(
        model.transfer.staged * copying if model.transfer.staged else STAGING,
        LATENCY,
        HOST * cores if rate is None else rate * cores / measured_on,
        partial(_times, device),
        max((model.vendor.product or 0.0) - (model.vendor.host or 0.0), 0.0),
    )


@lru_cache(maxsize=4096)
def _times(
    device: str, scheme: str, a: Dims, b: Dims, wide: bool, packed: int, products: int = 1
) -> tuple[float, float]:
    # Not at the start: only who has a device, or may have one, needs this.
    from mixpert_py.runtime.model import prediction
    from mixpert_py.runtime.schemes import emulation_on_gpu

    a, b = (1, *a)[-max(len(a), 2) :], b if len(b) > 1 else (*b, 1)
    if 0 in (*a, *b):
        return 0.0, 0.0
    m, k, n = *a[-2:], b[-1]
    times = _kernel_times(device)
    vendor, batch = times.model.vendor, math.prod(broadcast(a[:-2], b[:-2])) * products
    more = {"wide": wide, "shares_b": len(b) < 3 and products == 1, "packed": packed * products}
    made = emulation_on_gpu(scheme, batch * m * k * n)
    ours = prediction.product(times, made, m, k, n, batch, **more).seconds
    native = prediction.native(times, m, k, n, batch, wide=wide)
    product, host = vendor.product or 0.0, vendor.host or 0.0
    if products > 1:  # more launches, of what takes operands apart, too
        ours += prediction.joining(times, m, n, batch, products, wide=wide)
        product = products * PART
    # What keeps the host longer than the device is as slow as the host.
    return max(ours, product), max(native, host)


@cache
def _kernel_times(device: str) -> "KernelTimes":
    from mixpert_py.runtime.model.kernel_times import KernelTimes
    from mixpert_py.runtime.model.known_devices import model_of

    return KernelTimes(model_of(device))


def native_rows(device: str, m: int, k: int, n: int) -> int:
    """The number of rows of A up to which all float32 products with a (k, n) matrix are native.

    The product with m rows is native; if some with fewer rows are not, this is less than m. If rows
    grow from product to product, as in a text that is being written, few products have to be
    judged.
    """

    def gains(rows: int) -> bool:
        try:
            return figures(device).faster("faithful", (rows, k), (k, n), False, 0, by_default=True)
        except DeviceError:
            return True

    more = 1 << (m - 1).bit_length()
    last, rows = 0, min(TILE_ROWS, more)
    while not gains(rows):
        if rows == more:
            return more
        last, rows = rows, min(rows + max(TILE_ROWS, 1 << rows.bit_length() >> 6), more)
    return last + bisect_left(range(last + 1, rows), True, key=gains)


def tiny_pays(scheme: str, a: Dims, b: Dims) -> bool:
    """Whether a stack of tiny float32 products beats the native one. Each operand has as many
    matrices, or one for all.
    """
    if scheme != "faithful" or min(len(a), len(b)) < 2 or 0 in (*a, *b):
        return False
    from mixpert_py.runtime.kernels.tiny_block import EDGE

    if max(*a[-2:], b[-1]) > EDGE:
        return False
    count = math.prod(broadcast(a[:-2], b[:-2]))
    return count >= TINY_COUNT and {math.prod(x[:-2]) for x in (a, b)} <= {1, count}


def moving_saves(a: Array, b: Array, shape: Shape, scheme: str, known: Figures) -> float:
    """The seconds that a product of NumPy arrays gains on the device, transfers included; 0 if it
    loses.

    The device computes while arrays move. For AᵀA and AAᵀ the host computes half, and one operand
    is moved.
    """
    m, k, n = shape
    dtypes, itemsize = (name_of(a.dtype), name_of(b.dtype)), np.result_type(a, b).itemsize
    wide, products = is_wide(*dtypes), real_products(*dtypes)
    result = m * n * itemsize
    operands = a.size + (0 if is_transpose(a, b) else b.size)
    moved = operands * itemsize + result  # all go as the result's type
    here = _here(a, b, m * n * k, known)
    there = moved / known.staging + known.latency
    if here <= there * SAFETY:
        return 0.0
    ours, _ = known.times(scheme, a.shape, b.shape, wide, 0, products)
    return max(here - max(there, ours) * SAFETY, 0.0)


def _here(a: Array, b: Array, size: int, known: Figures) -> float:
    """Return the seconds of NumPy's product. size: m · n · k, for a whole stack."""
    dtypes = name_of(a.dtype), name_of(b.dtype)
    products = real_products(*dtypes)
    half = products == 1 and is_transpose(a, b)
    return 2 * size * products * (2 if is_wide(*dtypes) else 1) / known.host / (2 if half else 1)


def is_transpose(a: Array, b: Array) -> bool:
    """Return whether B is the transpose of A, for which NumPy calls BLAS's `syrk`."""
    if a.ndim != 2 or a.shape != b.shape[::-1] or a.itemsize not in a.strides:
        return False
    same: bool = a.T.__array_interface__ == b.__array_interface__
    return same


def native_pays(a: Array, b: Array, known: Figures) -> bool:
    """Return whether a product of float64 arrays takes longer on the host than on the device.

    The device makes it in its own FP64, from arrays that were moved there, and sends it back.
    """
    size = math.prod(result_shape(a, b))
    products = real_products(name_of(a.dtype), name_of(b.dtype))
    here = _here(a, b, size * a.shape[-1], known)
    _, native = known.times("crt", a.shape, b.shape, True, 0, products)
    back = size * np.result_type(a, b).itemsize / known.staging
    return bool(native + back < here)


class Start:
    """Decides when a program begins to use a GPU: once the lost gain equals the time of starting
    it.

    Whatever products follow, they then take at most twice as long as with an optimal start; longer
    if CUDA's files come from the disk.
    """

    def __init__(self) -> None:
        self._missed = 0.0

    def pays(self, saved: float) -> bool:
        """Whether to start the GPU, for a product that would gain this many seconds."""
        self._missed += saved
        return saved > 0.0 and self._missed > STARTING


start = Start()  # of this process
