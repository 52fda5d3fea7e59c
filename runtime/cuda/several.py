"""A large product of one GPU's arrays, divided among the GPUs of the machine.

Each takes rows of A and C, and all of B, by copies from device to device; the last rows stay where
they are. CuPy's own distributed arrays do not serve: they make products by cuBLAS, want operands
that were distributed before, and NCCL. Nothing here waits for a device.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from mixpert_py.runtime.call import Made
from mixpert_py.runtime.cuda import backend as cuda_backend
from mixpert_py.runtime.cuda import device, limited, product
from mixpert_py.runtime.cuda.parts import PANEL
from mixpert_py.runtime.tracing.trace import Reason

# m·n·k over the elements that are copied, from which p devices are quicker than one. Emulated
# products run at 250e12 multiplications and additions, copies at 400e9 bytes a second, of four an
# element: (1 − 1/p) 2mnk / 250e12 > 4 (1 − 1/p) (p kn + mk + mn) / 400e9.
THICKNESS = 1250

WHOLE = ("left", "right", "addend", "guarantee", "certificate")  # what asks for one device


def make(
    a: Any,
    b: Any,
    name: str,
    block: int | None = None,
    *,
    devices: str | None,
    limit: int | None,
    out: Any = None,
    **asked: Any,
) -> Made | Reason:
    """As `limited.make`, of CuPy arrays of the current device; on all devices like it where
    `devices` is "all" and that is quicker. limit: of each device, copies included.
    """
    numbers: tuple[int, ...] = ()
    if devices == "all" and a.ndim == b.ndim == 2 and not any(map(asked.get, WHOLE)):
        numbers = _like(a.data.device_id)
    xp = cuda_backend.cuda_kernels().xp
    is_divided = pays(a.shape[0], a.shape[-1], b.shape[-1], len(numbers))
    if is_divided and not cuda_backend.is_capturing(xp, xp.cuda.get_current_stream().ptr):
        made = product.attempt(
            a, name, lambda: _divided(xp, a, b, out, numbers, name, block, limit, asked)
        )
        if made not in (Reason.MEMORY, Reason.WORKSPACE):  # which this device alone may have
            return made
    return limited.make(a, b, name, block, limit=limit, out=out, **asked)


def pays(m: int, k: int, n: int, count: int) -> bool:
    """Whether A (m, k) times B (k, n) is quicker on so many devices than on the first of them."""
    return count > 1 and m * k * n > THICKNESS * (count * k * n + m * k + m * n)


def _divided(
    xp: Any,
    a: Any,
    b: Any,
    out: Any,
    numbers: tuple[int, ...],
    name: str,
    block: int | None,
    limit: int | None,
    asked: dict[str, Any],
) -> Made | Reason:
    """As many rows on each device, the rest on the current one, which is the last of `numbers`."""
    height = -(-a.shape[0] // len(numbers) // PANEL) * PANEL
    dtype = np.result_type(a.dtype, b.dtype)
    is_apart = out is not None and (
        not out.flags.c_contiguous or cuda_backend.overlaps(xp, out, a, b)
    )
    if limit is not None:
        limit -= max(_copies(a, b, height), _copies_here(a, b, out if is_apart else None))
        if limit < 0:
            return Reason.WORKSPACE
    value = xp.empty((a.shape[0], b.shape[1]), dtype) if out is None or is_apart else out
    shares = [slice(at * height, (at + 1) * height) for at in range(len(numbers) - 1)]
    shares.append(slice(len(shares) * height, None))
    lefts, right = [_dense(xp, a[rows]) for rows in shares], _dense(xp, b)
    here = xp.cuda.get_current_stream()
    begin = here.record()
    made, ends = [], []

    def multiplied(x: Any, y: Any, **where: Any) -> Made | Reason:
        return limited.make(x, y, name, block, limit=limit, **where, **asked)

    try:
        for number, rows, left in zip(numbers[:-1], shares, lefts, strict=False):
            with xp.cuda.Device(number), _stream(number) as stream:
                stream.wait_event(begin)
                try:
                    made.append(_elsewhere(xp, stream, left, right, value[rows], multiplied))
                finally:
                    ends.append(stream.record())
        made.append(multiplied(lefts[-1], right, out=value[shares[-1]]))
    finally:
        for end in ends:  # whatever has happened: what others read or write is not free before
            here.wait_event(end)
    for one in made:
        if isinstance(one, Reason):
            return one
    if is_apart:
        out[...] = value
        value = out
    shared = [one.outliers for one in made if isinstance(one, Made)]

    def outliers() -> float:
        here.synchronize()  # flags of other devices are read on streams that wait for nobody
        return max(share() for share in shared)

    return Made(value, name, outliers)


def _elsewhere(
    xp: Any,
    stream: Any,
    left: Any,
    right: Any,
    target: Any,
    multiplied: Callable[..., Made | Reason],
) -> Made | Reason:
    """The product on the current device and stream, copied to a target on another device."""
    made = multiplied(_copied(xp, left, stream), _copied(xp, right, stream))
    if isinstance(made, Made):
        _copy(made.value, target, stream)
    return made


@cache
def _like(home: int) -> tuple[int, ...]:
    """The devices of this one's name, this one the last."""
    name = device.find(home)
    others = (number for number in range(device.count()) if number != home)
    same = [n for n in others if getattr(device.find(n), "name", "") == getattr(name, "name", None)]
    return (*same, home)


@cache
def _stream(number: int) -> Any:
    """One for ever: memory that it has used is given to itself alone, in order."""
    return cuda_backend.cuda_kernels().xp.cuda.Stream(non_blocking=True)


def _copies(a: Any, b: Any, height: int) -> int:
    """Bytes of B, and of so many rows of A and C: what another device takes."""
    wide = np.result_type(a.dtype, b.dtype).itemsize
    rows = a.shape[1] * a.dtype.itemsize + b.shape[1] * wide
    return int(b.nbytes + height * rows)


def _copies_here(a: Any, b: Any, out: Any) -> int:
    """Bytes that the operands' own device takes. out: where the result goes when it is whole."""
    copied = 0 if a.flags.c_contiguous else a.nbytes
    copied += 0 if b.flags.c_contiguous or b.flags.f_contiguous else b.nbytes
    return int(copied + (0 if out is None else out.nbytes))


def _dense(xp: Any, x: Any) -> Any:
    """x itself if it is one piece of memory, else a copy."""
    return x if x.flags.c_contiguous or x.flags.f_contiguous else xp.ascontiguousarray(x)


def _copied(xp: Any, x: Any, stream: Any) -> Any:
    """An array of another device on the current one, rows and columns in the same order."""
    if not x.flags.c_contiguous:
        return _copied(xp, x.T, stream).T
    target = xp.empty(x.shape, x.dtype)
    _copy(x, target, stream)
    return target


def _copy(source: Any, target: Any, stream: Any) -> None:
    target.data.copy_from_device_async(source.data, source.nbytes, stream)
