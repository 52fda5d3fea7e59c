"""The launches that split whole rows, where K is one block.

`row_config` is for operands that are contiguous along K. Where rows are contiguous,
`cluster_config` is for K that the registers of a thread block cluster hold, on devices of compute
capability 9.0, and `panel_config` for any other.
"""

import threading
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from types import ModuleType
from typing import NamedTuple

from mixpert_py.runtime.arrays import DeviceMemory
from mixpert_py.runtime.kernels.abi import STEP
from mixpert_py.runtime.kernels.recording import Recording, Stream, clear, is_capturing
from mixpert_py.runtime.packing.launch import Extra, PackingConfig, PackingTask, row_words
from mixpert_py.runtime.packing.operand import ACROSS, APART, ITEM, PANEL, up
from mixpert_py.runtime.packing.side import Side
from mixpert_py.runtime.splitter import Digits, FloatSlices, Splitter

MOST_FLOATS = 3  # slices that a thread has registers for
LONGEST_ROW = 1 << 26  # of K, so that sums of squares of digits fit 32 bits


class RowTuning(NamedTuple):
    """Sizes of launches that change no bit.

    threads: of a block, more up to `most_threads` for long rows; items: of eight elements that a
    thread holds, 0 for as many as there are registers for.
    """

    threads: int = 256
    most_threads: int = 512
    items: int = 0


ROWS = RowTuning()


def rows_suit(task: PackingTask) -> bool:
    """Whether the operands of a task can be split by whole rows: K is one block."""
    return 0 < task.k <= min(task.block, LONGEST_ROW) and all(
        _is_plain(splitter) for splitter in task.splitters
    )


def _is_plain(splitter: Splitter) -> bool:
    """Whether the kernels of whole rows make the slices of a splitter."""
    if isinstance(splitter, FloatSlices):
        return splitter.count <= MOST_FLOATS
    return (
        isinstance(splitter, Digits)
        and splitter.width == 8
        and splitter.group == 1
        and splitter.count <= 4
        and splitter.digits == splitter.count
    )


def row_config(task: PackingTask, tuning: RowTuning = ROWS) -> PackingConfig:
    """The launch for operands that are contiguous along K, and that `rows_suit`. Raises ShapeError
    where an operand is empty.
    """
    layouts, sides, forms, k = task.layouts, task.sides, task.forms, task.k
    threads, items, again = row_threads(k, max(x.itemsize for x in forms), tuning)
    of_row = threads_of_row(k, threads, items)
    strips = [-(-x.rows // (threads // of_row)) for x in forms]
    grids = [x.batch * count for x, count in zip(forms, strips, strict=True)]
    return PackingConfig(
        task,
        layouts,
        ("row_kernels", "row_kernel"),
        (sides[0], sides[-1], threads, items, again, of_row == threads),
        tuple(row_words(x, x.row_stride, count) for x, count in zip(forms, strips, strict=True)),
        (grids[0], of_row.bit_length() - 1, k, layouts[0].steps),
        sum(grids),
        threads,
    )


def row_threads(k: int, itemsize: int, tuning: RowTuning = ROWS) -> tuple[int, int, bool]:
    """The threads of a block, the items of each, and whether they cannot hold rows of k.

    A thread holds 32 registers' worth: with more, too few would be resident to hide what memory
    takes to answer; with less, they do too little for what they cost.
    """
    items = tuning.items or 16 // itemsize
    threads = tuning.threads
    while threads < tuning.most_threads and threads * items * ITEM < k:
        threads *= 2
    return threads, items, threads * items * ITEM < k


def threads_of_row(k: int, threads: int, items: int) -> int:
    """The number of a block's threads that share a row."""
    return min(threads, max(ITEM, 1 << (-(-k // (items * ITEM)) - 1).bit_length()))


LONGEST_PANEL = 1 << 18  # of K: a block that waits in vain for others looks at all of it by itself
COUNTERS = 3  # of a panel
LEAST_PANELS = 512  # that counters are made for at a time
LAST = (1 << 31) - 1  # number of a launch
PER_THREAD = 2  # the address of a stream that every thread has one of


class PanelTuning(NamedTuple):
    """Sizes of launches that change no bit.

    threads: of a block. patience: how often a block looks whether units are made. longest: pieces
    of a run; blocks: that there are to be before runs are longer than one.
    """

    threads: int = 256
    patience: int = 4096
    longest: int = 8
    blocks: int = 1024


PANELS = PanelTuning()


@dataclass(frozen=True, slots=True, eq=False)
class Workspace:
    """The memory where blocks of a launch leave results for others, and the panels that they count.

    offsets: of each operand's memory past its start in the allocation, and then the next one's
    start, in bytes: largest magnitudes, how fine, sums of squares, what rows lost, factors, and
    numbers. counters: where those of a graph lie, after all operands. panels: before each
    operand's, and in all.
    """

    offsets: tuple[tuple[int, ...], ...]
    counters: int
    panels: tuple[int, ...]
    device: int

    def __call__(self, start: int, stream: Stream, cuda: ModuleType) -> Extra:
        """See `PackingConfig.extras`."""
        panels, owner = self.panels[-1], None
        size = 4 * COUNTERS * panels
        if isinstance(stream, Recording):
            # Beside the operands, whose memory may be shared by packing that a gate holds back.
            counters, serial = stream.reserve(size).ptr, 1
            clear(counters, size, stream)
        elif is_capturing(cuda, stream):
            # A graph may run beside what is enqueued later: it has counters of its own.
            counters, serial = start + self.counters, 1
            clear(counters, size, stream)
        else:
            owner, serial = _counters(panels, self.device, stream, cuda)
            counters = int(owner.ptr)
        words = []
        for offsets, before in zip(self.offsets, self.panels, strict=False):
            between = [start + offset for offset in offsets[:-1]]
            words.append((*between, counters + 4 * COUNTERS * before))
            start += offsets[-1]
        return tuple(words), (serial,), owner


def panel_config(task: PackingTask, tuning: PanelTuning = PANELS) -> PackingConfig:
    """The launch for one operand whose rows are contiguous, or two of one type and splitter, K up
    to LONGEST_PANEL, and what `rows_suit`. Raises ShapeError where an operand is empty.
    """
    layouts, sides, forms, k = task.layouts, task.sides, task.forms, task.k
    assert sides[0] == sides[-1]
    itemsize, wide = forms[0].itemsize, 4 if sides[0].wide == "float32" else 8
    pieces = -(-(-(-k // STEP) * STEP) // tuning.threads)
    of_matrix = [-(-x.rows // PANEL) for x in forms]
    total = sum([x.batch * count for x, count in zip(forms, of_matrix, strict=True)])
    length = min(max(total * pieces // tuning.blocks, 1), tuning.longest, pieces)
    runs = -(-pieces // length)
    panels, offsets = [0], []
    for x, count, place in zip(forms, of_matrix, layouts, strict=True):
        here = x.batch * count
        panels.append(panels[-1] + here)
        rows = here * PANEL
        between = [up(place.bytes)]
        for size in (
            *(itemsize * rows * runs, 4 * rows * runs, 4 * rows * runs),
            *(4 * sides[0].slices * rows * runs, 4 * wide * rows, 8 * rows),
        ):
            between.append(up(between[-1] + size))
        offsets.append(tuple(between))
    starts = tuple(accumulate((ends[-1] for ends in offsets), initial=0))
    return PackingConfig(
        task,
        layouts,
        ("panel_kernels", "panel_kernel"),
        (sides[0], tuning.threads, tuning.patience),
        tuple(row_words(x, x.k_stride, count) for x, count in zip(forms, of_matrix, strict=True)),
        (panels[1], panels[-1], runs, length, k, layouts[0].steps),
        2 * panels[-1] * runs,
        tuning.threads,
        starts=starts,
        bytes=up(starts[-1] + 4 * COUNTERS * panels[-1]),
        extras=Workspace(tuple(offsets), starts[-1], tuple(panels), task.device),
    )


class Counters:
    """The counters of a stream's launches: memory for so many panels, and the number of the last
    launch.
    """

    __slots__ = ("memory", "panels", "serial")

    def __init__(self, memory: DeviceMemory, panels: int) -> None:
        self.memory, self.panels, self.serial = memory, panels, 0


_stream_counters: dict[tuple[int, int], Counters] = {}
_counting = threading.Lock()  # threads may share a stream, and no two launches a number


def _counters(panels: int, device: int, stream: int, cuda: ModuleType) -> tuple[DeviceMemory, int]:
    """A launch's counters on the stream, and its number. Hold them until it is enqueued: another
    thread may put larger ones in their place, and memory is not freed before what was enqueued.
    """
    key = device, -threading.get_ident() if stream == PER_THREAD else stream
    with _counting:
        found = _stream_counters.get(key)
        if found is None or found.panels < panels or found.serial == LAST:
            found = _stream_counters[key] = _zeros(max(panels, LEAST_PANELS), stream, cuda)
        found.serial += 1
        return found.memory, found.serial


def _zeros(panels: int, stream: int, cuda: ModuleType) -> Counters:
    size = 4 * COUNTERS * panels
    try:
        # Not out of a pool, of which it would keep a large piece in use for ever.
        memory = cuda.MemoryPointer(cuda.Memory(size), 0)
    except cuda.runtime.CUDARuntimeError as error:
        raise cuda.memory.OutOfMemoryError(size, 0) from error
    cuda.runtime.memsetAsync(memory.ptr, 0, size, stream)
    return Counters(memory, panels)


PORTABLE = 8  # blocks of a cluster: more are taken as twice as many


class ClusterTuning(NamedTuple):
    """Sizes of launches that change no bit.

    shapes: threads of a block, and the most blocks of a cluster; the first that holds K is taken.
    wide_shapes: the same where slices are made of, or in, double precision.
    """

    shapes: tuple[tuple[int, int], ...] = ((256, 8), (512, 8), (512, 16), (1024, 16))
    wide_shapes: tuple[tuple[int, int], ...] = ((256, 8), (256, 16))


CLUSTERS = ClusterTuning()


@lru_cache
def has_clusters(device: int) -> bool:
    """Whether a device has thread block clusters, of more than eight blocks too."""
    import cupy

    return bool(cupy.cuda.Device(device).compute_capability == "90")


def cluster_shape(side: Side, k: int, tuning: ClusterTuning = CLUSTERS) -> tuple[int, int] | None:
    """Threads of a block, and blocks of a cluster, that hold k; None if none do."""
    positions = -(-k // STEP) * STEP
    for threads, most in tuning.shapes if side.single else tuning.wide_shapes:
        blocks = -(-positions // threads)
        if blocks > PORTABLE:
            blocks = 1 << (blocks - 1).bit_length()
        if blocks <= most:
            return threads, blocks
    return None


def cluster_room(side: Side, threads: int) -> int:
    """Bytes of dynamic shared memory: sums of each row and part."""
    return 4 * (threads // ACROSS) * APART * max(side.sums, 1)


def cluster_config(task: PackingTask, tuning: ClusterTuning = CLUSTERS) -> PackingConfig:
    """The launch for one operand whose rows are contiguous, or two of one type and splitter, for
    what `rows_suit`, and K that a cluster holds. Raises ShapeError where an operand is empty.
    """
    layouts, sides, forms, k = task.layouts, task.sides, task.forms, task.k
    assert sides[0] == sides[-1]
    found = cluster_shape(sides[0], k, tuning)
    assert found is not None
    threads, blocks = found
    of_matrix = [-(-x.rows // PANEL) for x in forms]
    panels = [x.batch * count for x, count in zip(forms, of_matrix, strict=True)]
    return PackingConfig(
        task,
        layouts,
        ("cluster_kernels", "cluster_kernel"),
        (sides[0], threads, blocks),
        tuple(row_words(x, x.k_stride, count) for x, count in zip(forms, of_matrix, strict=True)),
        (panels[0], k, layouts[0].steps),
        blocks * sum(panels),
        threads,
        cluster_room(sides[0], threads),
    )
