"""The GEMM of packed operands on the GPU: chooses a kernel and a tile, and launches it."""

from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple, Protocol

from mixpert_py.errors import DeviceError
from mixpert_py.runtime.arrays import GpuArray
from mixpert_py.runtime.gpu import residues
from mixpert_py.runtime.kernels import abi
from mixpert_py.runtime.kernels.abi import STEP
from mixpert_py.runtime.kernels.compile import Definitions, cuda_kernel
from mixpert_py.runtime.kernels.kernel import ArgumentLayout, Kernel
from mixpert_py.runtime.kernels.recording import Recording, Stream, allocate, clear
from mixpert_py.runtime.model.device_model import model_of
from mixpert_py.runtime.model.kernel_times import (
    HOPPER,
    MOST_STEPS,
    PORTABLE,
    Cut,
    Depth,
    Family,
    KernelTimes,
    TargetChip,
    Tile,
    cut,
    is_grouped,
    tiles_of,
)
from mixpert_py.runtime.packing.operand import Layout
from mixpert_py.runtime.packing.repair import ResultForm
from mixpert_py.runtime.scheme import Scheme

GROUP = 8  # rows of tiles walked together


PROBLEM = ArgumentLayout.of(abi.PROBLEM.format)
UNGATED = 0, 0


class KernelOperand(Protocol):
    """A packed operand as the kernels take it: addresses on the device, and sizes."""

    @property
    def slices(self) -> int: ...
    @property
    def scales(self) -> int: ...
    @property
    def layout(self) -> Layout: ...


class KernelChoice(NamedTuple):
    """family: the kernels to use, None for the device's best. tile: one of `candidates`, None for
    the quickest. hermitian: whether C, by residues, is its own conjugate transpose, of which half
    is made.
    """

    family: Family | None = None
    tile: Tile | None = None
    hermitian: bool = False


BEST = KernelChoice()


def gemm(
    left: KernelOperand,
    right: KernelOperand,
    scheme: Scheme,
    out: GpuArray,
    *,
    stream: Stream = 0,
    gate: tuple[int, int] = UNGATED,
    choice: KernelChoice = BEST,
) -> Any:
    """Enqueue out = A·B on a stream; both operands are packed by `scheme`.

    out: CuPy array (m, n) or (batch, m, n), float32 or float64, any strides but the last, which is
    one element. Operands have the same batch, or 1 for one that all share; if both are the same
    memory, C is symmetric: half of it is made, and mirrored. gate: the address of an
    int32, and what it has to be: otherwise nothing is done.

    Accumulators are added as `engine.execute` says. Sums of integers are the same bits; those of
    floating-point slices enter FP32 totals step by step, accumulator by accumulator, the smallest
    weight first, and tensor cores truncate what they add within half a step. Does not wait for the
    device. Returns memory that the kernel uses besides, which a graph must keep; None: there is
    none. Raises DeviceError where the kernel does not compile.
    """
    memory = out.data
    if scheme.moduli:
        return residues.gemm(left, right, scheme, out, stream, choice, gate)
    how = _prepared_for(left, right, scheme, out, choice)
    parts = None
    if how.part_words:
        parts = allocate(4 * how.part_words, stream)
        clear(parts.ptr, 4 * how.part_words, stream)
    row = stream.row if isinstance(stream, Recording) else 0
    problem = (
        *(left.slices, left.scales, *how.a),
        *(right.slices, right.scales, *how.b),
        *(memory.ptr, row, *how.c, *how.counts),
        *(0 if parts is None else parts.ptr, *how.cut),
        *gate,
        how.triangle,
    )
    how.kernel.launch(how.grid, how.threads, PROBLEM, problem, how.shared, stream)
    return parts


def prepare(left: KernelOperand, right: KernelOperand, scheme: Scheme, out: GpuArray) -> None:
    """Get ready what may fail in `gemm`, and launch nothing."""
    if scheme.moduli:
        residues.prepare(scheme, out.dtype.name, out.data.device_id, None)
    else:
        _prepared_for(left, right, scheme, out, BEST)


def _prepared_for(
    left: KernelOperand, right: KernelOperand, scheme: Scheme, out: GpuArray, choice: KernelChoice
) -> "GemmLaunch":
    result = ResultForm(out.shape, out.strides, out.itemsize)
    symmetric, device = left.slices == right.slices, out.data.device_id
    return _prepared(scheme, left.layout, right.layout, result, symmetric, device, choice)


class GemmLaunch(NamedTuple):
    """The launch of a product, without its addresses.

    a, b, c, counts, cut: the values that follow those in `abi.PROBLEM`, in its order. part_words:
    the size of the memory in which parts of tiles meet, which begins as zeros. triangle: the tiles
    of a product that are made, if C is symmetric; else 0.
    """

    kernel: Kernel
    grid: int
    threads: int
    shared: int
    a: tuple[int, ...]
    b: tuple[int, ...]
    c: tuple[int, ...]
    counts: tuple[int, ...]
    cut: tuple[int, int]
    part_words: int
    triangle: int


def constants(
    scheme: Scheme, tile: Tile, *, wide: bool, steps_per_block: int, mirrors: bool = False
) -> Definitions:
    """The constants with which a kernel is compiled.

    Promotion, if any, follows every block of integers, and every step of floating-point slices, or
    half a step if the scheme asks for that. mirrors: whether it is Hopper's kernel for a symmetric
    C; the portable one makes any.
    """
    promotion = scheme.promotion * abi.ELEMENTS[scheme.element.name].size  # bytes
    interval = max(1, 2 * steps_per_block) if scheme.exact else min(2, promotion // (STEP // 2))
    groups = scheme.accumulators()
    terms = [
        [f"{{{run.left + i},{run.right - i}}}" for run in runs for i in range(run.length)]
        for _, runs in groups
    ]
    return (
        ("ELEMENT", abi.ELEMENTS[scheme.element.name].code),
        ("COUNT_A", scheme.left.count),
        ("COUNT_B", scheme.right.count),
        ("ACCUMULATORS", len(groups)),
        ("TERMS", ",".join(term for some in terms for term in some)),
        ("TERM_ENDS", ",".join(map(str, accumulate(map(len, terms))))),
        ("WEIGHTS", ",".join(str(weight) for weight, _ in groups)),
        ("TILE_M", tile.m),
        ("TILE_N", tile.n),
        ("STAGES", tile.stages),
        # The highest slices of A that go through registers on Hopper: they are read from shared
        # memory once, not once for each term. That saves power, which limits schemes of many terms.
        # Others are limited by the rate of issued products, and would lose.
        ("IN_REGISTERS", 2 if scheme.exact and scheme.left.count > 2 else 0),
        ("GROUPED", int(is_grouped(scheme))),
        ("PROMOTE", int(tile.promote)),
        # On Hopper: steps after which the accumulator of weight 0 is promoted, if the other waits.
        ("DEFERRED", max(1, promotion // STEP) if scheme.deferred else 0),
        ("INTERVAL", interval if tile.promote else 2),  # in half steps
        ("WIDE", int(wide)),
        *([("SYMMETRIC", 1)] if mirrors else ()),
    )


@lru_cache(maxsize=64)
def chip(device: int, family: Family | None = None) -> TargetChip:
    """A device as the tile model sees it. Raises DeviceError for kernels that it cannot run."""
    import cupy

    its = cupy.cuda.Device(device)
    hopper = its.compute_capability == "90"
    if family is HOPPER and not hopper:
        raise DeviceError(f"kernels for compute capability 9.0, on {its.compute_capability}")
    return TargetChip(
        family or (HOPPER if hopper else PORTABLE),
        its.attributes["MultiProcessorCount"],
        its.attributes["MaxSharedMemoryPerBlockOptin"],
    )


@lru_cache(maxsize=64)
def kernel_times(device: int, family: Family | None = None) -> KernelTimes:
    """The known times of the kernels on a device, or on a similar one."""
    import cupy

    name = cupy.cuda.runtime.getDeviceProperties(device)["name"].decode()
    return KernelTimes(model_of(name), chip(device, family))


@lru_cache(maxsize=4096)
def _prepared(
    scheme: Scheme,
    left: Layout,
    right: Layout,
    result: ResultForm,
    symmetric: bool,
    device: int,
    choice: KernelChoice,
) -> GemmLaunch:
    """The launch on the current device for this C."""
    here = kernel_times(device, choice.family).chip
    batch, m, n = result.shape if len(result.shape) == 3 else (1, *result.shape)
    wide, depth = result.itemsize == 8, Depth(left.steps, left.blocks, left.steps_per_block)
    tile, shares, words = _cut(scheme, (batch, m, n), depth, wide, device, choice, symmetric)
    steps, mirrors = depth.steps_per_block, symmetric and here.family is HOPPER
    definitions = constants(scheme, tile, wide=wide, steps_per_block=steps, mirrors=mirrors)
    kernel = cuda_kernel(here.family.file, "gemm", definitions, tile.shared)
    stride, leading = _apart(result.strides, result.itemsize)
    return GemmLaunch(
        kernel,
        shares.grid,
        here.family.threads,
        tile.shared,
        _operand(left),
        _operand(right),
        (stride, leading),
        (batch, *depth, MOST_STEPS, GROUP),
        (shares.tail, shares.split),
        words,
        tiles_of(tile, m, n, symmetric=True) if symmetric else 0,
    )


def _cut(
    scheme: Scheme,
    shape: tuple[int, int, int],
    depth: Depth,
    wide: bool,
    device: int,
    choice: KernelChoice = BEST,
    symmetric: bool = False,
) -> tuple[Tile, Cut, int]:
    """The tile, the assignment of tiles to blocks, and the words of memory in which parts of
    tiles meet.
    """
    batch, m, n = shape
    times = kernel_times(device, choice.family)
    tile = choice.tile or times.best(scheme, m, n, batch, depth, wide, symmetric)
    tiles = tiles_of(tile, m, n, symmetric=symmetric) * batch
    shares = cut(scheme, tile, tiles, depth, times.chip)
    words = -(-shares.tail // 32) * 32 + shares.tail * len(scheme.accumulators()) * tile.m * tile.n
    return tile, shares, words


@lru_cache(maxsize=4096)
def scratch(
    scheme: Scheme, m: int, n: int, batch: int, depth: Depth, wide: bool, device: int
) -> int:
    """The bytes that `gemm` needs while it works, for this many matrices (m, n)."""
    if scheme.moduli:
        return residues.scratch(scheme, m, n)
    return 4 * _cut(scheme, (batch, m, n), depth, wide, device)[2]


def _apart(strides: tuple[int, ...], itemsize: int) -> tuple[int, int]:
    """The distance in elements from one matrix to the next, and from one row to the next."""
    return strides[0] // itemsize if len(strides) == 3 else 0, strides[-2] // itemsize


def _operand(x: Layout) -> tuple[int, ...]:
    strides = (0, 0) if x.batch == 1 else (x.slices_stride, x.scales_stride)
    return *strides, x.rows, x.rows8
