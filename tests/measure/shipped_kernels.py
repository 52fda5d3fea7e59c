"""The kernels that come with the package: which, and the archive of what they compile to.

`python -m tests.measure.shipped_kernels` writes the archive; it needs numba-cuda and no GPU. With
`--check` it says whether the archive is up to date.
"""

import ast
import json
import sys
from importlib import import_module
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import click

from mixpert_py.cli import main
from mixpert_py.runtime import packing
from mixpert_py.runtime.kernels import shipped
from mixpert_py.runtime.kernels.compile import compiled
from mixpert_py.runtime.packing import blocks, launch, repair, rows
from mixpert_py.runtime.packing.operand import Form
from mixpert_py.runtime.schemes import emulation_of

ROOT = Path(__file__).parent.parent.parent
ARCHIVE = ROOT / "runtime" / "kernels" / shipped.ARCHIVE
DEFAULT = emulation_of("faithful")
SCHEMES = (DEFAULT, *([DEFAULT.wider] if DEFAULT.wider else []))  # the latter of large products
SIDES = (512, 1024, 2048, 4096, 8192, 16384, 32768)  # of square products
SHARED = {shipped.HOPPER: 227 * 1024, shipped.PORTABLE: 99 * 1024}

# What launches, keeps and finds kernels, and that none is made of.
HOST = {f"{shipped.RUNTIME}.{name}" for name in ("own_files", "code_cache")} | {
    f"{shipped.RUNTIME}.kernels.{name}" for name in ("kernel", "recording", "shipped")
}

Kernel = tuple[str, str, tuple[Any, ...]]


def kernels(capability: str) -> list[Kernel]:
    """Module, factory and constants of what float32 products of the default need on a device."""
    found: dict[Kernel, None] = {}
    with (
        mock.patch.object(rows, "has_clusters", return_value=capability == shipped.HOPPER),
        mock.patch.object(blocks, "shared_memory", return_value=SHARED[capability]),
    ):
        for scheme, n, a, b in product(SCHEMES, SIDES, (False, True), (False, True)):
            forms = _form(n, turned=a), _form(n, turned=not b)
            task = launch.PackingTask(scheme, "both", forms, "float32")
            for name, part in packing._choices(task):
                config = packing._config(name, part)
                module, factory = config.kernel
                found[f"{launch.PACKAGE}.{module}", factory, config.constants] = None
    found[repair.KERNELS, "repair_kernel", ("float32",) * 3] = None
    return list(found)


def _form(n: int, *, turned: bool) -> Form:
    """A square operand, contiguous along K, or across it."""
    return Form("float32", 1, n, n, 0, 1 if turned else n, n if turned else 1, aligned=True)


def sources(modules: set[str]) -> dict[str, str]:
    """Digests of the runtime's files that these modules, and what they import, are made of."""
    waiting, found = set(modules), {}
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


def compile_all() -> dict[str, bytes]:
    """PTX by the kernel's name in the archive."""
    dispatcher = import_module("numba.cuda.dispatcher")
    made = {}
    for capability in (shipped.HOPPER, shipped.PORTABLE):
        # Functions that a kernel calls are compiled for the device that is there.
        here = SimpleNamespace(compute_capability=tuple(map(int, capability)))
        with mock.patch.object(dispatcher, "get_current_device", return_value=here):
            for kernel in kernels(capability):
                made[shipped.name_of(*kernel, capability)] = compiled(*kernel, capability)
                print(capability, kernel[1], len(made), file=sys.stderr)
    return made


def write(made: dict[str, bytes]) -> None:
    """The archive, the same bytes for the same content."""
    modules = {kernel[0] for kernel in kernels(shipped.HOPPER) + kernels(shipped.PORTABLE)}
    content = {shipped.SOURCES: json.dumps(sources(modules), indent=1).encode(), **made}
    with ZipFile(ARCHIVE, "w") as archive:
        for name, data in sorted(content.items()):
            archive.writestr(ZipInfo(name), data, ZIP_DEFLATED, 9)


def is_current() -> bool:
    """Whether the archive was made of the sources as they are, and holds every kernel."""
    names = {
        shipped.name_of(*kernel, capability)
        for capability in (shipped.HOPPER, shipped.PORTABLE)
        for kernel in kernels(capability)
    }
    return shipped.names() == names


@click.command()
@click.option("--check", is_flag=True, help="Only say, by the exit code, whether it is up to date.")
def command(check: bool) -> None:
    """Write the archive of the kernels that come with the package."""
    if check:
        sys.exit(not is_current())
    write(compile_all())


if __name__ == "__main__":
    main(command, "python -m tests.measure.shipped_kernels")
