"""Kernels compiled once per machine, and kept in the user's own directory.

CUDA C++ is compiled, and kept, by CuPy. Numba's kernels are compiled to PTX, kept here until our
sources change, and loaded by CuPy, so that a process that finds them imports no Numba.
"""

import gc
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module, metadata
from importlib.resources import files
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar

from mixpert_py.errors import DeviceError
from mixpert_py.runtime import own_files
from mixpert_py.runtime.code_cache import CodeCache
from mixpert_py.runtime.kernels import shipped
from mixpert_py.runtime.kernels.abi import HEADERS
from mixpert_py.runtime.kernels.kernel import Kernel, cuda_driver
from mixpert_py.runtime.kernels.ptx import CLUSTERED, Order, clustered, gated, ordered

T = TypeVar("T")

KERNELS = "mixpert_py.runtime.kernels"
# The compiler declares its own version of PTX, which the driver need not know. Our kernels use
# nothing that is later than 8.1, which drivers of CUDA 12.1 know; devices after these need more.
VERSION = re.compile(rb"\.version \S+")
OLD_VERSION = b".version 8.1"
NEWEST_OLD = 90
FIRST_EARLY = 90  # compute capability of devices that start a launch before the last one's end
WAITS = "griddepcontrol.wait"  # in what may be started so
# CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED: more than eight blocks, which not every
# device can have.
ANY_CLUSTER = 14


def cuda_kernel(
    file: str,
    name: str,
    constants: tuple[tuple[str, int | str], ...],
    shared: int = 0,
    package: str = KERNELS,
) -> Kernel:
    """Kernel `name` of a CUDA C++ file in this folder, or in a package's, for the current device.

    constants: preprocessor definitions. shared: bytes of dynamic shared memory that launches will
    ask for. Raises DeviceError where it does not compile.
    """
    import cupy

    return _cuda_kernel(file, name, constants, shared, package, cupy.cuda.Device().id)


def numba_kernel(
    module: str,
    factory: str,
    constants: tuple[Any, ...],
    shared: int = 0,
    order: Order = "after",
    has_gate: bool = False,
) -> Kernel:
    """Kernel of a Numba factory, for the current device.

    `factory(*constants)` in `module` gives the Python function and its Numba argument types:
    pointers and scalars only, so that arguments are passed one by one as in C. The function may
    have `launch_bounds`: threads of a block, blocks that a multiprocessor is to have room for; and
    `cluster`: blocks of one, of which launches have whole ones. order: see `ptx.ordered`; has_gate:
    `ptx.gated`. Raises DeviceError where it does not compile.
    """
    import cupy

    device = cupy.cuda.Device().id
    return _numba_kernel(module, factory, constants, shared, order, has_gate, device)


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
    file: str,
    name: str,
    constants: tuple[tuple[str, int | str], ...],
    shared: int,
    package: str,
    device: int,
) -> Kernel:
    import cupy

    capability = cupy.cuda.Device(device).compute_capability
    suffix = "a" if capability == "90" else ""  # wgmma is of sm_90a, not of sm_90
    options = ("-std=c++17", f"-arch=sm_{capability}{suffix}")
    source = source_text(file, constants, package)
    early = WAITS in source and int(capability) >= FIRST_EARLY
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
    module: str,
    factory: str,
    constants: tuple[Any, ...],
    shared: int,
    order: Order,
    has_gate: bool,
    device: int,
) -> Kernel:
    import cupy

    capability = cupy.cuda.Device(device).compute_capability
    ptx = shipped.find(module, factory, constants, capability)
    if ptx is not None:
        with suppress(cupy.cuda.driver.CUDADriverError):  # an older driver, which knows it not
            return _loaded(ptx, factory, shared, order, has_gate, capability)
    ptx = cached(
        place_of(module, factory, repr(constants), capability),
        lambda: compiled(module, factory, constants, capability),
    )
    return _loaded(ptx, factory, shared, order, has_gate, capability)


def _loaded(
    ptx: bytes, name: str, shared: int, order: Order, has_gate: bool, capability: str
) -> Kernel:
    """The kernel of a PTX text on the current device."""
    import cupy

    if has_gate:
        ptx = gated(ptx)
    early = int(capability) >= FIRST_EARLY
    if early:
        ptx = ordered(ptx, order)
    loaded = cupy.cuda.function.Module()
    loaded.load(ptx)
    function = loaded.get_function(entry(ptx))
    driver = _driver()
    if shared:
        driver.funcSetAttribute(
            function.ptr, driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared
        )
    if CLUSTERED in ptx:
        driver.funcSetAttribute(function.ptr, ANY_CLUSTER, 1)
    return Kernel(name, function.ptr, (loaded, function), cuda_driver(), early, has_gate)


def source_text(
    file: str, constants: tuple[tuple[str, int | str], ...], package: str = KERNELS
) -> str:
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


def compiled(module: str, factory: str, constants: tuple[Any, ...], capability: str) -> bytes:
    """The PTX of a Numba factory's kernel, as `numba_kernel` takes it. Raises DeviceError."""
    try:
        from numba.core.errors import NumbaError
        from numba.cuda.cudadrv.error import NvvmError
    except ImportError as error:
        raise DeviceError(f"kernel {factory!r}: numba-cuda cannot be imported ({error})") from error
    function, signature = getattr(import_module(module), factory)(*constants)
    try:
        ptx = ptx_of(function, signature, capability)
    # A library that is missing is a RuntimeError, or an ImportError, depending on which.
    except (NumbaError, NvvmError, RuntimeError, ImportError) as error:
        raise DeviceError(f"kernel {factory!r}: {str(error).partition(chr(10))[0]}") from error
    if int(capability) <= NEWEST_OLD:
        ptx = VERSION.sub(OLD_VERSION, ptx, count=1)
    return clustered(ptx, getattr(function, "cluster", 0))


def ptx_of(function: Any, signature: tuple[Any, ...], capability: str) -> bytes:
    """The PTX that Numba makes of a kernel, as its factory gives it. Raises Numba's errors."""
    from numba import cuda

    with _no_garbage_collected():
        ptx, _ = cuda.compile(
            function,
            signature,
            cc=(int(capability[:-1]), int(capability[-1])),
            device=False,
            abi="numba",
            output="ptx",
            launch_bounds=getattr(function, "launch_bounds", None),
        )
    return ptx if isinstance(ptx, bytes) else ptx.encode()


@contextmanager
def _no_garbage_collected() -> Iterator[None]:
    """The compiler makes so many objects that looking for cycles takes a quarter of its time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


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
    texts = [str(files("mixpert_py.runtime")), metadata.version("numba-cuda"), *parts]
    return "\0".join(texts).encode("utf-8", "surrogatepass")


@cache
def _sources() -> bytes:
    """Every module of the runtime: kernels take constants and functions from all over it."""
    paths = sorted(Path(str(files("mixpert_py.runtime"))).rglob("*.py"))
    return b"\0".join(path.read_bytes() for path in paths)


def entry(ptx: bytes) -> str:
    """The name of the one kernel in a PTX text."""
    return ptx.partition(b".entry ")[2].partition(b"(")[0].strip().decode()


@cache
def _driver() -> Any:
    from cupy_backends.cuda.api import driver

    return driver
