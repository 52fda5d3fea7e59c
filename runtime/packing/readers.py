"""The ways to read operands, one for each packing kernel, and the launches of a task by each.

`strip_config` makes the general launch, for every splitter, block length and stride. The others
split whole rows, where K is one block: `row_config` operands that are contiguous along K. Where
rows are contiguous, `cluster_config` is for K that the registers of a thread block cluster hold, on
devices of compute capability 9.0, and `panel_config` for any other.
"""

from functools import lru_cache
from itertools import accumulate
from typing import Literal, NamedTuple

from mixpert_py.runtime.kernels.abi import STEP
from mixpert_py.runtime.packing.launch import PackingConfig, PackingTask
from mixpert_py.runtime.packing.operand import (
    ACROSS,
    APART,
    CACHE_LANES,
    DEPTH,
    HOPPER,
    ITEM,
    MOST_THREADS,
    PANEL,
    REDUCTIONS,
    VECTOR,
    Form,
    Side,
    up,
)
from mixpert_py.runtime.splitter import Digits

Reader = Literal["strips", "rows", "panels", "clusters"]


def config_of(reader: Reader, task: PackingTask) -> PackingConfig:
    """The launches by which a reader packs a task's operands."""
    if reader == "strips":
        return strip_config(task, shared_memory(task.device))
    if reader == "rows":
        return row_config(task)
    return cluster_config(task) if reader == "clusters" else panel_config(task)


def reader_of(task: PackingTask) -> Reader:
    """The reader that suits the one operand of a task."""
    (x,) = task.forms
    if rows_suit(task):
        if x.k_stride == 1:
            return "rows"
        if x.row_stride == 1 and x.k <= LONGEST_PANEL:
            fits = cluster_shape(task.sides[0], x.k) and has_clusters(task.device)
            return "clusters" if fits else "panels"
    return "strips"


def strip_config(task: PackingTask, shared: int = HOPPER, threads: int = 0) -> PackingConfig:
    """The launch of the general kernel, for any task.

    shared: bytes of shared memory that the device lets a block have; threads: of a block, 0 for
    what suits the operands. Raises ShapeError where an operand is empty.
    """
    layouts, sides, forms = task.layouts, task.sides, task.forms
    mappings = [x.mapping(layouts[0].block) for x in forms]
    heights = _heights(task, mappings, shared)
    how = _strip_threads(task, heights, threads, shared)
    counts = [-(-x.rows // height) for x, height in zip(forms, heights, strict=True)]
    words = tuple(
        (x.rows, x.batch_stride, x.row_stride, x.k_stride, mapping, _log(height), count)
        for x, mapping, height, count in zip(forms, mappings, heights, counts, strict=True)
    )
    grids = [x.batch * count for x, count in zip(forms, counts, strict=True)]
    place = layouts[0]
    lengths = place.k, place.block, place.padded_block, place.blocks, place.spans, place.steps
    return PackingConfig(
        task,
        layouts,
        ("strip_kernels", "strip_kernel"),
        (sides[0], sides[-1]),
        words,
        (grids[0], *lengths, how.share_log, how.cached, _log(how.threads)),
        sum(grids),
        how.threads,
        how.shared,
        shared - REDUCTIONS,
        pointers=4,
    )


def shared_memory(device: int) -> int:
    """Bytes of shared memory that a block may have, if it asks."""
    import cupy

    return int(cupy.cuda.Device(device).attributes["MaxSharedMemoryPerBlockOptin"])


def _log(power: int) -> int:
    return power.bit_length() - 1


class StripThreads(NamedTuple):
    """Threads share a strip. share_log: log2 of those of a row's that a block of K can use. cached:
    items of a thread that shared memory holds; shared: its bytes.
    """

    threads: int
    share_log: int
    cached: int
    shared: int


def _heights(task: PackingTask, mappings: list[int], shared: int) -> list[int]:
    """The rows of a strip: 8, a sector of 32 bytes where they are contiguous; never less than a
    group.

    Where K is contiguous and rows are long, strips are lower: two blocks to a multiprocessor then
    find room for what they read, so that one loads while the other stores; or one block, where the
    other operand leaves no room for two.
    """
    groups = [s.group if isinstance(s, Digits) else 1 for s in task.splitters]
    sizes = [x.k * x.itemsize for x in task.forms]
    heights = [max(8, group) for group in groups]
    half = _half_of(shared)
    together = list(zip(sizes, heights, mappings, groups, strict=True))
    tall = any(mapping & 1 and height * size > half for size, height, mapping, _ in together)
    room = shared - REDUCTIONS if tall else half
    found = []
    for size, height, mapping, group in together:
        while not mapping & 1 and height > group and height * size > room:
            height //= 2
        found.append(height)
    return found


def _strip_threads(
    task: PackingTask, heights: list[int], threads: int, shared: int
) -> StripThreads:
    """Threads, and shared memory that keeps what they read as far as it reaches.

    What a strip has past that is read twice, the second time from L2. Only one block runs on a
    multiprocessor then, which bounds what has to stay there: at K = 16384 and rows contiguous, 130
    blocks read 300 KiB each again.
    """
    place, itemsize = task.layouts[0], max(x.itemsize for x in task.forms)
    share_log = (-(-place.padded_block // ITEM) - 1).bit_length()
    height = max(heights)
    if not threads:
        most = _most_threads(task.sides)
        if height * place.k * itemsize <= _half_of(shared):  # two blocks find room
            most = min(most, MOST_THREADS // 2)
        items = place.spans * height * place.padded_block // ITEM
        threads = min(most, max(64, 1 << (-(-items // DEPTH) - 1).bit_length()))
    cached = 0
    for rows in heights:
        lanes_log = min(share_log, _log(threads) - _log(rows))
        turns = -(-place.padded_block // (ITEM << lanes_log))
        if turns > DEPTH:
            cached = max(cached, -(-turns // DEPTH))
    group = DEPTH * ITEM * max(threads, CACHE_LANES) * itemsize
    cached = min(cached, (shared - REDUCTIONS) // group)
    return StripThreads(threads, share_log, cached * DEPTH, cached * group)


def _most_threads(sides: tuple[Side, ...]) -> int:
    """The most threads of a block. Tiles want small blocks, that wait for one another at every
    segment of K.
    """
    if any(one.group > 1 for one in sides):
        return MOST_THREADS // 4
    lean = sides[0] == sides[-1] and sides[0].wide == "float32"
    return MOST_THREADS if lean else MOST_THREADS // 2


def _half_of(shared: int) -> int:
    """Bytes for what a block keeps, so that two blocks fit a multiprocessor."""
    reserved = 1024  # by the driver, for each block
    return (shared + reserved) // 2 - reserved - REDUCTIONS


LONGEST_ROW = 1 << 26  # of K, so that sums of squares of digits fit 32 bits


def rows_suit(task: PackingTask) -> bool:
    """Whether the operands of a task can be split by whole rows: K is one block."""
    return 0 < task.k <= min(task.block, LONGEST_ROW) and all(
        not isinstance(splitter, Digits) or splitter.width == 8 for splitter in task.splitters
    )


def _row_words(x: Form, stride: int, count: int) -> tuple[int, ...]:
    """The integers that the kernels of whole rows take after an operand's addresses. stride: in
    elements, from one row, or one position of K, to the next; count: strips or panels of one
    matrix.
    """
    is_wide = x.aligned and (stride | x.batch_stride) * x.itemsize % VECTOR == 0
    return x.rows, x.batch_stride, stride, int(is_wide), count


def row_config(
    task: PackingTask, threads: int = 256, most_threads: int = 512, items: int = 0
) -> PackingConfig:
    """The launch for operands that are contiguous along K, and that `rows_suit`. Raises ShapeError
    where an operand is empty.

    threads: of a block, more up to `most_threads` for long rows. items: of eight elements that a
    thread holds; 0: 32 registers' worth. With more, too few threads would be resident to hide what
    memory takes to answer; with less, they do too little for what they cost. No size changes a bit.
    """
    layouts, sides, forms, k = task.layouts, task.sides, task.forms, task.k
    items = items or 16 // max(x.itemsize for x in forms)
    while threads < most_threads and threads * items * ITEM < k:
        threads *= 2
    again = threads * items * ITEM < k  # blocks cannot hold rows
    of_row = min(threads, max(ITEM, 1 << (-(-k // (items * ITEM)) - 1).bit_length()))
    strips = [-(-x.rows // (threads // of_row)) for x in forms]
    grids = [x.batch * count for x, count in zip(forms, strips, strict=True)]
    return PackingConfig(
        task,
        layouts,
        ("row_kernels", "row_kernel"),
        (sides[0], sides[-1], threads, items, again, of_row == threads),
        tuple(_row_words(x, x.row_stride, count) for x, count in zip(forms, strips, strict=True)),
        (grids[0], _log(of_row), k, layouts[0].steps),
        sum(grids),
        threads,
    )


def _panels(task: PackingTask) -> tuple[tuple[tuple[int, ...], ...], list[int]]:
    """Of each operand: the kernel's words, and the panels of all matrices."""
    assert task.sides[0] == task.sides[-1]
    of_matrix = [-(-x.rows // PANEL) for x in task.forms]
    words = tuple(_row_words(x, x.k_stride, n) for x, n in zip(task.forms, of_matrix, strict=True))
    return words, [x.batch * n for x, n in zip(task.forms, of_matrix, strict=True)]


LONGEST_PANEL = 1 << 18  # of K


def panel_config(
    task: PackingTask, threads: int = 256, longest: int = 8, blocks: int = 1024
) -> PackingConfig:
    """The launches for one operand whose rows are contiguous, or two of one type and splitter, K up
    to LONGEST_PANEL, and what `rows_suit`. Raises ShapeError where an operand is empty.

    threads: of a block. longest: pieces of a run. blocks: that there are to be before runs are
    longer than one piece. No size changes a bit.
    What blocks leave for others lies after the packed operands: of each operand largest magnitudes,
    how fine, sums of squares, what rows lost, and counters.
    """
    layouts, side, forms, k = task.layouts, task.sides[0], task.forms, task.k
    words, panels = _panels(task)
    pieces = -(-(-(-k // STEP) * STEP) // threads)
    length = min(max(sum(panels) * pieces // blocks, 1), longest, pieces)
    runs = -(-pieces // length)
    first = end = sum(up(place.bytes) for place in layouts)
    between = []
    for count in panels:
        rows = PANEL * count * runs
        sizes = forms[0].itemsize * rows, 4 * rows, 4 * rows, 4 * side.slices * rows, 4 * count
        *own, end = accumulate(map(up, sizes), initial=end)
        between.append(tuple(own))
    return PackingConfig(
        task,
        layouts,
        ("panel_kernels", "panel_kernel"),
        (side, threads),
        words,
        (panels[0], sum(panels), runs, length, k, layouts[0].steps),
        sum(panels) * runs,
        threads,
        between=tuple(between),
        more_bytes=end - first,
        phases=(0, 1),
    )


PORTABLE = 8  # blocks of a cluster: more are taken as twice as many


# Threads of a block, and the most blocks of a cluster: the first pair that holds K is taken. The
# same where slices are made of, or in, double precision.
Clusters = tuple[tuple[int, int], ...]
CLUSTERS: Clusters = ((256, 8), (512, 8), (512, 16), (1024, 16))
WIDE_CLUSTERS: Clusters = ((256, 8), (256, 16))


@lru_cache
def has_clusters(device: int) -> bool:
    """Whether a device has thread block clusters, of more than eight blocks too."""
    import cupy

    return bool(cupy.cuda.Device(device).compute_capability == "90")


def cluster_shape(side: Side, k: int, shapes: Clusters = ()) -> tuple[int, int] | None:
    """Threads of a block, and blocks of a cluster, that hold k; None if none do. shapes: in place
    of CLUSTERS.
    """
    positions = -(-k // STEP) * STEP
    for threads, most in shapes or (CLUSTERS if side.single else WIDE_CLUSTERS):
        blocks = -(-positions // threads)
        if blocks > PORTABLE:
            blocks = 1 << (blocks - 1).bit_length()
        if blocks <= most:
            return threads, blocks
    return None


def cluster_config(task: PackingTask, shapes: Clusters = ()) -> PackingConfig:
    """The launch for one operand whose rows are contiguous, or two of one type and splitter, for
    what `rows_suit`, and K that a cluster holds. Raises ShapeError where an operand is empty.
    """
    layouts, side, k = task.layouts, task.sides[0], task.k
    words, panels = _panels(task)
    found = cluster_shape(side, k, shapes)
    assert found is not None
    threads, blocks = found
    sums = 4 * (threads // ACROSS) * APART * max(side.sums, 1)  # of each row and part
    return PackingConfig(
        task,
        layouts,
        ("cluster_kernels", "cluster_kernel"),
        (side, threads, blocks),
        words,
        (panels[0], k, layouts[0].steps),
        blocks * sum(panels),
        threads,
        sums,
    )
