"""The instructions that are timed: matrix instructions, and multiply-adds of CUDA cores."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from mixpert_py.runtime.kernels import HOPPER
from mixpert_py.runtime.kernels.abi import ELEMENTS

WARP: Final = 32
WARPGROUP: Final = 128
THREADS: Final = 1024  # of warps, so that each of the four units has eight to choose from
CONSUMERS: Final = 2  # warpgroups, as the GEMM kernels have
SUMS: Final = 8  # of a thread of CUDA cores, one after the other, where a multiprocessor is full
WIDTHS: Final = (64, 128, 192, 256)  # of a wgmma
ROW: Final = 64  # bytes of K of what wgmma reads, as in wgmma.cu
K_BYTES: Final = 32  # that one of them takes

# Bits that random operands keep, and those set in them: floats then lie between 1/8 and 1/4.
RANDOM: Final = {
    "int8": ("0xffffffffu", "0u"),
    "float16": ("0x83ff83ffu", "0x30003000u"),
    "bfloat16": ("0x807f807fu", "0x3e003e00u"),
    "tf32": ("0x807fe000u", "0x3e000000u"),
}
PTX_TYPES: Final = {
    "int8": "s32.s8.s8.s32",
    "float16": "f32.f16.f16.f32",
    "bfloat16": "f32.bf16.bf16.f32",
    "tf32": "f32.tf32.tf32.f32",
    "float64": "f64.f64.f64.f64",
}
# Of mma.sync: (m, n, k), element, FORM in mma.cu.
SHAPES: Final = (
    ((16, 8, 16), "int8", 1),
    ((16, 8, 32), "int8", 0),
    ((16, 8, 8), "float16", 1),
    ((16, 8, 16), "float16", 0),
    ((16, 8, 8), "bfloat16", 1),
    ((16, 8, 16), "bfloat16", 0),
    ((16, 8, 4), "tf32", 1),
    ((16, 8, 8), "tf32", 0),
    ((8, 8, 4), "float64", 2),
)
HOPPER_SHAPES: Final = (((16, 8, 16), "float64", 3),)


class Spec(NamedTuple):
    """An instruction. name: as `device_model.Instruction` has it. operations: of one. constants: of
    the file; full: those that differ where a multiprocessor is full. group: threads that issue it
    together. threads: of a block that keeps a multiprocessor busy. shared: bytes of a block.
    """

    name: str
    element: str
    operations: int
    file: str
    constants: Mapping[str, int | str]
    group: int
    threads: int
    shared: int = 0
    full: Mapping[str, int | str] = MappingProxyType({})


def specs(capability: int) -> list[Spec]:
    """The instructions that are timed on a device of this compute capability."""
    hopper = capability == HOPPER
    return [
        _scalar("float32", "fma.rn.f32", 4),
        _scalar("float64", "fma.rn.f64", 5),
        *(_warp_wide(*shape) for shape in SHAPES + (HOPPER_SHAPES if hopper else ())),
        *(_warpgroup_wide() if hopper else ()),
    ]


def largest_int8(capability: int) -> Spec:
    """The INT8 product with the most operations, which is the fastest."""
    found = [spec for spec in specs(capability) if spec.element == "int8"]
    return max(found, key=lambda spec: spec.operations)


def _scalar(element: str, ptx: str, form: int) -> Spec:
    constants = _constants(ptx, form, element) | {"SUMS": 1}
    name, full = f"fma {element}", {"SUMS": SUMS}
    return Spec(name, element, 2 * WARP, "mma.cu", constants, WARP, THREADS, full=full)


def _warp_wide(shape: tuple[int, int, int], element: str, form: int) -> Spec:
    m, n, k = shape
    size = f"m{m}n{n}k{k}"
    ptx = f"mma.sync.aligned.{size}.row.col.{PTX_TYPES[element]}"
    constants = _constants(ptx, form, element)
    return Spec(
        f"mma.sync {size} {element}", element, 2 * m * n * k, "mma.cu", constants, WARP, THREADS
    )


def _constants(ptx: str, form: int, element: str) -> dict[str, int | str]:
    keep, set_ = RANDOM.get(element, ("0u", "0u"))
    return {
        "SHAPE": f'"{ptx}"',
        "FORM": form,
        "INTEGERS": int(element == "int8"),
        "KEEP": keep,
        "SET": set_,
        "THREADS": THREADS,
    }


def _warpgroup_wide() -> Iterator[Spec]:
    """A from shared memory comes first, as the GEMM kernels have most of it."""
    threads = CONSUMERS * WARPGROUP
    for element, (number, itemsize) in ELEMENTS.items():
        k = K_BYTES // itemsize
        for in_registers in (0, 1):
            for width in WIDTHS:
                name = f"wgmma m64n{width}k{k} {element}" + in_registers * " registers"
                keep, set_ = RANDOM[element]
                constants: dict[str, int | str] = {
                    "ELEMENT": number,
                    "TILE_N": width,
                    "REGISTERS_OF_A": in_registers,
                    "KEEP": keep,
                    "SET": set_,
                    "THREADS": threads,
                }
                shared = (width + 64 * CONSUMERS) * ROW
                operations = 2 * 64 * width * k
                yield Spec(
                    name, element, operations, "wgmma.cu", constants, WARPGROUP, threads, shared
                )
