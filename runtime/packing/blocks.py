"""The launch of the general kernel, for every splitter, block length and stride."""

from dataclasses import dataclass

from mixpert_py.runtime.packing.launch import PackingConfig, PackingTask
from mixpert_py.runtime.packing.operand import (
    CACHE_LANES,
    DEPTH,
    HOPPER,
    ITEM,
    MOST_THREADS,
    REDUCTIONS,
)
from mixpert_py.runtime.packing.side import Side
from mixpert_py.runtime.splitter import Digits


def strip_config(task: PackingTask, shared: int = HOPPER, threads: int = 0) -> PackingConfig:
    """The launch of the general kernel, for any task.

    shared: bytes of shared memory that the device lets a block have; threads: of a block, 0 for
    what suits the operands. Raises ShapeError where an operand is empty.
    """
    layouts, sides, forms = task.layouts, task.sides, task.forms
    covered = covers(task, shared)
    how = strip_threads(task, covered, threads, shared)
    strips = [one.strips * x.batch for one, x in zip(covered, forms, strict=True)]
    words = tuple(
        (x.rows, x.batch_stride, x.row_stride, x.k_stride, one.mapping, one.height_log, one.strips)
        for x, one in zip(forms, covered, strict=True)
    )
    place = layouts[0]
    lengths = place.k, place.block, place.padded_block, place.blocks, place.spans, place.steps
    return PackingConfig(
        task,
        layouts,
        ("strip_kernels", "strip_kernel"),
        (sides[0], sides[-1]),
        words,
        (strips[0], *lengths, how.share_log, how.cached, how.threads_log),
        sum(strips),
        1 << how.threads_log,
        how.shared,
        shared - REDUCTIONS,
        pointers=4,
    )


def shared_memory(device: int) -> int:
    """Bytes of shared memory that a block may have, if it asks."""
    import cupy

    return int(cupy.cuda.Device(device).attributes["MaxSharedMemoryPerBlockOptin"])


@dataclass(frozen=True, slots=True)
class Cover:
    """Thread blocks cover one operand by strips of 2^height_log rows, as the mapping says.

    mapping: bit 0, neighbouring threads take neighbouring rows, not neighbours along K; bit 1,
    every eight elements are 16-byte aligned.
    """

    mapping: int
    height_log: int
    strips: int


@dataclass(frozen=True, slots=True)
class StripThreads:
    """Threads share a strip. threads_log: log2 of a block's threads; share_log: log2 of those of a
    row's that a block of K can use. cached: items of a thread that shared memory holds; shared: its
    bytes.
    """

    threads_log: int
    share_log: int
    cached: int
    shared: int


def covers(task: PackingTask, shared: int = HOPPER) -> tuple[Cover, ...]:
    """Strips of 8 rows, a sector of 32 bytes where they are contiguous; never less than a group.

    Where K is contiguous and rows are long, strips are lower: two blocks to a multiprocessor then
    find room for what they read, so that one loads while the other stores; or one block, where the
    other operand leaves no room for two.
    """
    forms = task.forms
    groups = [s.group if isinstance(s, Digits) else 1 for s in task.splitters]
    mappings = [x.mapping(task.layouts[0].block) for x in forms]
    sizes = [x.k * x.itemsize for x in forms]
    heights = [max(8, group) for group in groups]
    together = list(zip(sizes, heights, mappings, strict=True))
    half = half_of(shared)
    tall = any(mapping & 1 and height * size > half for size, height, mapping in together)
    room = shared - REDUCTIONS if tall else half
    found = []
    for x, group, (size, height, mapping) in zip(forms, groups, together, strict=True):
        while not mapping & 1 and height > group and height * size > room:
            height //= 2
        found.append(Cover(mapping, height.bit_length() - 1, -(-x.rows // height)))
    return tuple(found)


def strip_threads(
    task: PackingTask, covers: tuple[Cover, ...], threads: int = 0, shared: int = HOPPER
) -> StripThreads:
    """Threads, and shared memory that keeps what they read as far as it reaches.

    What a strip has past that is read twice, the second time from L2. Only one block runs on a
    multiprocessor then, which bounds what has to stay there: at K = 16384 and rows contiguous, 130
    blocks read 300 KiB each again.
    """
    place, itemsize = task.layouts[0], max(x.itemsize for x in task.forms)
    share_log = (-(-place.padded_block // ITEM) - 1).bit_length()
    height_log = max(one.height_log for one in covers)
    if not threads:
        most = _most(task.sides)
        strip = place.k * itemsize << height_log
        if strip <= half_of(shared):  # two blocks find room
            most = min(most, MOST_THREADS // 2)
        items = (place.spans << height_log) * place.padded_block // ITEM
        threads = min(most, max(64, 1 << (-(-items // DEPTH) - 1).bit_length()))
    threads_log = threads.bit_length() - 1
    cached = 0
    for one in covers:
        lanes_log = min(share_log, threads_log - one.height_log)
        turns = -(-place.padded_block // (ITEM << lanes_log))
        if turns > DEPTH:
            cached = max(cached, -(-turns // DEPTH))
    group = DEPTH * ITEM * max(threads, CACHE_LANES) * itemsize
    cached = min(cached, (shared - REDUCTIONS) // group)
    return StripThreads(threads_log, share_log, cached * DEPTH, cached * group)


def half_of(shared: int) -> int:
    """Bytes for what a block keeps, so that two blocks fit a multiprocessor."""
    reserved = 1024  # by the driver, for each block
    return (shared + reserved) // 2 - reserved - REDUCTIONS


def _most(sides: tuple[Side, ...]) -> int:
    """Threads of a block. Each has 128 registers of a block of 512, and not all kernels can do with
    that. Tiles want small blocks, that wait for one another at every segment of K.
    """
    if any(one.group > 1 for one in sides):
        return MOST_THREADS // 4
    lean = sides[0] == sides[-1] and sides[0].wide == "float32"
    return MOST_THREADS if lean else MOST_THREADS // 2
