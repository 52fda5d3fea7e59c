"""Compiled kernels that come with the package, so that a first product does not wait for them.

An archive beside this file holds PTX of Numba's packing and repair kernels, and cubins of the GEMM
kernels, for int8x6 and the defaults of float32, float64 and, on Hopper, complex128. It is made by
`python -m tests.shipped_kernels`. A cubin is found by a digest of the text that it was compiled
from; PTX only while the sources of its module have the digests that the archive states. What is not
found, and what a driver refuses, is compiled where it is needed, as all others are. So results do
not depend on what is shipped.

Kernels that a product needs together lie side by side in one member of the archive: they are much
alike, so that they take a quarter of the space that each would by itself.
"""

import json
from collections.abc import Mapping
from functools import cache, lru_cache
from hashlib import sha256
from importlib.resources import files
from io import BytesIO
from typing import Any, Final, NamedTuple
from zipfile import BadZipFile, ZipFile

RUNTIME: Final = "mixpert_py.runtime"
ARCHIVE: Final = "shipped.zip"  # in this folder
INDEX: Final = "index.json"  # in the archive
PORTABLE: Final = "80"  # compute capability of PTX that runs on every later device as well
HOPPER: Final = "90"
# Options of NVRTC beside the architecture: the first is ours, CuPy adds the others.
STANDARD: Final = "-std=c++17"
OPTIONS: Final = (STANDARD, "-ftz=true", "--device-as-default-execution-space")
# By a device's compute capability, the architecture whose cubins it runs: of the same major number,
# and no later. Devices of one architecture let a block have as much shared memory.
ARCHITECTURES: Final[Mapping[str, str]] = {
    "80": "80",
    "86": "86",
    "89": "86",
    "90": "90a",
    "100": "100",
    "103": "100",
    "120": "120",
    "121": "120",
}
UNREADABLE: Final = (BadZipFile, KeyError, OSError, RuntimeError, TypeError, ValueError)

Sources = Mapping[str, Mapping[str, str]]  # module → path below the runtime → digest
# A member of the archive, and where in it a kernel begins and ends.
ArchivePlace = tuple[str, int, int]


class Archive(NamedTuple):
    """The archive. sources: of the modules whose kernels are in it; places: by a kernel's name."""

    file: ZipFile
    sources: Sources
    places: Mapping[str, ArchivePlace]


def ptx(module: str, factory: str, constants: tuple[Any, ...], capability: str) -> bytes | None:
    """The PTX of a factory's kernel for a device; None where none that is up to date is shipped."""
    built_for = HOPPER if capability == HOPPER else PORTABLE
    if int(capability) < int(built_for) or not _is_current(module):
        return None
    return read(name_of(module, factory, repr(constants), built_for))


def cubin(text: str, capability: str) -> bytes | None:
    """The machine code of a CUDA C++ text for a device; None where none is shipped."""
    architecture = ARCHITECTURES.get(capability)
    return None if architecture is None else read(name_of(text, *options(architecture)))


def options(architecture: str) -> tuple[str, ...]:
    """The options of NVRTC that a cubin is made with."""
    return (*OPTIONS, f"-arch=sm_{architecture}")


def name_of(*parts: str) -> str:
    """Names a kernel in the archive, by all that it is made of."""
    return sha256("\0".join(parts).encode()).hexdigest()[:32]


def digest(path: str) -> str:
    """The digest of a source file, by its path below the runtime."""
    return sha256(files(RUNTIME).joinpath(path).read_bytes()).hexdigest()


def read(name: str) -> bytes | None:
    """A kernel's code; None where the archive has none of this name."""
    found = archive()
    if found is None or name not in found.places:
        return None
    member, start, end = found.places[name]
    try:
        return _member(member)[start:end]
    except UNREADABLE:  # a Python without LZMA, for one
        return None


@cache
def archive() -> Archive | None:
    """The shipped kernels; None if the archive cannot be read."""
    try:
        file = ZipFile(BytesIO(files(f"{RUNTIME}.kernels").joinpath(ARCHIVE).read_bytes()))
        index = json.loads(file.read(INDEX))
        return Archive(file, index["sources"], index["places"])
    except UNREADABLE:
        return None


@lru_cache(4)
def _member(name: str) -> bytes:
    found = archive()
    assert found is not None
    return found.file.read(name)


@cache
def _is_current(module: str) -> bool:
    """Whether the kernels of a module were compiled from the sources as they are."""
    found = archive()
    sources = None if found is None else found.sources.get(module)
    if not sources:
        return False
    try:
        return all(digest(path) == wanted for path, wanted in sources.items())
    except OSError:
        return False
