"""Kernels that come with the package: up to date, whole, and of no effect but on time."""

import sys
from itertools import count, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from mixpert_py.runtime import packing
from mixpert_py.runtime.gpu import gemm, residues
from mixpert_py.runtime.kernels import compile as compiling
from mixpert_py.runtime.kernels import shipped
from mixpert_py.runtime.kernels.compile import entry, source_text
from mixpert_py.runtime.model.device_model import find
from mixpert_py.runtime.model.kernel_times import KernelTimes, chip_of
from mixpert_py.runtime.model.prediction import depth_of
from mixpert_py.runtime.packing import launch, readers
from mixpert_py.runtime.packing import residues as residue_packing
from mixpert_py.runtime.packing.operand import Form
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes import emulation_of
from mixpert_py.runtime.splitter import Residues
from tests import shipped_kernels

KERNELS = [one for some in shipped_kernels.kernels().values() for one in some]
PTX = [one for one in KERNELS if isinstance(one, shipped_kernels.NumbaKernel)]
PACKING = "mixpert_py.runtime.packing.strip_kernels"
DEFAULT = emulation_of("faithful")
SCHEMES = ["faithful", "wider", "int8x6"]
CAPABILITIES = ["80", "86", "89", "90", "100", "103", "120", "121"]


def test_the_archive_is_up_to_date() -> None:
    """`python -m tests.shipped_kernels` makes it so."""
    assert shipped_kernels.is_current()


def test_the_archive_stays_small() -> None:
    assert shipped_kernels.ARCHIVE.stat().st_size < 2.1e6


def scheme_of(name: str) -> Scheme:
    if name == "wider":
        assert DEFAULT.wider is not None
        return DEFAULT.wider
    return emulation_of(name)


def forms(n: int, *turned: bool) -> tuple[Form, ...]:
    """The forms of A and B, square, whose columns are contiguous where they are turned."""
    along, across = (Form("float32", 1, n, n, 0, *strides, True) for strides in ((n, 1), (1, n)))
    return across if turned[0] else along, along if turned[1] else across


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("capability", CAPABILITIES)
def test_packing_of_float32_is_shipped(
    capability: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of sizes that are none of those that were listed, too."""
    monkeypatch.setattr(readers, "has_clusters", lambda device: capability == "90")
    monkeypatch.setattr(readers, "shared_memory", lambda device: 99 * 1024)
    sides = (64, 200, 500, 1000, 1100, 1500, 1700, 2000, 2500, 3300, 3500, 4096, 10_000)
    for n, a, b in product(sides, (False, True), (False, True)):
        task = launch.PackingTask(scheme_of(name), "both", forms(n, a, b), "float32")
        for kernel, part in packing.choices(task):
            config = readers.config_of(kernel, part)
            module, factory = config.kernel
            where = f"mixpert_py.runtime.packing.{module}", factory, config.constants
            ptx = shipped.ptx(*where, capability)
            assert ptx is not None, (n, a, b, kernel)
            assert entry(ptx)
            assert (b".target sm_90" if capability == "90" else b".target sm_80") in ptx


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize(
    ("device", "capability"),
    [("nvidia-h200", "90"), ("nvidia-a100-sxm4-80gb", "80"), ("nvidia-geforce-rtx-3090", "86")],
)
def test_gemm_kernels_of_float32_are_shipped(device: str, capability: str, name: str) -> None:
    """With the tiles that the model takes for products of many shapes."""
    model = find(device)
    times, scheme = KernelTimes(model, chip_of(model)), scheme_of(name)
    for m, k, n in product((300, 1000, 2048, 5000), (500, 4096, 70_000), (300, 1000, 4096)):
        depth = depth_of(scheme, k)
        tile = times.best(scheme, m, n, 1, depth, False)
        steps = depth.steps_per_block
        for mirrors in (False, True) if capability == "90" else (False,):
            constants = gemm.constants(
                scheme, tile, wide=False, steps_per_block=steps, mirrors=mirrors
            )
            cubin = shipped.cubin(source_text(times.chip.family.file, constants), capability)
            assert cubin is not None, (m, k, n)
            assert cubin.startswith(b"\x7fELF")
            assert b".text.gemm\0" in cubin


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("moduli", [14, 15, 16])
def test_the_defaults_of_float64_and_complex64_are_shipped(moduli: int, capability: str) -> None:
    scheme = emulation_of(f"crt{moduli}")
    how = residues.WGMMA if capability == "90" else residues.MMA
    shared = {"8": 101_376, "9": 232_448, "1": 232_448 if capability < "120" else 101_376}
    bytes_of_block = 166_912 if capability == "80" else shared[capability[0]]
    assert isinstance(scheme.left, Residues)
    assert scheme.left == scheme.right
    packed = residue_packing.definitions(scheme.left, "float64", recorded=True)
    for file, definitions, kernels in (
        (
            residue_packing.FILE,
            packed,
            (b"rows", b"maxima", b"sums", b"columns", b"look", b"judge"),
        ),
        (how.file, residues.of_gemm(scheme, "float64", how, bytes_of_block), (b"residue_gemm",)),
        (residues.RESULT, residues.of_result(scheme.moduli, "float64"), (b"result",)),
        ("complex_parts.cu", (("SINGLE", 1),), (b"split", b"join")),
    ):
        cubin = shipped.cubin(source_text(file, definitions), capability)
        assert cubin is not None, file
        assert all(b".text." + name + b"\0" in cubin for name in kernels)


def test_what_is_not_shipped() -> None:
    module, factory, constants, _ = PTX[0]
    assert shipped.ptx(module, factory, (*constants, 1), "90") is None
    assert shipped.ptx(module, factory, constants, "75") is None
    guard = source_text("guard.cu", ())
    assert shipped.cubin(guard, "75") is None
    assert shipped.cubin(f"{guard}\n", "90") is None


def changed(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the digest of one source be another, in the package and in what makes the archive."""
    real = shipped.digest
    monkeypatch.setattr(shipped, "digest", lambda x: real(x) * (1 + (x == path)))
    monkeypatch.setattr(shipped, "_is_current", shipped._is_current.__wrapped__)
    monkeypatch.setattr(shipped_kernels, "sources", shipped_kernels.sources.__wrapped__)


def test_of_other_sources_nothing_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """One changed file is enough, for the kernels that are made of it."""
    changed("packing/repair_kernels.py", monkeypatch)
    assert not shipped_kernels.is_current()
    one_each = {kernel.factory: kernel for kernel in PTX}
    assert len(one_each) > 1
    for kernel in one_each.values():
        found = shipped.ptx(kernel.module, kernel.factory, kernel.constants, kernel.capability)
        assert (found is None) == (kernel.factory == "repair_kernel")
        assert (shipped_kernels.shipped_code(kernel) is None) == (found is None)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 and no more", None])
def test_an_archive_that_is_none(
    content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if content is not None:
        (tmp_path / shipped.ARCHIVE).write_bytes(content)
    places: dict[str, Any] = {shipped.RUNTIME: tmp_path, f"{shipped.RUNTIME}.kernels": tmp_path}
    monkeypatch.setattr(shipped, "files", places.__getitem__)
    monkeypatch.setattr(shipped, "archive", shipped.archive.__wrapped__)
    assert shipped.archive() is None
    assert shipped.cubin(source_text("guard.cu", ()), "90") is None
    assert not shipped._is_current.__wrapped__(PACKING)


class RefusedError(Exception):
    """CuPy's CUDADriverError."""


class FakeDriver:
    """CuPy where there is no GPU. refuses: whether the driver loads no code that is shipped.

    loaded: code that was; compiled: texts that CuPy was given.
    """

    def __init__(self, *, refuses: bool) -> None:
        self.refuses = refuses
        self.loaded: list[bytes] = []
        self.compiled: list[str] = []
        self.driver = SimpleNamespace(CUDADriverError=RefusedError)
        self.compiler = SimpleNamespace(CompileException=RefusedError)
        self.function = SimpleNamespace(Module=lambda: SimpleNamespace(load=self.load, **HANDLE))

    def load(self, code: bytes) -> None:
        if self.refuses and (code.startswith(b"\x7fELF") or b"compiled here" not in code):
            raise RefusedError
        self.loaded.append(code)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        device = SimpleNamespace(id=next(NUMBERS), compute_capability="90")
        self.Device = lambda number=0: device

        def module(code: str, options: tuple[str, ...]) -> Any:
            self.compiled.append(code)
            function = SimpleNamespace(kernel=SimpleNamespace(ptr=2))
            return SimpleNamespace(get_function=lambda name: function)

        monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=self, RawModule=module))
        monkeypatch.setattr(compiling, "cuda_driver", lambda: None)
        monkeypatch.setattr(compiling, "_driver", mock.MagicMock)
        monkeypatch.setattr(compiling, "cached", lambda place, make: b".entry made( compiled here")


NUMBERS = count(1000)  # devices that no other test has used: kernels are kept for each
HANDLE = {"get_function": lambda name: SimpleNamespace(ptr=1)}
GUARD = "guard.cu", "guard", ()
REPAIR = "mixpert_py.runtime.packing.repair_kernels", "repair_kernel", ("float32",) * 3


@pytest.mark.parametrize("refuses", [False, True])
def test_what_a_driver_refuses_is_compiled(refuses: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = FakeDriver(refuses=refuses)
    gpu.install(monkeypatch)
    before = compiling.origins.copy()
    handle = compiling.cuda_kernel(*GUARD).handle
    assert handle == (2 if refuses else 1)
    assert gpu.compiled == ([source_text("guard.cu", ())] if refuses else [])
    assert compiling.numba_kernel(*REPAIR).handle == 1
    assert (b"compiled here" in gpu.loaded[-1]) == refuses
    made = compiling.origins - before
    assert made == {"compiled" if refuses else "shipped": 2}
