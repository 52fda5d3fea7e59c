"""The certificate of a product made on the GPU, from the norms that packing measured there.

Packing residues measures none: of these, norms are computed here, and scales say what is lost.
"""

from typing import Any

import numpy as np

from mixpert_py.errors import DeviceError
from mixpert_py.runtime.arrays import GpuArray
from mixpert_py.runtime.certificates.certificate import (
    Certificate,
    certify,
    joined,
    nothing_lost,
    raised,
    stacked,
)
from mixpert_py.runtime.certificates.tensor_cores import Rounding, certify_on_cores
from mixpert_py.runtime.certificates.tensor_cores import rounding as rounding_on_cores
from mixpert_py.runtime.gpu.device import Absent, find
from mixpert_py.runtime.gpu.slices import SliceProduct
from mixpert_py.runtime.gpu.stacks import batches, matrices, stack_sizes
from mixpert_py.runtime.kernels import HOPPER
from mixpert_py.runtime.kernels.abi import (
    LARGE,
    NONFINITE,
    OUTLIER,
    SIGNIFICAND_BITS,
    SIGNIFICAND_MASK,
)
from mixpert_py.runtime.model import STANDS_IN, known_devices
from mixpert_py.runtime.model.numerics import Accumulation
from mixpert_py.runtime.packed import Array, Measured
from mixpert_py.runtime.scheme import UNIT32, UNIT64, Scheme
from mixpert_py.runtime.schemes.integers import Integers
from mixpert_py.runtime.splitter import Residues

COARSEST = "a100"  # of the chips that the kernels run on, as far as is known


def certificate(product: SliceProduct, a: GpuArray, b: GpuArray) -> Certificate:
    """The bound for C = A·B, a: (…, m, k), b: (…, k, n) CuPy arrays. Waits for the device.

    What left the slices, and what had overflowed of large rows and columns, was multiplied by a
    plain chain of k additions: within k times the unit of C's precision, times the 2-norms of what
    was multiplied.
    """
    k = a.shape[-1]
    stack, (m, n) = product.value.shape[:-2], product.value.shape[-2:]
    if product.left is None or product.right is None:
        return stacked([nothing_lost(m, n)] * int(np.prod(stack, dtype=int)), stack, m, n)
    dtype = np.dtype(product.value.dtype)
    unit = UNIT32 if dtype.itemsize == 4 else UNIT64
    bounds = None
    if not product.scheme.exact:
        bounds = rounding(product.scheme, k, unit, product.value.data.device_id)
    left, right = _Side(product.left, matrices(a), -1), _Side(product.right, matrices(b), -2)
    found = []
    for some in batches(stack_sizes(a), stack_sizes(b), stack):
        for i in range(some.count):
            one = left.of(some.a + (0 if some.shares_a else i))
            other = right.of(some.b + (0 if some.shares_b else i))
            packed = one.measured, other.measured
            if bounds is None:
                bound = certify(product.scheme, k, *packed, dtype)
            else:
                units = one.units, other.units
                bound = certify_on_cores(product.scheme, k, packed, units, dtype, bounds)
            for rows, columns, x, y in (
                (one.rows, np.arange(n), one.outliers, other.norm),
                (np.arange(m), other.rows, one.norm, other.outliers),
                (one.large, np.arange(n), one.norm[one.large], other.norm),
                (np.arange(m), other.large, one.norm, other.norm[other.large]),
            ):
                if len(rows) and len(columns):
                    chain = nothing_lost(len(x), len(y))
                    chain.left[:, 0], chain.right[0] = raised(k * unit * x, x), raised(y, y)
                    bound = joined(bound, rows, columns, chain)
            found.append(bound)
    return stacked(found, stack, m, n)


def rounding(scheme: Scheme, k: int, unit: float, device: int) -> Rounding:
    """The rounding of every term's sums in the kernels of a device; unit: of C's precision."""
    if scheme.exact:
        return scheme.rounding(k, unit)
    found = find(device)
    hopper = not isinstance(found, Absent) and found.capability == HOPPER
    names = () if isinstance(found, Absent) else (found.name,)
    how = _accumulation(scheme, *names, STANDS_IN if hopper else COARSEST)
    return rounding_on_cores(scheme, k, how, hopper=hopper)


def _accumulation(scheme: Scheme, *devices: str) -> Accumulation:
    """How the first of these devices that is known adds products of the scheme's element."""
    for device in devices:
        try:
            how = getattr(known_devices.find(device).accumulation, scheme.element.name)
        except DeviceError:
            continue
        if isinstance(how, Accumulation):
            return how
    raise DeviceError(f"scheme {scheme.name!r}: no device model says how tensor cores add")


class _Matrix:
    """What is known of one matrix of an operand: norms of its rows (or columns).

    rows: those with outliers; outliers: their norms, whole; norm: of every row, outliers included;
    large: rows that are. units: of rows, where a row has one.
    """

    def __init__(
        self, measured: Measured, units: Array, rows: Array, outliers: Array, large: Array
    ) -> None:
        self.measured, self.units = measured, units
        self.rows, self.outliers, self.large = rows, outliers, large
        self.norm = measured.norm.copy()
        self.norm[rows] += outliers


class _Side:
    """One packed operand, read back once."""

    def __init__(self, packed: Any, x: GpuArray, axis: int) -> None:
        self.scales = packed.view("scales").get()
        self.flags = packed.view("flags").get()
        self.x = x if x.ndim == 3 else x[np.newaxis]
        self.axis = axis
        if isinstance(packed.splitter, Residues):
            self.norms = self._of_integers(isinstance(packed.splitter, Integers))
        else:
            self.norms = packed.view("norms").get()

    def _of_integers(self, are_exact: bool) -> Array:
        """Norms as of packed ones, where an entry x was rounded to an integer, x · 2^s.

        What that lost is at most √k / 2 · 2^-s of a row, and what is left no more than both.
        """
        x = self.x.astype(np.float64)
        largest = abs(x).max(axis=self.axis, keepdims=True)
        ratios = x / (largest + (largest == 0))
        relative = (ratios * ratios).sum(axis=self.axis).get() ** 0.5
        with np.errstate(over="ignore", invalid="ignore"):
            norm = relative * largest.get().squeeze(self.axis)
        norm[self.flags & NONFINITE != 0] = 0  # they are zeros
        lost = np.ldexp(x.shape[self.axis] ** 0.5 / 2, -self.scales[:, 0])
        lost[(norm == 0) | are_exact] = 0
        return np.stack([norm, lost, norm + lost], axis=1)

    def of(self, index: int) -> _Matrix:
        norms, flags = self.norms[index], self.flags[index]
        rows, large = np.flatnonzero(flags & OUTLIER), np.flatnonzero(flags == LARGE)
        measured = Measured(norms[0], norms[2:], norms[1])
        units = self._units(index)
        if not len(rows):
            return _Matrix(measured, units, rows, np.zeros(0), large)
        x = self.x[index].take(rows, axis=-1 - (self.axis == -1)).get().astype(np.float64)
        largest = np.abs(x).max(axis=self.axis, keepdims=True)
        whole = np.linalg.norm(x / largest, axis=self.axis) * largest.squeeze(self.axis)
        return _Matrix(measured, units, rows, whole, large)

    def _units(self, index: int) -> Array:
        scales = self.scales[index, 0]
        significands = (scales & SIGNIFICAND_MASK).astype(np.float64)
        units: Array = np.ldexp(significands, scales >> SIGNIFICAND_BITS)
        return units
