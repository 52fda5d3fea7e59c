"""How a product on a GPU is divided: among devices, to keep to a workspace limit, and in memory.

`devices_for` says which devices make it. `fit` takes the workspace limit into account for whole
arrays (casts to float64, the parts of complex operands), `parts_of` divides what is packed.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from mixpert_py.runtime.arrays import GpuArray
from mixpert_py.runtime.gpu import device
from mixpert_py.runtime.gpu.stacks import Batch, batches
from mixpert_py.runtime.gpu.workspace import array_bytes
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.request import Request

PANEL = 128  # rows or columns: one matrix is divided at multiples of it
ONE = batches((), (), ())  # one launch, operands as they are

# m·n·k over the elements that are copied, from which p devices are quicker than one. Emulated
# products run at 250e12 multiplications and additions, copies at 400e9 bytes a second, of four an
# element: (1 − 1/p) 2mnk / 250e12 > 4 (1 − 1/p) (p kn + mk + mn) / 400e9.
THICKNESS = 1250


class Half(NamedTuple):
    """A product of half of A's rows, or of B's columns, and its place in the result."""

    a: GpuArray
    b: GpuArray
    place: tuple[Any, ...]


def devices_for(request: Request) -> tuple[int, ...]:
    """The numbers of the devices that make the product, that of the operands the last.

    More than one only for matrices for which the request names "all" devices, where that is
    quicker, and nothing is asked for that only one device can answer.
    """
    a, b = request.a, request.b
    here = a.data.device_id
    needs_one = request.left or request.right or request.addend or request.guarantee
    if request.devices != "all" or not a.ndim == b.ndim == 2 or needs_one or request.certificate:
        return (here,)
    numbers = _alike(here)
    (m, k), n = a.shape, b.shape[-1]
    return numbers if is_profitable(m, k, n, len(numbers)) else (here,)


def is_profitable(m: int, k: int, n: int, count: int) -> bool:
    """Whether A (m, k) times B (k, n) is quicker on so many devices than on the first of them."""
    return count > 1 and m * k * n > THICKNESS * (count * k * n + m * k + m * n)


@cache
def _alike(home: int) -> tuple[int, ...]:
    """The devices of this one's name, this one the last."""
    name = getattr(device.find(home), "name", None)
    others = (number for number in range(device.count()) if number != home)
    return (*(n for n in others if getattr(device.find(n), "name", "") == name), home)


def fit(request: Request) -> Request | list[Half] | Reason:
    """The request with what is left of its workspace limit for packed operands; or halves of it.

    Products of complex arrays, and by float64, take whole arrays besides: these are halved until
    they leave room. What a guarantee and a certificate look at is not counted. Returns
    Reason.WORKSPACE where the product cannot be divided.
    """
    limit = request.workspace_limit
    if limit is None:
        return request
    a, b, left, right = request.a, request.b, request.left, request.right
    taken = array_bytes(request.scheme, a, b, request.out, left, right)
    halves = list(_halves(a, b))
    room = limit if request.scheme == "float64" or not halves else limit // 2
    if taken == 0 or taken <= room:
        return request._replace(workspace_limit=limit - taken)
    if not halves or left or right or request.guarantee or request.certificate:
        return Reason.WORKSPACE
    return halves


def _halves(a: GpuArray, b: GpuArray) -> Iterator[Half]:
    """Halves of the rows of A, or of the columns of B; none where the product is small as it is."""
    m, n = a.shape[-2] if a.ndim > 1 else 1, b.shape[-1] if b.ndim > 1 else 1
    if max(m, n) <= PANEL:
        return
    for part in two(max(m, n), PANEL):
        if m < n:
            yield Half(a, b[..., part], (..., part))
        else:
            place = (..., part, slice(None)) if b.ndim > 1 else (..., part)
            yield Half(a[..., part, :], b, place)


def parts_of(
    a: GpuArray, b: GpuArray, c: GpuArray, batch: tuple[Batch, ...]
) -> Iterator[tuple[Any, Any, Any, tuple[Batch, ...]]]:
    """A·B into c, (m, n) or (count, m, n), as products of less: (a, b, c, batch) of each.

    All are views. There are none where the product is small as it is.
    """
    if len(batch) > 1:
        for some in batch:
            rows = _some(a, some.a, some.count, some.shares_a)
            columns = _some(b, some.b, some.count, some.shares_b)
            yield rows, columns, c[some.c : some.c + some.count], ONE
        return
    count, m, n = c.shape if c.ndim == 3 else (1, *c.shape)
    if count > 1:
        for part in two(count, 1):
            yield _matrices(a, part), _matrices(b, part), c[part], ONE
    elif max(m, n) > PANEL:
        for part in two(max(m, n), PANEL):
            if m >= n:
                yield a[..., part, :], b, c[..., part, :], ONE
            else:
                yield a, b[..., part], c[..., part], ONE


def two(length: int, multiple: int) -> tuple[slice, slice]:
    """Halves of a length, the first a multiple."""
    middle = -(-length // 2 // multiple) * multiple
    return slice(0, middle), slice(middle, length)


def _matrices(x: GpuArray, part: slice) -> Any:
    """Some matrices of a stack; all of one that is shared."""
    return x if x.ndim == 2 or len(x) == 1 else x[part]


def _some(x: GpuArray, start: int, count: int, shared: bool) -> Any:
    return x if x.ndim == 2 else x[start : start + (1 if shared else count)]
