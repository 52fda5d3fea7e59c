"""A product of slices on the GPU: pack, gemm and repair are enqueued on the caller's stream.

A large product is enqueued for two schemes, and the device decides between them: see `guard`.

Nothing here waits for the device, so a product can be captured in a CUDA graph.
"""

import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from mixpert_py.errors import DeviceError
from mixpert_py.runtime.arrays import GpuArray, name_of, shares_on_device
from mixpert_py.runtime.complex_product import PartFunctions
from mixpert_py.runtime.gpu.device import state_of
from mixpert_py.runtime.gpu.gemm import BEST, UNGATED
from mixpert_py.runtime.gpu.guard import MIRRORED, WORD, Guard, is_squared, wider_of
from mixpert_py.runtime.gpu.speculation import Watch
from mixpert_py.runtime.gpu.stacks import Batch, batches, launches, matrices, stack_sizes
from mixpert_py.runtime.kernels.recording import Recording, Stream, is_capturing
from mixpert_py.runtime.packing import Gate, by_columns, by_rows
from mixpert_py.runtime.packing.operand import DevicePacked, of_some
from mixpert_py.runtime.request import broadcast
from mixpert_py.runtime.scheme import Scheme

PANEL = 128  # rows or columns: one matrix is divided at multiples of it
ONE = batches((), (), ())  # one launch, operands as they are

DeviceOperand = Any  # as packing.pack gives it


@dataclass(frozen=True, slots=True)
class ProductSteps:
    """CuPy and the steps of a product; tests replace them by NumPy and the reference engine.

    complex: takes complex arrays apart and joins them, on a stream. tiny: see `tiny.multiply_tiny`.
    guard: see `guard.outlier_guard`.
    """

    xp: ModuleType
    pack: Callable[..., tuple[DeviceOperand, DeviceOperand]]
    pack_one: Callable[..., DeviceOperand]
    gemm: Callable[..., Any]
    repair: Callable[..., None]
    complex: Callable[[Stream], PartFunctions]
    tiny: Callable[..., None]
    guard: Callable[..., Any]


class Operands(NamedTuple):
    """a: (…, m, k), b: (…, k, n) CuPy arrays, float32 or float64, any strides; both complex
    for residues, see `gpu.multiply`; stacks broadcast, and are not copied. right: b as it was
    packed in advance, by the scheme of the product.
    """

    a: GpuArray
    b: GpuArray
    right: DeviceOperand | None = None


class SliceProduct(NamedTuple):
    """C (…, m, n) and its packed operands, left and right; both None if it was made in parts.

    guard: None if the product was enqueued for one scheme. If its word is not 0, C was made of the
    guard's operands, and left and right may have been overwritten.
    """

    value: GpuArray
    scheme: Scheme
    left: DeviceOperand | None
    right: DeviceOperand | None
    guard: Guard | None


# Both packed operands of a product, and its guard.
Enqueued = tuple[DeviceOperand | None, DeviceOperand | None, Guard | None]
IN_PARTS: Enqueued = None, None, None


def multiply(
    kernels: ProductSteps,
    operands: Operands,
    scheme: Scheme,
    *,
    out: GpuArray | None = None,
    stream: Stream | None = None,
    watch: Watch | None = None,
) -> SliceProduct:
    """C = A·B as the scheme computes it, on the current device and a stream, None for the current.

    out: an array of the result's shape and type, any strides; it may overlap the operands. watch:
    receives the records of a scheme of residues, on the current stream.

    If memory is short the product is made in parts. The result is the same, except that each part
    of a guarded product has its own decision. A large product is enqueued for the wider scheme as
    well, if the scheme has one whose kernels compile: see `guard`. Raises CuPy's OutOfMemoryError
    if the smallest parts do not fit, DeviceError if a kernel does not compile.
    """
    xp, (a, b, right) = kernels.xp, operands
    (m, k), n = a.shape[-2:], b.shape[-1]
    stacked = a.ndim > 2 or b.ndim > 2
    stack = broadcast(a.shape[:-2], b.shape[:-2]) if stacked else ()
    result: GpuArray
    if out is not None and _has_plain_rows(out) and not overlaps(xp, out, a, b):
        result = out
    else:
        result = xp.empty((*stack, m, n), np.result_type(a.dtype, b.dtype))
    if stream is None:
        stream = xp.cuda.get_current_stream().ptr
    used: list[Any] | None = [] if is_capturing(xp.cuda, stream) else None
    wider = wider_of(scheme, a, b) if state_of(result.data.device_id).has_wider else None
    how = _Shared(kernels, scheme, wider, stream, used, watch)
    known, is_whole = IN_PARTS, True
    if result.size and k == 0:
        result.fill(0)
    elif result.size:
        piece = Piece(a, b, result, ONE, right)
        if stacked:
            batch = batches(stack_sizes(a), stack_sizes(b), stack)
            piece = Piece(matrices(a), matrices(b), result.reshape(-1, m, n), batch, right)
        waiting = [piece]
        while waiting:
            piece, parts = waiting.pop(), None
            try:
                known = _pack_multiply_repair(how, piece)
                if not is_whole:  # free its memory: the next part may not fit beside it
                    known = IN_PARTS
            except xp.cuda.memory.OutOfMemoryError:
                parts = _parts(piece)
                if not parts:
                    raise
            except DeviceError:  # before anything was written to c
                if how.wider is None:
                    raise
                how, parts = how._replace(wider=None), [piece]
            waiting += reversed(parts or [])
            is_whole = is_whole and len(parts or []) < 2
        if how.wider is not wider:
            state_of(result.data.device_id).has_wider = False
    if result is not out and out is not None:
        out[...] = result
        if used is not None:
            used.append(result)
        result = out
    if used is not None:
        keep_for_graph(result, used)
    return SliceProduct(result, scheme, *known)


def keep_for_graph(result: GpuArray, used: object) -> None:
    """Keep what a product has used alive as long as its result, because replayed graphs use it
    again.
    """
    owner = result if result.base is None else result.base
    weakref.finalize(owner, lambda kept: None, used).atexit = False


class _Shared(NamedTuple):
    """What all parts of a product share.

    wider: the second scheme for which the product is enqueued; None: there is none. used: a list
    that keeps packed operands alive for a CUDA graph; None outside of graphs.
    """

    kernels: ProductSteps
    scheme: Scheme
    wider: Scheme | None
    stream: Stream
    used: list[Any] | None
    watch: Watch | None


class Piece(NamedTuple):
    """A product into c (m, n) or (count, m, n), by the launches of `batch`.

    right: b, if it was packed in advance.
    """

    a: GpuArray
    b: GpuArray
    c: GpuArray
    batch: tuple[Batch, ...]
    right: DeviceOperand | None


def _parts(piece: Piece) -> list[Piece]:
    """The piece as smaller products of views; empty if it can only be made whole."""
    a, b, c, batch, right = piece
    count, m, n = c.shape if c.ndim == 3 else (1, *c.shape)
    if len(batch) == 1 and count > 1:
        batch = tuple(Batch(i, i, i, j - i, False, False) for i, j in halves(count, 1))
    if len(batch) > 1:
        parts = [*launches(a, b, c, batch)]
    elif max(m, n) <= PANEL:
        parts = []
    elif m >= n:
        parts = [(a[..., i:j, :], b, c[..., i:j, :]) for i, j in halves(m, PANEL)]
    else:
        parts = [(a, b[..., i:j], c[..., i:j]) for i, j in halves(n, PANEL)]
    return [Piece(x, y, z, ONE, right if y is b else None) for x, y, z in parts]


def halves(length: int, multiple: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """The (start, stop) of both halves of a length; the first is a multiple of `multiple` long."""
    middle = -(-length // 2 // multiple) * multiple
    return (0, middle), (middle, length)


def _pack_multiply_repair(how: _Shared, piece: Piece) -> Enqueued:
    """Enqueue all launches of a product. Returns its packed operands and its guard."""
    a, b, c, batch, right = piece
    kernels, scheme, wider, stream, used, watch = how
    given = {"stream": stream}
    guard = room = None
    may_mirror = False
    records = (0, 0) if watch is None else watch.records
    x, y = by_rows(a), by_columns(b)
    if right is None:
        left, right = kernels.pack(x, y, scheme, room_for=wider, records=records, **given)
        room = left.owner
    else:
        left = kernels.pack_one(x, scheme, "left", name_of(c.dtype), record=records[0], **given)
    if used is not None:  # at once: a graph keeps what a failed attempt has enqueued, too
        used.append((left, right))
    if watch is not None:
        watch.packed(left, right, is_one=len(batch) == 1)
    if wider is not None:
        word, may_mirror = kernels.guard(left, right, stream), is_squared(left, right)
        if used is not None:
            used.append(word)
        its = kernels.pack(x, y, wider, gate=Gate(word.ptr, room), **given)
        guard = Guard(word, wider, *its)
        if used is not None:
            used.append(guard)
    for rows, columns, out, guarded in _launches(left, right, c, guard, batch):
        ways = ((BEST, UNGATED),) if watch is None else watch.ways
        if guarded is not None:
            address = guarded.word.ptr
            packs = guarded.left, guarded.right
            kernels.gemm(*packs, guarded.scheme, out, gate=(address, 1), **given)
            ways = ((BEST, (address, 0)),)
        if may_mirror:
            ways = ((BEST, (address + WORD, 0)),)
            kernels.gemm(rows, rows, scheme, out, gate=(address + WORD, MIRRORED), **given)
        for choice, gate in ways:
            work = kernels.gemm(rows, columns, scheme, out, gate=gate, choice=choice, **given)
            if used is not None and work is not None:
                used.append(work)
            if isinstance(stream, Recording) and work is not None:
                stream.release(work)
            work = None  # free this memory before the next launch allocates as much
        if out.dtype.kind != "c":  # complex rows that leave the slices are not multiplied by them
            kernels.repair(rows, columns, out, guard=guarded, **given)
    return left, right, guard


def _launches(
    left: DeviceOperand,
    right: DeviceOperand,
    c: GpuArray,
    guard: Guard | None,
    batch: tuple[Batch, ...],
) -> Iterable[tuple[DeviceOperand, DeviceOperand, Any, Guard | None]]:
    """The operands of each launch, the matrices of C that it makes, and the guard with its
    packed operands.
    """
    if len(batch) == 1:
        return ((left, right, c, guard),)

    def parts(
        x: DeviceOperand, y: DeviceOperand, some: Batch
    ) -> tuple[DeviceOperand, DeviceOperand]:
        return (
            part(x, some.a, 1 if some.shares_a else some.count),
            part(y, some.b, 1 if some.shares_b else some.count),
        )

    return (
        (
            *parts(left, right, some),
            c[some.c : some.c + some.count],
            guard and Guard(guard.word, guard.scheme, *parts(guard.left, guard.right, some)),
        )
        for some in batch
    )


def _has_plain_rows(out: GpuArray) -> bool:
    """Whether a kernel can write a result here: rows without gaps, and evenly spaced matrices."""
    if out.ndim > 3:
        return bool(out.flags.c_contiguous)
    n = out.shape[-1]
    return bool(out.strides[-1] == out.itemsize and out.strides[-2] >= n * out.itemsize)


def overlaps(xp: ModuleType, out: GpuArray, a: GpuArray, b: GpuArray) -> bool:
    """Whether writing to `out` may change an operand."""
    return any(xp.may_share_memory(out, x) and shares_on_device(out, x) for x in (a, b))


def part(packed: DevicePacked, start: int, count: int) -> DevicePacked:
    """`count` matrices of a packed stack, from number `start` on: a view of the same memory."""
    it, place = packed.operand, packed.layout
    if count == place.batch:
        return packed
    address = it.address + start * it.form.batch_stride * it.form.itemsize
    rows = start * place.rows
    return packed._replace(
        operand=it._replace(address=address, form=it.form._replace(batch=count)),
        layout=of_some(place, count),
        slices=packed.slices + start * place.slices_stride,
        scales=packed.scales + start * place.scales_stride,
        flags=packed.flags + rows,
        outliers=packed.outliers and packed.outliers + rows * place.blocks,
    )
