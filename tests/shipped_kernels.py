"""The kernels that come with the package: which, and the archive of what they compile to.

`python -m tests.shipped_kernels` writes the archive; it needs numba-cuda with its extra for
CUDA 13, and no GPU. It takes over what the archive has of sources that have not changed. With
`--check` it only says whether the archive is up to date.
"""

import ast
import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from importlib import import_module
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock
from zipfile import ZIP_DEFLATED, ZIP_LZMA, ZipFile, ZipInfo

import click

from mixpert_py.cli import main
from mixpert_py.runtime import packing
from mixpert_py.runtime.gpu import gemm, residues
from mixpert_py.runtime.kernels import shipped
from mixpert_py.runtime.kernels.compile import source_text
from mixpert_py.runtime.kernels.numba_ptx import compiled
from mixpert_py.runtime.model.kernel_times import HOPPER, PORTABLE, Depth, TargetChip, candidates
from mixpert_py.runtime.packing import launch, readers, repair
from mixpert_py.runtime.packing import residues as residue_packing
from mixpert_py.runtime.packing.operand import Form, layout
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes import crt, emulation_of
from mixpert_py.runtime.schemes.integers import Bounds, digits_of, scheme_for
from mixpert_py.runtime.splitter import Residues

ROOT = Path(__file__).parents[1]
ARCHIVE = ROOT / "runtime" / "kernels" / shipped.ARCHIVE
PROCESSES = 2
DEFAULT = emulation_of("faithful")
# Of float32: the default, its wider scheme for large products, and the next of `--ladder int8`.
SCHEMES = (DEFAULT, *([DEFAULT.wider] if DEFAULT.wider else []), emulation_of("int8x6"))
# `crt`, the default of float64: with as many moduli as data needs, and of the commonest integers.
RESIDUES = (
    *(emulation_of(f"crt{count}") for count in range(crt.FEWEST, crt.MOST + 1)),
    *(
        scheme
        for bounds in (Bounds(0, 255), Bounds(-128, 127), Bounds(-30_000, 30_000))
        if (scheme := scheme_for(bounds, bounds, 4096)) is not None
    ),
)
OF_COMPLEX = [emulation_of(f"crt{crt.FEWEST}").left]  # by which most complex products are made
DTYPE = "float32"  # of products by SCHEMES; those of float64 are made by RESIDUES
# Sides of square products. Their lengths of K take every kernel that packs any length.
SIDES = (256, 512, 768, 1024, 1280, 1536, 1600, 2048, 2560, 3072, 3328, 4096, 8192, 16384, 32768)
# Bytes of shared memory that a block may have, of devices for which there is PTX, and cubins.
PTX_SHARED = {shipped.HOPPER: 227 * 1024, shipped.PORTABLE: 99 * 1024}
CUBIN_SHARED = {
    "80": 163 * 1024,
    "86": 99 * 1024,
    "90a": 227 * 1024,
    "100": 227 * 1024,
    "120": 99 * 1024,
}

COMPILER = f"{shipped.RUNTIME}.kernels.numba_ptx"
# What launches, keeps and finds kernels, and the types of arrays: no kernel is made of these.
HOST = {f"{shipped.RUNTIME}.{name}" for name in ("arrays", "own_files", "code_cache")} | {
    f"{shipped.RUNTIME}.kernels.{name}" for name in ("compile", "kernel", "recording", "shipped")
}


class NumbaKernel(NamedTuple):
    """A factory's kernel, compiled to PTX for devices of a compute capability and later."""

    module: str
    factory: str
    constants: tuple[Any, ...]
    capability: str

    @property
    def name(self) -> str:
        return shipped.name_of(self.module, self.factory, repr(self.constants), self.capability)

    def compile(self) -> bytes:
        """Its PTX. Functions that it calls are compiled for the device that is there."""
        dispatcher = import_module("numba.cuda.dispatcher")
        here = SimpleNamespace(compute_capability=tuple(map(int, self.capability)))
        with mock.patch.object(dispatcher, "get_current_device", return_value=here):
            return compiled(self.module, self.factory, self.constants, self.capability)


class CudaKernel(NamedTuple):
    """A CUDA C++ text, compiled to machine code of an architecture."""

    text: str
    architecture: str

    @property
    def name(self) -> str:
        return shipped.name_of(self.text, *shipped.options(self.architecture))

    def compile(self) -> bytes:
        """Its cubin. Raises RuntimeError with what the compiler says."""
        from cuda.bindings import nvrtc

        _, program = nvrtc.nvrtcCreateProgram(self.text.encode(), b"kernel.cu", 0, [], [])
        options = [option.encode() for option in shipped.options(self.architecture)]
        (failed,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        if failed:
            log = b" " * nvrtc.nvrtcGetProgramLogSize(program)[1]
            nvrtc.nvrtcGetProgramLog(program, log)
            raise RuntimeError(log.decode())
        cubin: bytes = b" " * nvrtc.nvrtcGetCUBINSize(program)[1]
        nvrtc.nvrtcGetCUBIN(program, cubin)
        nvrtc.nvrtcDestroyProgram(program)
        return cubin


Kernel = NumbaKernel | CudaKernel


def kernels() -> dict[str, list[Kernel]]:
    """The kernels to ship, each once, by the archive's members, which hold what products of one
    scheme and type need on devices of one kind.
    """
    members: dict[str, list[Kernel]] = defaultdict(list)
    seen: set[str] = set()
    found: list[tuple[str, Kernel]] = [*_numba_kernels(), *_cuda_kernels()]
    for member, kernel in found:
        if kernel.name not in seen:
            seen.add(kernel.name)
            members[member].append(kernel)
    return members


def _numba_kernels() -> Iterator[tuple[str, NumbaKernel]]:
    """Packing and repair, and the member of the archive that each belongs to."""
    for capability in PTX_SHARED:  # of `crt`
        double = ("float64",) * 3
        yield (
            f"{capability}-crt.ptx",
            NumbaKernel(repair.KERNELS, "repair_kernel", double, capability),
        )
    for capability, scheme in product(PTX_SHARED, SCHEMES):
        member = f"{capability}-{scheme.name}.ptx"
        yield member, NumbaKernel(repair.KERNELS, "repair_kernel", (DTYPE,) * 3, capability)
        for config in packing_configs(scheme, capability):
            module, factory = config.kernel
            where = f"{launch.PACKAGE}.{module}"
            yield member, NumbaKernel(where, factory, config.constants, capability)


def packing_configs(scheme: Scheme, capability: str) -> list[launch.PackingConfig]:
    """How products of a scheme pack their operands, of all sizes and usual layouts."""
    found = []
    with (
        mock.patch.object(readers, "has_clusters", return_value=capability == shipped.HOPPER),
        mock.patch.object(readers, "shared_memory", return_value=PTX_SHARED[capability]),
    ):
        for n, a, b in product(SIDES, (False, True), (False, True)):
            forms = _form(n, turned=a), _form(n, turned=not b)
            task = launch.PackingTask(scheme, "both", forms, DTYPE)
            found += [readers.config_of(*choice) for choice in packing.choices(task)]
    return found


def _form(n: int, *, turned: bool) -> Form:
    """A square operand, contiguous along K, or across it."""
    return Form(DTYPE, 1, n, n, 0, 1 if turned else n, n if turned else 1, aligned=True)


def _cuda_kernels() -> Iterator[tuple[str, CudaKernel]]:
    """The GEMM kernels with all their tiles, the guard of large products, complex64 in parts."""
    for architecture, scheme in product(CUBIN_SHARED, SCHEMES):
        member = f"{architecture}-{scheme.name}.cubin"
        for text in gemm_texts(scheme, architecture):
            yield member, CudaKernel(text, architecture)
        if scheme.wider is not None:
            yield member, CudaKernel(source_text("guard.cu", ()), architecture)
            parts = source_text("complex_parts.cu", (("SINGLE", 1),))
            yield member, CudaKernel(parts, architecture)
    for architecture, scheme in product(CUBIN_SHARED, RESIDUES):
        member = f"{architecture}-crt.cubin"
        for text in residue_texts(scheme, architecture):
            yield member, CudaKernel(text, architecture)


def gemm_texts(scheme: Scheme, architecture: str) -> list[str]:
    """The sources of the GEMM kernel of a scheme, with every tile that the model may take."""
    family = HOPPER if architecture == "90a" else PORTABLE
    chip = TargetChip(family, 1, CUBIN_SHARED[architecture])
    found = []
    for n in SIDES:
        place = layout(scheme.left, 1, n, n, scheme.lengths(n)[1])
        depth = Depth(place.steps, place.blocks, place.steps_per_block)
        for tile in candidates(scheme, depth, wide=False, chip=chip):
            steps = depth.steps_per_block
            for mirrors in (False, True) if family is HOPPER else (False,):
                constants = gemm.constants(
                    scheme, tile, wide=False, steps_per_block=steps, mirrors=mirrors
                )
                found.append(source_text(family.file, constants))
    return list(dict.fromkeys(found))


def residue_texts(scheme: Scheme, architecture: str) -> list[str]:
    """The sources of the kernels of products by residues, or by digits of integers."""
    how = residues.WGMMA if architecture == "90a" else residues.MMA
    shared = CUBIN_SHARED[architecture]
    splitters = dict.fromkeys((scheme.left, scheme.right))
    found = [
        (residue_packing.FILE, residue_packing.definitions(it, "float64", recorded=True))
        for it in splitters
        if isinstance(it, Residues)
    ]
    found.append((how.file, residues.of_gemm(scheme, "float64", how, shared)))
    if digits_of(scheme) is None:
        found.append((residues.RESULT, residues.of_result(scheme.moduli, "float64")))
    if scheme.left in OF_COMPLEX and architecture == "90a":
        assert isinstance(scheme.left, Residues)
        wide = "complex128"
        given = residue_packing.definitions(scheme.left, wide, recorded=True)
        found.append((residue_packing.FILE, given))
        found.append((how.file, residues.of_gemm(scheme, wide, how, shared)))
        found.append((residues.RESULT, residues.of_result(scheme.moduli, wide)))
    return [source_text(file, definitions) for file, definitions in found]


@cache
def sources(module: str) -> dict[str, str]:
    """Digests of the runtime's files that the kernels of a module are made of: its own, those that
    it imports, and what compiles it.
    """
    waiting, found = {module, COMPILER}, {}
    while waiting:
        module = waiting.pop()
        path = module.removeprefix(f"{shipped.RUNTIME}.").replace(".", "/") + ".py"
        if not (ROOT / "runtime" / path).exists():
            path = path.removesuffix(".py") + "/__init__.py"
        if module in HOST or path in found or not (ROOT / "runtime" / path).exists():
            continue
        found[path] = shipped.digest(path)
        for node in ast.walk(ast.parse((ROOT / "runtime" / path).read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(shipped.RUNTIME):
                waiting |= {str(node.module), *(f"{node.module}.{x.name}" for x in node.names)}
    return dict(sorted(found.items()))


def all_sources() -> dict[str, dict[str, str]]:
    """Digests of the sources of each module that kernels to ship are of."""
    found = {one.module for some in kernels().values() for one in some if type(one) is NumbaKernel}
    return {module: sources(module) for module in sorted(found)}


def is_current() -> bool:
    """Whether the archive was made of the sources as they are, and holds every kernel."""
    found = shipped.archive()
    names = {one.name for some in kernels().values() for one in some}
    return found is not None and found.places.keys() == names and found.sources == all_sources()


def shipped_code(kernel: Kernel) -> bytes | None:
    """What the archive has of a kernel, compiled from its sources as they are."""
    found = shipped.archive()
    if found is None:
        return None
    if isinstance(kernel, NumbaKernel) and found.sources.get(kernel.module) != sources(
        kernel.module
    ):
        return None
    return shipped.read(kernel.name)


def compile_all() -> dict[str, bytes]:
    """The code of every kernel by its name, as it is in the archive or compiled now."""
    wanted = [one for some in kernels().values() for one in some]
    made = {one.name: code for one in wanted if (code := shipped_code(one)) is not None}
    missing = [one for one in wanted if one.name not in made]
    # Not forked: threads of this process may hold locks.
    with ProcessPoolExecutor(PROCESSES, get_context("spawn")) as pool:
        for one, code in zip(missing, pool.map(compile_one, missing), strict=True):
            made[one.name] = code
            print(f"{len(made)} of {len(wanted)}", file=sys.stderr)
    return made


def compile_one(kernel: Kernel) -> bytes:
    return kernel.compile()


def write(made: dict[str, bytes]) -> None:
    """Write the archive, the same bytes for the same content."""
    places: dict[str, shipped.ArchivePlace] = {}
    content = {}
    for member, some in kernels().items():
        start, codes = 0, []
        for name in sorted(one.name for one in some):
            places[name] = member, start, start + len(made[name])
            codes.append(made[name])
            start += len(made[name])
        content[member] = b"".join(codes)
    index = {"sources": all_sources(), "places": dict(sorted(places.items()))}
    with ZipFile(ARCHIVE, "w") as archive:
        text = json.dumps(index, indent=1).encode()
        archive.writestr(ZipInfo(shipped.INDEX), text, ZIP_DEFLATED, 9)
        for member, data in sorted(content.items()):
            archive.writestr(ZipInfo(member), data, ZIP_LZMA)


@click.command()
@click.option("--check", is_flag=True, help="Only say, by the exit code, whether it is up to date.")
def command(check: bool) -> None:
    """Write the archive of the kernels that come with the package."""
    if check:
        sys.exit(not is_current())
    write(compile_all())


if __name__ == "__main__":
    main(command, "python -m tests.shipped_kernels")
