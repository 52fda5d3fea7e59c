"""The two backends, as the sweep over random products calls them: through the public path."""

from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Literal

import numpy as np

import mixpert_py
from mixpert_py.bench import machine
from mixpert_py.bench.arrays import Array
from mixpert_py.errors import MixPertError
from mixpert_py.runtime.certificates.certificate import Certificate
from mixpert_py.runtime.context import current, use
from mixpert_py.runtime.packed_array import pack
from mixpert_py.runtime.reference import reference, residues
from mixpert_py.runtime.request import result_shape
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes import emulation_of, get
from mixpert_py.runtime.splitter import Residues
from mixpert_py.runtime.tracing.trace import Trace
from tests.soak.random_products import slices as product_slices
from tests.soak.random_products.case import Way
from tests.soak.random_products.slices import Slices


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """A product, the scheme that made it ("native" for none) with the reason, and its bound."""

    value: Array
    ran: str
    reason: str
    certificate: Certificate | None


@dataclass(frozen=True, slots=True)
class Backend:
    """`name` as `matmul` takes it; xp: the arrays that it multiplies."""

    name: Literal["cuda", "reference"]
    xp: ModuleType

    def product(self, a: Array, b: Array, scheme: str, block: int | None, way: Way = "") -> Product:
        """a @ b under a scheme, with its certificate."""
        trace, out = Trace(), None
        left, right = _packed(a, b, scheme, way)
        if way == "out":
            out = self.xp.empty(result_shape(a, b), np.result_type(a.dtype, b.dtype))
        # An operand that was packed names its scheme itself.
        chosen = None if "packed" in way else scheme
        with use(replace(current(), trace=trace)):
            value, certificate = mixpert_py.matmul(
                *(left, right),
                scheme=chosen,
                block=block,
                backend=self.name,
                out=out,
                return_certificate=True,
            )
        if out is not None and value is not out:
            raise MixPertError("the result is not in `out`")
        (site,) = trace.sites.values()
        (ran,) = site.schemes
        return Product(value, ran, ", ".join(site.reasons), certificate)

    def value(self, a: Array, b: Array, scheme: str, way: Way = "") -> Array:
        """a @ b under a scheme without certificate or trace, as fast as a program's own product.

        Raises MixPertError where a kernel did not compile: the product is a native one then.
        """
        left, right = _packed(a, b, scheme, way)
        value = mixpert_py.matmul(left, right, scheme=scheme, backend=self.name)
        if self.name == "cuda":
            from mixpert_py.runtime.gpu.multiply import refusals

            for why in refusals().values():
                raise MixPertError(why)
        return value

    def steps(self, a: Array, b: Array, scheme: str, block: int | None) -> Scheme | None:
        """The emulation that a scheme's name stands for; None where it is none."""
        entry = get(scheme)
        if isinstance(entry, Scheme):
            return entry.with_block(block)
        if scheme != "faithful":
            return None
        return emulation_of(scheme)

    def rounding(self, scheme: Scheme, k: int, unit: float) -> dict[tuple[int, int], float]:
        """The rounding of every term's sums, which are of `unit` where the terms are integers."""
        if self.name == "reference":
            return scheme.rounding(k, unit)
        from mixpert_py.runtime.gpu.certificate import rounding

        return rounding(scheme, k, unit, self.xp.cuda.Device().id)

    def slices(self, a: Array, b: Array, scheme: Scheme) -> tuple[Slices, Slices]:
        """The slices of two matrices, none of whose dimensions is 0."""
        k, xp = a.shape[1], self.xp
        dtype = np.result_type(a, b)
        if isinstance(scheme.left, Residues) or isinstance(scheme.right, Residues):
            # A GPU's residues are the reference backend's, bit for bit.
            x, y = (one if xp is np else one.get() for one in (a, b))
            pair = residues.pack(x.astype(dtype), y.astype(dtype), scheme)
            return (
                product_slices.of_residues(xp, x, pair.left),
                product_slices.of_residues(xp, y.T, pair.right),
            )
        if self.name == "reference":
            block = scheme.lengths(k)[1]
            with np.errstate(all="ignore"):
                left, right = reference.pack(a.astype(dtype), b.astype(dtype), scheme, "loss")
            return (
                product_slices.of_reference(left, scheme.left, k, block, False),
                product_slices.of_reference(right, scheme.right, k, block, True),
            )
        from mixpert_py.runtime.gpu.slices import cuda_kernels
        from mixpert_py.runtime.packing import by_columns, by_rows

        stream: Any = xp.cuda.get_current_stream().ptr
        left, right = cuda_kernels().pack(
            by_rows(a), by_columns(b), scheme, rule="loss", measure=True, stream=stream
        )
        return product_slices.of_device(xp, left, k), product_slices.of_device(xp, right, k)


def _packed(a: Array, b: Array, scheme: str, way: Way) -> tuple[Any, Any]:
    """The operands; the one that is to be packed beforehand is packed."""
    if way == "left packed":
        return pack(a, scheme, "left"), b
    return a, pack(b, scheme) if way == "right packed" else b


def backend(name: str) -> Backend:
    """The backend of that name. Raises DeviceError for "cuda" where there is no GPU."""
    if name == "reference":
        return Backend("reference", np)
    return Backend("cuda", machine.gpu())
