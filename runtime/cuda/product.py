"""A product on the current GPU under a scheme's name, with all that was asked for."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from mixpert_py.errors import DeviceError
from mixpert_py.runtime import complex_product
from mixpert_py.runtime.call import Addend, Made, no_outliers
from mixpert_py.runtime.certificates.guarantee import componentwise
from mixpert_py.runtime.complex_product import is_complex, parts, widened
from mixpert_py.runtime.cuda import backend as cuda_backend
from mixpert_py.runtime.cuda import tiny
from mixpert_py.runtime.cuda.backend import Kernels, Product, WorkspaceError
from mixpert_py.runtime.cuda.stacks import as_matmul, as_matrices, matrices
from mixpert_py.runtime.emulation.outliers import OutlierRule
from mixpert_py.runtime.packing import DevicePacked, by_columns, by_rows
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes import emulation_of
from mixpert_py.runtime.tracing.trace import Reason

T = TypeVar("T")

NO_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY

# (device, scheme) → what was said when it did not compile: asking again would take as long.
_refused: dict[tuple[int, str], str] = {}


def make(
    a: Any,
    b: Any,
    name: str,
    block: int | None = None,
    *,
    out: Any = None,
    left: "Ready | None" = None,
    right: "Ready | None" = None,
    addend: Addend | None = None,
    guarantee: str | None = None,
    certificate: bool = False,
    traced: bool = False,
    limit: int | None = None,
) -> Made | Reason:
    """A·B under scheme `name`, or why the device cannot make it.

    a, b: CuPy arrays as np.matmul takes them, float32, float64 or complex, one dimension or more.
    out: an array of the result's shape and type. left, right: operands that `pack_one` packed.
    addend: the result is the sum with it where `Made.added` says so; there is no `out` then, a and
    b are real, have two dimensions or more, and nothing is empty. traced: the share of outliers can
    be asked for; a certificate waits for the device, and a guarantee that is measured. limit: bytes
    that may be taken of the device by packed operands, and while they are multiplied, see
    `workspace`.
    """
    kernels = cuda_backend.cuda_kernels()
    ready = left or right
    if a.dtype != b.dtype or guarantee is not None or certificate:
        left = right = None  # packed for products of one type, under one scheme, and not measured
    rows = a[np.newaxis, :] if a.ndim == 1 else a
    columns = b[:, np.newaxis] if b.ndim == 1 else b
    if name == "float64":
        return attempt(a, name, lambda: Made(_in_float64(kernels.xp, a, b, out), name))
    scheme = emulation_of(name, block) if ready is None else ready.scheme
    if is_complex(a, b):

        def real_product(x: Any, y: Any) -> Made | Reason:
            return make(
                *(x, y, name, block),
                left=left,
                right=right,
                guarantee=guarantee,
                certificate=certificate,
                traced=traced,
                limit=limit,
            )

        where = None if out is None else as_matrices(out, a, b)
        made = _of_parts(kernels, scheme, real_product, rows, columns, left, right, where)
        if isinstance(made, Reason):
            return made
        return made.into(as_matmul(made.value, a, b) if out is None else out)
    plain = ready is None and guarantee is None and not certificate
    if name == "faithful" and plain and tiny.suits(rows, columns):
        where = None if out is None else as_matrices(out, a, b)
        value = attempt(a, name, lambda: tiny.multiply(kernels, rows, columns, where, limit=limit))
        if isinstance(value, Reason):
            return value
        return Made(as_matmul(value, a, b) if out is None else out, name)
    rule: OutlierRule = "loss"
    if guarantee is not None:
        found = attempt(a, scheme.name, lambda: componentwise(kernels.xp, rows, columns, name))
        if found is None or isinstance(found, Reason):
            return found or Reason.SPREAD
        scheme, name = emulation_of(found), found
        rule = "none" if scheme.exact else "loss"

    def multiplied(addend: Addend | None) -> Product | Reason:
        return attempt(
            a,
            scheme.name,
            lambda: cuda_backend.multiply(
                kernels,
                rows,
                columns,
                scheme,
                out=None if out is None else as_matrices(out, a, b),
                left=left and left.packed,
                right=right and right.packed,
                addend=addend,
                rule=rule,
                measure=certificate,
                limit=limit,
            ),
        )

    product = multiplied(addend)
    if product in (Reason.MEMORY, Reason.WORKSPACE) and addend is not None:
        product = multiplied(None)
    if isinstance(product, Reason):
        return product
    return Made(
        as_matmul(product.value, a, b) if out is None else out,
        name,
        partial(_outliers, product) if traced and not _captures(kernels.xp) else no_outliers,
        _certificate(product, rows, columns) if certificate else None,
        product.added,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Ready:
    """An operand packed on its own, and the emulation that it is packed for.

    parts: what is packed of a complex one.
    """

    scheme: Scheme
    packed: DevicePacked
    parts: Any = None


def pack_one(x: Any, scheme: Scheme, side: str) -> Ready | Reason:
    """One operand (…, m, k) or (…, k, n), packed for a scheme on the current stream; or why not."""
    kernels = cuda_backend.cuda_kernels()
    stream = kernels.xp.cuda.get_current_stream().ptr

    def packed() -> Ready:
        split = parts(kernels.complex, x) if is_complex(x) else None
        held = x if split is None else split
        operand = (by_rows if side == "left" else by_columns)(matrices(held))
        made = kernels.pack_one(operand, scheme, side, held.dtype.name, stream=stream)
        return Ready(scheme, made, split)

    return attempt(x, scheme.name, packed)


def attempt(x: Any, name: str, work: Callable[[], T]) -> T | Reason:
    """What `work` returns, or why the device that x is on cannot do it under scheme `name`."""
    xp, device = cuda_backend.cuda_kernels().xp, x.data.device_id
    if (device, name) in _refused:
        return Reason.KERNEL
    try:
        return work()
    except WorkspaceError:
        return Reason.WORKSPACE
    except xp.cuda.memory.OutOfMemoryError:
        pass
    except (DeviceError, ImportError, xp.cuda.driver.CUDADriverError) as error:
        if not _lacks_memory(error):
            _refused[device, name] = str(error).partition("\n")[0]
            return Reason.KERNEL
    xp.get_default_memory_pool().free_all_blocks()  # whoever multiplies now may have another pool
    return Reason.MEMORY


def _lacks_memory(error: Exception) -> bool:
    """Whether the driver had no room for a kernel's code, or for what it runs with: another time it
    may have. CuPy's pool keeps what it has freed.
    """
    return NO_MEMORY in (getattr(one, "status", None) for one in (error, error.__cause__))


def refusals() -> dict[tuple[int, str], str]:
    """(device, scheme) → why its kernel did not compile, of those that were tried."""
    return dict(_refused)


def _of_parts(
    kernels: Kernels,
    scheme: Scheme,
    product: Callable[[Any, Any], Made | Reason],
    a: Any,
    b: Any,
    left: Ready | None,
    right: Ready | None,
    out: Any,
) -> Made | Reason:
    """The product of stacks of matrices, of which one is complex, by one of real ones."""
    used: list[Any] = []

    def kept(x: Any, y: Any) -> Made | Reason:
        made = product(x, y)
        used.append(made)
        return made

    def multiplied() -> Made | Reason:
        x, y = left and left.parts, right and right.parts
        return complex_product.multiply(kernels.complex, a, b, kept, left=x, right=y, out=out)

    made = attempt(a, scheme.name, multiplied)
    if isinstance(made, Made) and _captures(kernels.xp):
        cuda_backend.keep_for_graph(made.value, used)  # and, with it, what that has used
    return made


def _in_float64(xp: Any, a: Any, b: Any, out: Any) -> Any:
    left, right = widened(a), widened(b)
    product = xp.matmul(left, right)
    result = product.astype(np.result_type(a.dtype, b.dtype), copy=False)
    if out is not None:
        out[...] = result
        result = out
    if _captures(xp):
        cuda_backend.keep_for_graph(result, (left, right, product))
    return result


def _captures(xp: Any) -> bool:
    return cuda_backend.is_capturing(xp, xp.cuda.get_current_stream().ptr)


def _outliers(product: Product) -> float:
    """The share of all blocks that left the slices. Waits for the device, current or not."""
    flagged = total = 0
    with cuda_backend.cuda_kernels().xp.cuda.Device(product.value.data.device_id):
        guard = product.guard
        decided = product if guard is None or not guard.flag() else guard
        for packed in (decided.left, decided.right):
            if packed is not None:
                one = packed.layout.blocks == 1
                marks = packed.view("flags") & 2 if one else packed.view("outliers")
                flagged += int((marks != 0).sum())
                total += marks.size
    return flagged / total if total else 0.0


def _certificate(product: Product, a: Any, b: Any) -> Any:
    from mixpert_py.runtime.cuda.certificate import certificate

    return certificate(product, a, b)
