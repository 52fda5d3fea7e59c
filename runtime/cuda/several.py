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
from mixpert_py.runtime.cuda import device, limited
from mixpert_py.runtime.cuda.parts import PANEL
from mixpert_py.runtime.trace import Reason

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
    if not pays(a.shape[0], a.shape[-1], b.shape[-1], len(numbers)):
        return limited.make(a, b, name, block, limit=limit, out=out, **asked)
    xp = cuda_backend.cuda_kernels().xp
    height = -(-a.shape[0] // len(numbers) // PANEL) * PANEL
    if limit is not None:
        limit -= _copies(a, b, height)
    if (limit or 0) < 0 or cuda_backend.is_capturing(xp, xp.cuda.get_current_stream().ptr):
        return limited.make(a, b, name, block, limit=limit, out=out, **asked)
    return _divided(xp, a, b, out, numbers, height, name, block, {"limit": limit, **asked})


def pays(m: int, k: int, n: int, count: int) -> bool:
    """Whether A (m, k) times B (k, n) is quicker on so many devices than on the first of them."""
    return count > 1 and m * k * n > THICKNESS * (count * k * n + m * k + m * n)


def _divided(
    xp: Any,
    a: Any,
    b: Any,
    out: Any,
    numbers: tuple[int, ...],
    height: int,
    name: str,
    block: int | None,
    asked: dict[str, Any],
) -> Made | Reason:
    """`height` rows on each device, the rest on the current one, which is the last of `numbers`."""
    m, n = a.shape[0], b.shape[1]
    right = _dense(xp, b)
    result = out
    if out is None or not out.flags.c_contiguous or _overlaps(xp, out, a, b):
        result = xp.empty((m, n), np.result_type(a.dtype, b.dtype))
    here = xp.cuda.get_current_stream()
    parts, ends, shares = [], [], []
    reason: Reason | None = None
    for at, number in enumerate(numbers):
        rows = slice(at * height, m if number == numbers[-1] else (at + 1) * height)
        parts.append((number, rows, _dense(xp, a[rows])))
    begin = here.record()
    for number, rows, left in parts:
        if number == numbers[-1]:
            made = limited.make(left, right, name, block, out=result[rows], **asked)
        else:
            with xp.cuda.Device(number), _stream(number) as stream:
                stream.wait_event(begin)
                moved = _copied(xp, left, stream), _copied(xp, right, stream)
                made = limited.make(*moved, name, block, **asked)
                if isinstance(made, Made):
                    _copy(made.value, result[rows], stream)
                ends.append(stream.record())
        if isinstance(made, Reason):
            reason = made
            break
        shares.append((number, made.outliers))
    for end in ends:
        here.wait_event(end)
    if reason is not None:
        return reason
    if out is not None and result is not out:
        out[...] = result
        result = out
    return Made(result, name, lambda: _largest(xp, shares))


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


def _largest(xp: Any, shares: list[tuple[int, Callable[[], float]]]) -> float:
    """Of the devices' shares of outliers."""
    largest = 0.0
    for number, share in shares:
        with xp.cuda.Device(number):
            largest = max(largest, share())
    return largest


def _copies(a: Any, b: Any, height: int) -> int:
    """Bytes of B, and of so many rows of A and C."""
    wide = np.result_type(a.dtype, b.dtype).itemsize
    rows = a.shape[1] * a.dtype.itemsize + b.shape[1] * wide
    return int(b.nbytes + height * rows)


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


def _overlaps(xp: Any, out: Any, a: Any, b: Any) -> bool:
    return bool(xp.may_share_memory(out, a) or xp.may_share_memory(out, b))
