"""Products of packed operands on the GPU: choose a kernel and a tile, launch."""

import ctypes
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from typing import Any, Protocol

from mixpert_py.errors import DeviceError
from mixpert_py.runtime.cuda.tile import (
    HOPPER,
    PORTABLE,
    STEP,
    Chip,
    Family,
    Tile,
    choose,
    is_grouped,
)
from mixpert_py.runtime.kernels.compile import cuda_kernel
from mixpert_py.runtime.kernels.kernel import Kernel
from mixpert_py.runtime.scheme import EXACT_STRETCH, Scheme

ELEMENTS = {"int8": 0, "float16": 1, "bfloat16": 2, "tf32": 3}
ITEMSIZES = {"int8": 1, "float16": 2, "bfloat16": 2, "tf32": 4}
MOST_STEPS = EXACT_STRETCH // STEP  # that INT32 accumulators hold the sum of
LEAST_SPLIT = 3  # parts of a tile from which adding them in memory pays
LEAST_PART = 8  # steps
GROUP = 8  # rows of tiles walked together


class PackedOperand(Protocol):
    """What of a packed operand the kernels need; addresses on the device, strides in bytes."""

    @property
    def slices(self) -> int: ...
    @property
    def scales(self) -> int: ...
    @property
    def slices_stride(self) -> int: ...
    @property
    def scales_stride(self) -> int: ...
    @property
    def batch(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def rows8(self) -> int: ...
    @property
    def steps(self) -> int: ...
    @property
    def blocks(self) -> int: ...
    @property
    def steps_per_block(self) -> int: ...


class Operand(ctypes.Structure):
    """As in kernels/problem.cuh."""

    _fields_ = (
        ("slices", ctypes.c_void_p),
        ("scales", ctypes.c_void_p),
        ("slices_stride", ctypes.c_longlong),
        ("scales_stride", ctypes.c_longlong),
        ("rows", ctypes.c_int),
        ("rows8", ctypes.c_int),
    )


class Problem(ctypes.Structure):
    """As in kernels/problem.cuh."""

    _fields_ = (
        ("a", Operand),
        ("b", Operand),
        ("c", ctypes.c_void_p),
        ("c_in", ctypes.c_void_p),
        ("c_stride", ctypes.c_longlong),
        ("c_in_stride", ctypes.c_longlong),
        ("c_leading", ctypes.c_longlong),
        ("c_in_leading", ctypes.c_longlong),
        ("alpha", ctypes.c_double),
        ("beta", ctypes.c_double),
        ("batch", ctypes.c_int),
        ("steps", ctypes.c_int),
        ("blocks", ctypes.c_int),
        ("steps_per_block", ctypes.c_int),
        ("stretch", ctypes.c_int),
        ("group", ctypes.c_int),
        ("parts", ctypes.c_void_p),
        ("tail", ctypes.c_int),
        ("split", ctypes.c_int),
    )


def gemm(
    left: PackedOperand,
    right: PackedOperand,
    scheme: Scheme,
    out: Any,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    c: Any = None,
    stream: int = 0,
    family: Family | None = None,
) -> None:
    """out = alpha · A·B + beta · c, A and B packed by `scheme`; enqueued on a stream.

    out: CuPy array (batch, m, n), float32 or float64, any strides but the last, which is one
    element. Operands have the same batch, or 1 for one that all share. c: of the same type and
    shape, or None; it may be `out` itself where K is one segment. family: the kernels to use, None
    for the device's best.

    Accumulators are added as `engine.execute` says. Sums of integers are the same bits; those of
    floating-point slices enter FP32 totals step by step, accumulator by accumulator, the smallest
    weight first, and tensor cores truncate what they add within half a step. Raises DeviceError
    where the kernel does not compile.
    """
    batch, m, n = out.shape
    wide = out.itemsize == 8
    plan = _planned(
        scheme,
        m,
        n,
        batch,
        left.blocks,
        left.steps_per_block,
        left.steps,
        wide,
        family,
        out.data.device_id,
    )
    parts = _zeros(plan.part_words, stream) if plan.split else None
    problem = Problem(
        _operand(left),
        _operand(right),
        out.data.ptr,
        0 if c is None else c.data.ptr,
        out.strides[0] // out.itemsize,
        0 if c is None else c.strides[0] // c.itemsize,
        out.strides[1] // out.itemsize,
        0 if c is None else c.strides[1] // c.itemsize,
        alpha,
        0.0 if c is None else beta,
        batch,
        left.steps,
        left.blocks,
        left.steps_per_block,
        MOST_STEPS,
        GROUP,
        0 if parts is None else parts.ptr,
        plan.tail if plan.split else 0,
        plan.split,
    )
    plan.kernel.launch(plan.grid, plan.threads, (problem,), shared=plan.tile.shared, stream=stream)


@dataclass(frozen=True, slots=True)
class Launch:
    """A product's kernel, tile and grid. tail: tiles of the last wave, cut into `split` parts along
    K each, if that is not 0: they meet in `part_words` words of memory, zeros at first."""

    kernel: Kernel
    tile: Tile
    grid: int
    threads: int
    tail: int = 0
    split: int = 0
    part_words: int = 0


def constants(
    scheme: Scheme, tile: Tile, *, wide: bool, steps_per_block: int
) -> tuple[tuple[str, int | str], ...]:
    """What a kernel is compiled with.

    Promotion, if any, comes with every block of integers, and every step of floating-point slices,
    or half of one where the scheme wants no more than that.
    """
    if scheme.exact:
        interval = max(1, 2 * steps_per_block)
    else:
        interval = min(2, scheme.promotion * ITEMSIZES[scheme.element.name] // (STEP // 2))
    groups = scheme.accumulators()
    terms = [
        [f"{{{run.left + i},{run.right - i}}}" for run in runs for i in range(run.length)]
        for _, runs in groups
    ]
    return (
        ("ELEMENT", ELEMENTS[scheme.element.name]),
        ("COUNT_A", scheme.left.count),
        ("COUNT_B", scheme.right.count),
        ("ACCUMULATORS", len(groups)),
        ("TERMS", ",".join(term for some in terms for term in some)),
        ("TERM_ENDS", ",".join(map(str, accumulate(map(len, terms))))),
        ("WEIGHTS", ",".join(str(weight) for weight, _ in groups)),
        ("TILE_M", tile.m),
        ("TILE_N", tile.n),
        ("STAGES", tile.stages),
        ("IN_REGISTERS", _in_registers(scheme)),
        ("GROUPED", int(is_grouped(scheme))),
        ("PROMOTE", int(tile.promote)),
        ("INTERVAL", interval if tile.promote else 2),  # in half steps
        ("WIDE", int(wide)),
    )


def _in_registers(scheme: Scheme) -> int:
    """A's slices that go through registers on Hopper, the highest first.

    They are read from shared memory once, not once a term: that saves power, which is what limits
    schemes of many terms. Others are limited by how quickly products are issued, and lose by it.
    """
    return 2 if scheme.exact and scheme.left.count > 2 else 0


@lru_cache(maxsize=64)
def chip(device: int, family: Family | None = None) -> Chip:
    """A device as the tile model sees it. Raises DeviceError for kernels that it cannot run."""
    import cupy

    its = cupy.cuda.Device(device)
    hopper = its.compute_capability == "90"
    if family is HOPPER and not hopper:
        raise DeviceError(f"kernels for compute capability 9.0, on {its.compute_capability}")
    return Chip(
        family or (HOPPER if hopper else PORTABLE),
        its.attributes["MultiProcessorCount"],
        its.attributes["MaxSharedMemoryPerBlockOptin"],
    )


@lru_cache(maxsize=4096)
def _planned(
    scheme: Scheme,
    m: int,
    n: int,
    batch: int,
    blocks: int,
    steps_per_block: int,
    steps: int,
    wide: bool,
    family: Family | None,
    device: int,
) -> Launch:
    here = chip(device, family)
    tile = choose(
        scheme, m, n, batch, blocks=blocks, steps_per_block=steps_per_block, wide=wide, chip=here
    )
    definitions = constants(scheme, tile, wide=wide, steps_per_block=steps_per_block)
    kernel = cuda_kernel(here.family.file, "gemm", definitions, tile.shared)
    tiles = -(-m // tile.m) * -(-n // tile.n) * batch
    if not here.family.persistent:
        return Launch(kernel, tile, tiles, here.family.threads)
    count = here.multiprocessors
    whole = Launch(kernel, tile, min(tiles, count), here.family.threads)
    if not scheme.exact or tile.promote or blocks > 1 or steps > MOST_STEPS:
        return whole
    tail = tiles % count
    split = min(count // max(tail, 1), steps // LEAST_PART)
    if tail == 0 or split < LEAST_SPLIT:
        return whole
    words = -(-tail // 32) * 32 + tail * len(scheme.accumulators()) * tile.m * tile.n
    grid = count if tiles > count else tail * split
    return replace(whole, grid=grid, tail=tail, split=split, part_words=words)


def _zeros(words: int, stream: int) -> Any:
    import cupy

    memory = cupy.cuda.alloc(4 * words)
    cupy.cuda.runtime.memsetAsync(memory.ptr, 0, 4 * words, stream)
    return memory


def _operand(x: PackedOperand) -> Operand:
    alone = x.batch == 1
    return Operand(
        x.slices,
        x.scales,
        0 if alone else x.slices_stride,
        0 if alone else x.scales_stride,
        x.rows,
        x.rows8,
    )
