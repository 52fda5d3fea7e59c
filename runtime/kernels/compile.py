"""Kernels compiled once per machine, and kept in the user's own directory.

Some come compiled with the package (`shipped`). Of the others, CUDA C++ is compiled, and kept, by
CuPy. Numba's kernels are compiled to PTX, kept here until our sources change, and loaded by CuPy,
so that a process that finds them imports no Numba.
"""

import re
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib.resources import files
from pathlib import Path
from threading import RLock
from typing import Any, Literal, TypeVar

from mixpert_py.errors import DeviceError
from mixpert_py.runtime import own_files
from mixpert_py.runtime.kernels import shipped
from mixpert_py.runtime.kernels.abi import HEADERS
from mixpert_py.runtime.kernels.kernel import Kernel, cuda_driver
from mixpert_py.runtime.kernels.numba_ptx import CLUSTERED, compiled
from mixpert_py.runtime.own_files import CodeCache

T = TypeVar("T")
Definitions = tuple[tuple[str, int | str], ...]  # constants of a CUDA file, by name

KERNELS = "mixpert_py.runtime.kernels"
FIRST_EARLY = 90  # compute capability of devices that start a launch before the last one's end
WAITS = "griddepcontrol.wait"  # in what may be started so
# CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED: more than eight blocks, which not every
# device can have.
ANY_CLUSTER = 14

# How many of this process's kernels came with the package, and how many were compiled, by this
# process or an earlier one.
origins: Counter[Literal["shipped", "compiled"]] = Counter()


def cuda_kernel(
    file: str, name: str, constants: Definitions, shared: int = 0, package: str = KERNELS
) -> Kernel:
    """Kernel `name` of a CUDA C++ file in this folder, or in a package's, for the current device.

    constants: preprocessor definitions. shared: bytes of dynamic shared memory that launches will
    ask for. Raises DeviceError where it does not compile.
    """
    import cupy

    return _cuda_kernel(file, name, constants, shared, package, cupy.cuda.Device().id)


def numba_kernel(module: str, factory: str, constants: tuple[Any, ...], shared: int = 0) -> Kernel:
    """Kernel of a Numba factory, for the current device.

    `factory(*constants)` in `module` gives the Python function and its Numba argument types:
    pointers and scalars only, so that arguments are passed one by one as in C. The function may
    have `launch_bounds`: threads of a block, blocks that a multiprocessor is to have room for; and
    `cluster`: blocks of one, of which launches have whole ones. It waits by itself for the launch
    before it, see `intrinsics.launched`. Raises DeviceError where it does not compile.
    """
    import cupy

    return _numba_kernel(module, factory, constants, shared, cupy.cuda.Device().id)


def once(make: Callable[..., T]) -> Callable[..., T]:
    """As `functools.cache`, but threads that want the same wait for one that makes it."""
    made: dict[tuple[Any, ...], T] = {}
    making: dict[tuple[Any, ...], RLock] = {}

    def found(*key: Any) -> T:
        if key not in made:
            with making.setdefault(key, RLock()):
                if key not in made:
                    made[key] = make(*key)
        return made[key]

    return found


@once
def _cuda_kernel(
    file: str, name: str, constants: Definitions, shared: int, package: str, device: int
) -> Kernel:
    import cupy

    capability = cupy.cuda.Device(device).compute_capability
    source = source_text(file, constants, package)
    early = WAITS in source and int(capability) >= FIRST_EARLY
    cubin = shipped.cubin(source, capability)
    if cubin is not None:
        with suppress(cupy.cuda.driver.CUDADriverError):  # of a driver older than the compiler
            loaded, function = _function(cubin, name, shared)
            origins["shipped"] += 1
            return Kernel(name, function.ptr, (loaded, function), cuda_driver(), early)
    suffix = "a" if capability == "90" else ""  # wgmma is of sm_90a, not of sm_90
    options = (shipped.STANDARD, f"-arch=sm_{capability}{suffix}")
    origins["compiled"] += 1
    module = cupy.RawModule(code=source, options=options)
    try:
        function = module.get_function(name)
        if shared:  # more than 48 KB, with what the kernel itself takes, must be asked for
            function.max_dynamic_shared_size_bytes = shared
        handle = function.kernel.ptr
    except (cupy.cuda.compiler.CompileException, cupy.cuda.driver.CUDADriverError) as error:
        raise DeviceError(f"kernel {name!r} of {file}: {str(error).splitlines()[0]}") from error
    # Not the RawModule: CuPy's memory of modules keeps its code, until `cupy.clear_memo`.
    return Kernel(name, handle, function, cuda_driver(), early)


@once
def _numba_kernel(
    module: str, factory: str, constants: tuple[Any, ...], shared: int, device: int
) -> Kernel:
    import cupy

    capability = cupy.cuda.Device(device).compute_capability
    ptx = shipped.ptx(module, factory, constants, capability)
    if ptx is not None:
        with suppress(cupy.cuda.driver.CUDADriverError):  # an older driver, which knows it not
            kernel = _loaded(ptx, factory, shared, capability)
            origins["shipped"] += 1
            return kernel
    origins["compiled"] += 1
    ptx = cached(
        place_of(module, factory, repr(constants), capability),
        lambda: compiled(module, factory, constants, capability),
    )
    return _loaded(ptx, factory, shared, capability)


def _loaded(ptx: bytes, name: str, shared: int, capability: str) -> Kernel:
    """The kernel of a PTX text on the current device. Text for earlier devices has no waiting."""
    early = int(capability) >= FIRST_EARLY and WAITS.encode() in ptx
    loaded, function = _function(ptx, entry(ptx), shared)
    if CLUSTERED in ptx:
        _driver().funcSetAttribute(function.ptr, ANY_CLUSTER, 1)
    return Kernel(name, function.ptr, (loaded, function), cuda_driver(), early)


def _function(code: bytes, name: str, shared: int) -> tuple[Any, Any]:
    """CuPy's module and function of a kernel in PTX or a cubin. shared: as of `cuda_kernel`."""
    import cupy

    loaded = cupy.cuda.function.Module()
    loaded.load(code)
    function = loaded.get_function(name)
    if shared:
        driver = _driver()
        driver.funcSetAttribute(
            function.ptr, driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared
        )
    return loaded, function


def source_text(file: str, constants: Definitions, package: str = KERNELS) -> str:
    """The text of a CUDA C++ file of a package as it is compiled: definitions, then the file.

    What it includes, a file of its package or of this folder or one of `abi.HEADERS`, stands in it:
    CuPy keeps compiled code by its text, and does not see what the text would include.
    """
    definitions = "".join(f"#define {key} {value}\n" for key, value in constants)
    return definitions + _expanded(file, package)


@cache
def _expanded(file: str, package: str) -> str:
    if file in HEADERS:
        return HEADERS[file]
    source = files(package).joinpath(file)
    if not source.is_file():
        source = files(KERNELS).joinpath(file)
    return re.sub(
        r'^#include "(.+)"$',
        lambda found: _expanded(found[1], package),
        source.read_text(encoding="utf-8"),
        flags=re.MULTILINE,
    )


def cached(place: bytes, make: Callable[[], bytes]) -> bytes:
    """The code that `make` has made for this place from the sources as they are, or makes now.

    A home that cannot be written costs a compilation per process, nothing else.
    """
    cache, state = CodeCache(own_files.folder("kernels")), _sources()
    found = cache.load(place, state)
    if found is None:
        found = make()
        cache.keep(place, state, found)
    return found


def place_of(*parts: str) -> bytes:
    """Names what is compiled, by which Numba, and in which installation of ours."""
    from importlib import metadata  # not above: most processes find all kernels shipped

    texts = [str(files("mixpert_py.runtime")), metadata.version("numba-cuda"), *parts]
    return "\0".join(texts).encode("utf-8", "surrogatepass")


@cache
def _sources() -> bytes:
    """The modules of the runtime: kernels take constants and functions from all of them."""
    paths = sorted(Path(str(files("mixpert_py.runtime"))).rglob("*.py"))
    return b"\0".join(path.read_bytes() for path in paths)


def entry(ptx: bytes) -> str:
    """The name of the one kernel in a PTX text."""
    return ptx.partition(b".entry ")[2].partition(b"(")[0].strip().decode()


@cache
def _driver() -> Any:
    from cupy_backends.cuda.api import driver

    return driver
