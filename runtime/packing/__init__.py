"""Splitting operands on the device, into the layout that the GEMM kernels take.

A task, `launch.PackingTask`, says which operands are packed and how. `launch.PackingConfig` records
the launches but for addresses; `launch.PackingLaunch.pack` enqueues any of them. What is done to
elements is in `digits` and `floats`, for every kernel; the kernels differ in how they read
(`readers`):

- `strip_kernels` packs whatever a scheme may ask for: any block of K, any strides;
- `row_kernels` is for K as one block and operands that are contiguous along it: each row is read
  once and held in registers;
- `panel_kernels` is for K as one block where rows are contiguous: read twice, by two launches;
- `cluster_kernels` does the same reading once, where a cluster's registers hold K. It only saves
  time: without its branch in `reader_of`, `panel_kernels` packs the same bits.

Afterwards `repair` puts back what packing took out of slices.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Literal, NamedTuple

from mixpert_py.errors import ShapeError
from mixpert_py.runtime.arrays import DeviceMemory, GpuArray
from mixpert_py.runtime.complex_product import is_complex
from mixpert_py.runtime.kernels.recording import Stream, allocate
from mixpert_py.runtime.packing import operand, residues
from mixpert_py.runtime.packing.launch import PackingLaunch, PackingTask, prepare
from mixpert_py.runtime.packing.operand import DevicePacked, Form, Operand, up
from mixpert_py.runtime.packing.readers import Reader, config_of, reader_of
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.splitter import Residues

LARGE = 1 << 22  # elements from which a second launch costs less than the general kernel


def by_rows(a: GpuArray) -> Operand:
    """A, (m, k) or (batch, m, k), any strides. Raises ShapeError, TypeError."""
    return residues.complex_operand(a, -2, -1) if is_complex(a) else operand.by_rows(a)


def by_columns(b: GpuArray) -> Operand:
    """B, (k, n) or (batch, k, n), likewise: its rows are the columns."""
    return residues.complex_operand(b, -1, -2) if is_complex(b) else operand.by_columns(b)


class Gate(NamedTuple):
    """What packing anew depends on: the address of an int32 on the device; where that is 0 nothing
    is done. memory: of operands that were packed with room for this; None for new memory.
    """

    address: int
    memory: DeviceMemory | None


def pack(
    a: Operand,
    b: Operand,
    scheme: Scheme,
    *,
    stream: Stream = 0,
    room_for: Scheme | None = None,
    gate: Gate | None = None,
    records: tuple[int, int] = (0, 0),
) -> tuple[DevicePacked, DevicePacked]:
    """A and B split as the scheme says, on a stream (its address) of the current device.

    Together, or one after the other where K is one block and only one operand is contiguous along
    it. Where it is one block, flagged rows of digits hold anything, in units of zero. Where B is
    A's transpose in the same memory, and is split as A is, it is packed once, and returned twice.

    room_for: a scheme by which they may be packed again, in the same memory, which both share.
    gate: whether they are packed at all, and where; None: they are, in new memory. records: of
    residues, see `residues.pack`. Does not wait for the device. Raises ShapeError where K differs
    or anything is empty.
    """
    if isinstance(scheme.left, Residues) and isinstance(scheme.right, Residues):
        _require_one_k(a.form, b.form)
        if _is_one(a, b, scheme):
            return (residues.pack(a, scheme.left, "both", stream, records[0]),) * 2
        return (
            residues.pack(a, scheme.left, "left", stream, records[0]),
            residues.pack(b, scheme.right, "right", stream, records[1]),
        )
    task = task_of(a, b, scheme)
    launches, size = _prepared_launches(task)
    address, memory = gate or (0, None)
    if room_for is not None:
        _, other = _prepared_launches(task_of(a, b, room_for))
        memory = allocate(max(size, other), stream)
    if len(launches) == 1:
        packed = launches[0].pack((a, b)[: len(task.forms)], stream, memory, address)
        return packed[0], packed[-1]
    first, second = launches
    rest = None if memory is None else memory + up(first.bytes)
    (left,) = first.pack((a,), stream, memory, address)
    (right,) = second.pack((b,), stream, rest, address)
    return left, right


def pack_one(
    x: Operand,
    scheme: Scheme,
    which: Literal["left", "right"],
    result: str,
    *,
    stream: Stream = 0,
    record: int = 0,
) -> DevicePacked:
    """Pack one operand as `pack` does. result: the type of the products that it is kept for.
    record: for residues, see `residues.pack`.
    """
    splitter = scheme.left if which == "left" else scheme.right
    if isinstance(splitter, Residues):
        return residues.pack(x, splitter, which, stream, record)
    task = PackingTask(scheme, which, (x.form,), result, x.device)
    return _prepared_launches(task)[0][0].pack((x,), stream)[0]


def task_of(a: Operand, b: Operand, scheme: Scheme) -> PackingTask:
    """The task of packing both operands, or A alone where it stands for both."""
    forms = a.form, b.form
    task = PackingTask(scheme, "both", forms, result_type(forms), a.device)
    return task.each()[0] if _is_one(a, b, scheme) else task


def _is_one(a: Operand, b: Operand, scheme: Scheme) -> bool:
    """Whether B is A transposed, in the same memory, and is split as A is."""
    return (a.address, a.form) == (b.address, b.form) and scheme.left == scheme.right


@lru_cache(4096)
def _prepared_launches(task: PackingTask) -> tuple[tuple[PackingLaunch, ...], int]:
    """The launches of a task, for both operands or for each, whatever their addresses, on its
    device, which is the current one; and the bytes of their memory.
    """
    prepared = tuple(make() for make in preparations(task))
    return prepared, sum(up(one.bytes) for one in prepared)


def compilations(task: PackingTask) -> list[Callable[[], object]]:
    """Functions that each compile what packs a task's operands, on its device, which is the current
    one.
    """
    splitter = task.scheme.left
    if not isinstance(splitter, Residues):
        return [*preparations(task)]
    sides: tuple[residues.Side, ...] = ("both",) if task.which == "left" else ("left", "right")
    return [
        partial(residues.prepare, form, splitter, side, task.device)
        for form, side in zip(task.forms, sides, strict=True)
    ]


def preparations(task: PackingTask) -> list[Callable[[], PackingLaunch]]:
    """Functions that compile the kernels of a task, for both operands or for each of them, on its
    device, which is the current one. The second kernel runs beside the first.
    """
    return [
        partial(prepare, config_of(reader, part), beside=index > 0)
        for index, (reader, part) in enumerate(choices(task))
    ]


def choices(task: PackingTask) -> tuple[tuple[Reader, PackingTask], ...]:
    """The reader that packs all operands of a task at once, or one for each."""
    forms = task.forms
    _require_one_k(forms[0], forms[-1])
    each = task.each()
    readers = [reader_of(one) for one in each]
    is_same_reader = readers[0] == readers[-1]
    elements = sum(x.batch * x.rows * x.k for x in forms)
    if "strips" in readers or (not is_same_reader and elements < LARGE):
        return (("strips", task),)
    # Only rows are packed together where they are split, or lie in memory, unlike each other.
    splitters = task.splitters
    is_same_side = splitters[0] == splitters[-1] and forms[0].memory == forms[-1].memory
    if is_same_reader and (is_same_side or readers[0] == "rows"):
        return ((readers[0], task),)
    return tuple(zip(readers, each, strict=True))


def _require_one_k(a: Form, b: Form) -> None:
    if a.k != b.k:
        raise ShapeError(f"cannot multiply rows of {a.k} by columns of {b.k}")


def result_type(forms: tuple[Form, ...]) -> str:
    """The type of a product of operands of these forms."""
    return "float64" if "float64" in [x.memory for x in forms] else "float32"
