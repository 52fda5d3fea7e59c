"""The GEMM of residues, and the remainder theorem: two launches for each matrix.

`kernels/residue_gemm.cu` on Hopper, or `kernels/residue_gemm_sm80.cu` on other GPUs, makes the INT8
products modulo each p; `kernels/residue_result.cu` combines them. `schemes.residues` defines their
results bit for bit. A product of digits (`schemes.integers`) is one launch of a GEMM.
"""

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mixpert_py.runtime.arrays import PRECISION, GpuArray
from mixpert_py.runtime.complex_product import is_complex
from mixpert_py.runtime.kernels.abi import STEP
from mixpert_py.runtime.kernels.compile import Definitions, cuda_kernel
from mixpert_py.runtime.kernels.kernel import Kernel
from mixpert_py.runtime.kernels.recording import Stream, allocate
from mixpert_py.runtime.model.kernel_times import PORTABLE, Family, tiles_to_diagonal
from mixpert_py.runtime.packing.residues import TILE, of_moduli
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes.integers import Integers, digits_of
from mixpert_py.runtime.schemes.residues import Kind, of_complex, theorem

if TYPE_CHECKING:
    from mixpert_py.runtime.gpu.gemm import KernelChoice, KernelOperand

RESULT: Final = "residue_result.cu"
TILE_M, TILE_N = TILE["left"], TILE["right"]
GROUP = 8  # rows of tiles that consecutive blocks share
RESULT_THREADS = 128
UNIT_ROWS, UNIT_COLUMNS = 64, 32  # of C, for one block of the kernel that combines residues
RESERVED: Final = 1024  # bytes of each block's shared memory that the driver uses


class ResidueGemm(NamedTuple):
    """A GEMM for residues, and its launch.

    m, n: the part of a tile that a block makes at a time. warp_n: the columns of a warp, 0 if not
    used. resident: blocks per multiprocessor. stages: at most this many steps of both operands are
    held in a block.
    """

    file: str
    threads: int
    m: int
    n: int
    warp_n: int
    resident: int
    stages: int

    def held(self, shared: int) -> int:
        """The stages of a block on a device with this much shared memory per block."""
        each = (shared + RESERVED) // self.resident - RESERVED
        return min(self.stages, each // (STEP * (self.m + self.n)))

    def bytes(self, shared: int) -> int:
        """The bytes of these stages."""
        return self.held(shared) * STEP * (self.m + self.n)

    def definitions(self, shared: int) -> Definitions:
        """The constants of all its kernels on such a device."""
        stages = *_of_tiles(), ("STAGES", self.held(shared))
        if not self.warp_n:
            return stages
        parts = ("BLOCK_M", self.m), ("BLOCK_N", self.n), ("WARP_N", self.warp_n)
        return *stages, *parts, ("RESIDENT", self.resident)


WGMMA: Final = ResidueGemm("residue_gemm.cu", 384, TILE_M, TILE_N, 0, 1, 8)
MMA: Final = ResidueGemm("residue_gemm_sm80.cu", 256, TILE_M, TILE_N, 96, 1, 3)


def gemm(
    left: "KernelOperand",
    right: "KernelOperand",
    scheme: Scheme,
    out: GpuArray,
    stream: Stream,
    choice: "KernelChoice",
    gate: tuple[int, int],
) -> Any:
    """Enqueue out = A·B on a stream of the current device; a scheme of residues has packed A and B.

    out: (m, n) or (batch, m, n), any strides but the last, which is one element; complex if A and
    B are. If A and B are the same memory, C is symmetric: half of it is made, and mirrored. choice,
    gate: see `gemm.gemm`. Does not wait for the device. Returns the memory of the
    residues of C, which a CUDA graph must keep alive; None if there are none. Raises DeviceError if
    a kernel does not compile.
    """
    kernels = prepare(scheme, out.dtype.name, out.data.device_id, choice.family)
    (m, n), size = out.shape[-2:], out.itemsize
    (rows, columns), parts = tiles(m, n), 2 if is_complex(out) else 1
    left_behind = scratch(scheme, m, n, is_complex=parts == 2)
    memory = allocate(left_behind, stream) if left_behind else None
    leading, whole = out.strides[-2] // size, rows * columns
    each = 1 if kernels.result is None else len(slices(scheme, is_complex=parts == 2))
    how = kernels.how
    made, combined = -(-m // how.m) * -(-n // how.n), whole
    symmetric = left.slices == right.slices or choice.hermitian
    if symmetric:
        made = tiles_to_diagonal(how.m, how.n, n)
        combined = tiles_to_diagonal(TILE_M, TILE_N, n)
    grid = min(kernels.blocks, made * each)
    group = GROUP * TILE_M // how.m
    units = combined * (TILE_M // UNIT_ROWS) * (TILE_N // UNIT_COLUMNS)
    a, b = left.layout, right.layout
    for matrix in range(out.shape[0] if out.ndim == 3 else 1):
        address = out.data.ptr + (matrix * out.strides[0] if out.ndim == 3 else 0)
        operands = (left.slices + matrix * a.slices_stride, right.slices + matrix * b.slices_stride)
        scales = left.scales + matrix * a.scales_stride, right.scales + matrix * b.scales_stride
        # Whether two neighbours in a row of C, or both parts, can be written at once.
        wide = size if parts == 2 else 2 * size
        paired = int((address | leading * size) % wide == 0)
        residues = 0 if memory is None else memory.ptr
        sizes = a.steps, rows, columns, group, m, n, leading, paired, made * symmetric
        problem = *operands, residues, address, *sizes, *gate
        kernels.gemm.launch_words(grid, how.threads, problem, kernels.shared, stream)
        if kernels.result is None:
            continue
        place = address, m, n, leading, rows, columns, paired, combined * symmetric
        words = residues, *scales, *place, int(choice.hermitian), *gate
        kernels.result.launch_words(units, RESULT_THREADS * parts, words, 0, stream)
    return memory


def tiles(m: int, n: int) -> tuple[int, int]:
    """The numbers of rows and columns of tiles in C."""
    return -(-m // TILE_M), -(-n // TILE_N)


@lru_cache(maxsize=64)
def slices(scheme: Scheme, *, is_complex: bool) -> tuple[int, ...]:
    """The modulus of each INT8 product, or twice that: the GEMM reduces by numbers above 128."""
    if not is_complex:
        return scheme.moduli
    return tuple(_reduced_by(p) for p in of_complex(scheme.moduli) for _ in range(2))


def _reduced_by(modulus: int) -> int:
    return modulus if modulus > 128 else 2 * modulus


def scratch(scheme: Scheme, m: int, n: int, *, is_complex: bool = False) -> int:
    """Bytes of a matrix's intermediate results: residues, or the lowest bytes of all orders but
    the last.
    """
    digits, count = digits_of(scheme), len(slices(scheme, is_complex=is_complex))
    if digits is not None:
        count = digits[0].count + digits[1].count - 2
    rows, columns = tiles(m, n)
    return count * rows * columns * TILE_M * TILE_N


class ResidueKernels(NamedTuple):
    """A scheme's kernels on a device. result: None if the GEMM itself makes the result. blocks: of
    the GEMM, that the device runs at a time. shared: bytes of shared memory of each.
    """

    gemm: Kernel
    result: Kernel | None
    how: ResidueGemm
    blocks: int
    shared: int


@lru_cache(maxsize=256)
def prepare(
    scheme: Scheme, result: str, device: int, family: Family | None = None
) -> ResidueKernels:
    """The kernels for results of a type, on a device, which is the current one; compiles them.

    family: the kernels to use, None for the device's best.
    """
    import cupy

    its = cupy.cuda.Device(device)
    how = WGMMA if its.compute_capability == "90" and family is not PORTABLE else MMA
    shared = int(its.attributes["MaxSharedMemoryPerBlockOptin"])
    definitions, held = of_gemm(scheme, result, how, shared), how.bytes(shared)
    has_result = digits_of(scheme) is None
    return ResidueKernels(
        cuda_kernel(how.file, "residue_gemm", definitions, held),
        cuda_kernel(RESULT, "result", of_result(scheme.moduli, result)) if has_result else None,
        how,
        int(its.attributes["MultiProcessorCount"]) * how.resident,
        held,
    )


def of_gemm(scheme: Scheme, result: str, how: ResidueGemm, shared: int) -> Definitions:
    """The constants of a GEMM for a device with this much shared memory per block."""
    digits, is_complex = digits_of(scheme), result.startswith("complex")
    if digits is not None:
        return *of_digits(*digits, result), *how.definitions(shared)
    return *of_moduli(slices(scheme, is_complex=is_complex)), *how.definitions(shared)


def of_digits(left: Integers, right: Integers, result: str) -> Definitions:
    """Additional constants of a GEMM that multiplies digits and makes the result."""
    return (
        *of_moduli(left.moduli[:1]),
        ("A_DIGITS", left.count),
        ("B_DIGITS", right.count),
        ("A_TYPE", '"s8"' if left.signed else '"u8"'),
        ("B_TYPE", '"s8"' if right.signed else '"u8"'),
        ("SINGLE", int(result == "float32")),
    )


def of_result(moduli: tuple[int, ...], result: str) -> Definitions:
    """The numbers of the remainder theorem, as `residues.cuh` has them."""
    kinds: tuple[Kind, ...] = ("real",)
    if is_complex := result.startswith("complex"):
        moduli, kinds = of_complex(moduli), ("sum", "difference")
    weights, starts = zip(*(_weights(moduli, kind) for kind in kinds), strict=True)
    known = theorem(moduli, kinds[0])
    return (
        *of_moduli(moduli),
        ("PARTS", len(known.units)),
        ("WEIGHTS", ", ".join(weights)),
        ("STARTS", ", ".join(starts)),
        ("PRODUCT", _hexadecimal(known.product)),
        ("PART_UNITS", _hexadecimal(known.units)),
        ("INVERSE", (1 / sum(map(int, known.product))).hex()),
        *_of_tiles(),
        ("SINGLE", int(PRECISION[result] == "float32")),
        *((("COMPLEX", 1),) if is_complex else ()),
    )


def _weights(moduli: tuple[int, ...], kind: Kind) -> tuple[str, str]:
    """The weights of a part of C, and the sums of their parts that stand for 0, for CUDA."""
    rows = theorem(moduli, kind).weights
    unit = 256 if kind == "real" else 512
    # The bytes of 0: of a residue, of two, or of one and the complement of another.
    halves = [_reduced_by(p) // 2 for p in moduli]
    zeros = [{"real": half, "sum": 2 * half, "difference": 255}[kind] for half in halves]
    starts = [
        -float(sum(int(part) * (unit + zero) for part, zero in zip(parts, zeros, strict=True)))
        for parts in zip(*rows, strict=True)  # exact: see `schemes.residues`
    ]
    weights = ("{" + _hexadecimal([unit * part for part in row]) + "}" for row in rows)
    return "{" + ", ".join(weights) + "}", "{" + _hexadecimal(starts) + "}"


def _of_tiles() -> Definitions:
    return ("TILE_M", TILE_M), ("TILE_N", TILE_N)


def _hexadecimal(numbers: tuple[float, ...] | list[float]) -> str:
    return ", ".join(number.hex() for number in numbers)
