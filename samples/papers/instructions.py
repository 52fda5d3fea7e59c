"""The time of an instruction alone and in a chain, and the rate of a full chip.

Matrix instructions are timed, and multiply-adds of CUDA cores.
"""

from collections.abc import Iterator, Mapping
from statistics import median
from types import MappingProxyType
from typing import Final, NamedTuple

from mixpert_py.runtime.kernels import HOPPER
from mixpert_py.runtime.kernels.abi import ELEMENTS
from mixpert_py.runtime.model.device_model import Instruction
from mixpert_py.runtime.probes.gpu import REPEATS
from samples.papers.gpu import Gpu

GROUP = 32  # instructions between two looks at a chain's loop, as in timing.cuh
STEPS = 64  # of a chain on its own
FULL_SECONDS = 4e-3  # of a full chip, so that what surrounds them does not show
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
    for element, (number, itemsize, _) in ELEMENTS.items():
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


class Elapsed(NamedTuple):
    """The time of a typical block."""

    cycles: float
    seconds: float


class Timer:
    """The two kernels of timing.cuh around one instruction."""

    def __init__(self, gpu: Gpu, spec: Spec) -> None:
        self.gpu, self.spec = gpu, spec
        self.full = (gpu.multiprocessors, spec.threads)
        self._out = gpu.words(2 * gpu.multiprocessors)
        self._sink = gpu.words(gpu.multiprocessors * spec.threads)
        self._alone = gpu.kernel(spec.file, "alone", spec.constants, spec.shared)
        full = {**spec.constants, **spec.full}
        self._chain = gpu.kernel(spec.file, "chain", spec.constants, spec.shared)
        self._full = gpu.kernel(spec.file, "chain", full, spec.shared)

    def latency(self) -> float:
        """Cycles until the result of one can be used. Of REPEATS, as `cycles`."""
        words = (self._out.data.ptr, self._sink.data.ptr)
        both = []
        for _ in range(REPEATS):
            self.gpu.run(self._alone, 1, self.spec.group, *words, shared=self.spec.shared)
            both.append(self._out.get()[:2])
        with_one, without = map(min, zip(*both, strict=True))
        return float(with_one) - float(without)

    def launch(self, grid: int, threads: int, steps: int) -> None:
        """Chains of `steps` groups, on its own or of a full chip; does not wait."""
        words = (self._out.data.ptr, self._sink.data.ptr, steps)
        kernel = self._chain if threads == self.spec.group else self._full
        self.gpu.run(kernel, grid, threads, *words, shared=self.spec.shared)

    def elapsed(self, grid: int, threads: int, steps: int) -> Elapsed:
        """The time that such chains took."""
        self.launch(grid, threads, steps)
        times = self._out.get()[: 2 * grid].reshape(grid, 2)
        return Elapsed(float(median(times[:, 0])), float(median(times[:, 1])) * 1e-9)

    def cycles(self, grid: int, threads: int, steps: int) -> float:
        """The fewest that such chains took of REPEATS times: other processes only add to them."""
        return min(self.elapsed(grid, threads, steps).cycles for _ in range(REPEATS))

    def steps_of(self, seconds: float) -> int:
        """Groups that keep a full chip busy so long."""
        self.elapsed(*self.full, STEPS)  # loads the code
        return max(STEPS, int(STEPS * seconds / self.elapsed(*self.full, STEPS).seconds))


def timings() -> list[Instruction]:
    """Time all instructions that the current device has. Raises DeviceError without a GPU."""
    gpu = Gpu.current()
    return [timed(gpu, spec) for spec in specs(gpu.device.capability)]


def timed(gpu: Gpu, spec: Spec) -> Instruction:
    """Time an instruction on a device."""
    timer = Timer(gpu, spec)
    timer.elapsed(1, spec.group, 1)  # loads the code
    chain = timer.cycles(1, spec.group, STEPS) / (STEPS * GROUP)
    steps = timer.steps_of(FULL_SECONDS)
    on_one = steps * GROUP * (spec.threads // spec.group)  # instructions on a multiprocessor
    seconds = gpu.seconds(lambda: timer.launch(*timer.full, steps))
    return Instruction(
        name=spec.name,
        latency=timer.latency(),
        chain=chain,
        interval=timer.cycles(*timer.full, steps) / on_one,
        rate=spec.operations * on_one * gpu.multiprocessors / seconds,
    )
