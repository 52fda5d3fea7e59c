"""PTX of Numba's kernels that comes with the package, so that a first product does not wait for it.

An archive beside this file holds the kernels of the default scheme, as `python -m
tests.measure.shipped_kernels` compiled them, and the digests of the sources that they were compiled
from. Where any of these has changed, none of its kernels is taken: each is compiled where it is
needed, as all others are. So results do not depend on what is shipped.
"""

import json
from functools import cache
from hashlib import sha256
from importlib.resources import files
from io import BytesIO
from typing import Any, Final
from zipfile import BadZipFile, ZipFile

RUNTIME: Final = "mixpert_py.runtime"
ARCHIVE: Final = "shipped.zip"  # in this folder
SOURCES: Final = "sources.json"  # in the archive: path below the runtime → digest
PORTABLE: Final = "80"  # compute capability of what runs on every later device as well
HOPPER: Final = "90"


def find(module: str, factory: str, constants: tuple[Any, ...], capability: str) -> bytes | None:
    """The PTX of a factory's kernel for a device; None where none that is up to date is shipped."""
    built_for = HOPPER if capability == HOPPER else PORTABLE
    archive = _archive()
    if archive is None or int(capability) < int(built_for):
        return None
    try:
        return archive.read(name_of(module, factory, constants, built_for))
    except (BadZipFile, KeyError, OSError):
        return None


def name_of(module: str, factory: str, constants: tuple[Any, ...], capability: str) -> str:
    """Names a kernel in the archive."""
    text = "\0".join((module, factory, repr(constants), capability))
    return sha256(text.encode()).hexdigest()[:32]


def digest(path: str) -> str:
    """Of a source file, by its path below the runtime."""
    return sha256(files(RUNTIME).joinpath(path).read_bytes()).hexdigest()


def names() -> frozenset[str]:
    """The kernels that are shipped; none where they are not up to date."""
    archive = _archive()
    return frozenset() if archive is None else frozenset(archive.namelist()) - {SOURCES}


@cache
def _archive() -> ZipFile | None:
    """The archive; None where it cannot be read, or a source has changed."""
    try:
        archive = ZipFile(BytesIO(files(f"{RUNTIME}.kernels").joinpath(ARCHIVE).read_bytes()))
        sources = json.loads(archive.read(SOURCES))
        current = all(digest(path) == wanted for path, wanted in sources.items())
    except (BadZipFile, KeyError, OSError, ValueError):
        return None
    return archive if current else None
