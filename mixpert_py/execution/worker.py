"""The process that runs a user's program for the tuner: one run of one job.

The parent rewrote and compiled the program. This process executes it under the job's schemes, then
writes `result.json` and one `.npy` a compared value into the job's folder. A crash, `os._exit` or a
hang leaves no result, which the parent takes for a failure.
"""

import json
import marshal
import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from importlib.util import spec_from_file_location
from pathlib import Path
from time import perf_counter
from types import ModuleType
from typing import Any

import msgspec
import numpy as np

from mixpert_py.execution import outputs
from mixpert_py.execution.outputs import observed
from mixpert_py.execution.products import MeasuredProduct, measure
from mixpert_py.import_hook import ImportHook
from mixpert_py.launch.profile import places_by_torch
from mixpert_py.launch.program import Program
from mixpert_py.launch.running import run_to_end
from mixpert_py.plan import Plan
from mixpert_py.runtime import context as contexts
from mixpert_py.runtime.context import Context, Modules
from mixpert_py.runtime.gpu.foreign import may_be_on_device, on_host
from mixpert_py.runtime.tracing.captures import Captures
from mixpert_py.runtime.tracing.cost import without_cost
from mixpert_py.runtime.tracing.trace import SiteTrace, Trace
from mixpert_py.tuner.records import Profile

Array = np.ndarray[Any, Any]

WarmUp = tuple[str, int, int, int, str]
"""Scheme, m, k, n, dtype."""

CHILDREN = "children"  # the file of the job's folder with the sites that children called
SINKS = "sinks"  # stands for the last results of products that feed no other product
GPU_LIBRARIES = frozenset({"cupy", "torch"})
LARGEST = 2**63  # of an integer in JSON
EDGE = 384  # of the matrices that warm up
LEFT_FOR_PRODUCTS = 0.6  # of the time that is left: the last step may take longer than it should
FIRST_WARM_UPS: tuple[WarmUp, ...] = tuple(
    (scheme, EDGE, EDGE, EDGE, "float32") for scheme in ("native", "int8x6")
)


class Alone(msgspec.Struct, frozen=True):
    """What is made of a program's products by themselves, on captured operands, after it has ended.

    timed: schemes whose times are measured. levels: those whose errors are. seconds: for all of it,
    `runs` of the program or `least` at most; patience: for one product under one scheme. limit: the
    seconds of the whole process.
    """

    timed: tuple[str, ...]
    levels: tuple[str, ...]
    seconds: float
    patience: float
    limit: float
    runs: float
    least: float


class WorkerJob(msgspec.Struct, frozen=True):
    """One run: the program, its schemes, and the values that are to be reported.

    folder: holds `code.marshal` and receives the result. plan: with None, `scheme` is that of every
    product. levels: schemes whose local errors are measured; with any, the run is a profile. names:
    variables of the main module that are reported if they hold numbers, where the program observes
    nothing and the user named nothing. differences: variables that hold the difference of two
    values, with expressions for the size of these. required: variables that the user named. sinks:
    call sites whose last result is reported with `names`, or if `with_sinks`. stdout: whether what
    it prints is saved. products: made on a GPU before the program's clock runs; moved: whether of
    NumPy arrays. alone: what is measured of the products by themselves; then no values are
    reported. as_module: as by `python -m`. project: the folder whose modules are rewritten on
    import.
    """

    folder: str
    filename: str
    argv: tuple[str, ...]
    module: str
    path: str
    plan: Plan | None = None
    scheme: str | None = None
    backend: str | None = None
    levels: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    differences: Mapping[str, tuple[str, ...]] = {}
    required: tuple[str, ...] = ()
    sinks: tuple[str, ...] = ()
    with_sinks: bool = False
    directory: str = "."
    stdout: bool = False
    products: tuple[WarmUp, ...] = ()
    moved: bool = False
    alone: Alone | None = None
    as_module: bool = False
    project: str = ""
    packages: tuple[str, ...] = ()


class SiteResult(Profile, frozen=True):
    calls: int
    seconds: float
    shapes: list[tuple[int, int, int, int]]  # m, k, n, calls
    schemes: dict[str, int]
    reasons: dict[str, int]
    dtypes: dict[str, int]
    errors: dict[str, float | None]  # None: not a number
    outliers: float = 0.0
    unsuited: dict[str, int] = msgspec.field(default_factory=dict)


class Result(msgspec.Struct, frozen=True):
    """The result of one run, which trials files keep as JSON.

    values: name → file in the job's folder. missing: values that the user asked for. wrote: whether
    the run changed its working folder. on_gpu: whether it has imported a library whose arrays may
    be on a GPU. rewritten: path and module of those rewritten on import. torch: file, line and
    expression of sites whose products PyTorch makes itself. children: seconds of processor time of
    the processes that the program started, and waited for. kinds: kind of dtype of each reported
    value of the job's `names` and `sinks`. ratios: difference → its size, as a part of its
    operands'. elsewhere: sites that only processes which it started called. unused: packages of
    which it has imported no module.
    """

    seconds: float
    sites: dict[str, SiteResult]
    values: dict[str, str]
    missing: list[str]
    wrote: bool = False
    on_gpu: bool = False
    alone: tuple[MeasuredProduct, ...] = ()
    rewritten: tuple[tuple[str, str], ...] = ()
    torch: dict[str, tuple[str, int, str]] = {}
    children: float = 0.0
    kinds: dict[str, str] = {}
    ratios: dict[str, float] = {}
    elsewhere: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()


def main(job_file: str) -> None:
    """Run the job and write its result. A program that raises ends as under `python`."""
    job = msgspec.convert(json.loads(Path(job_file).read_bytes()), WorkerJob)
    process = os.getpid()
    folder = Path(job.folder)
    rewritten = marshal.loads((folder / "code.marshal").read_bytes())
    spec = spec_from_file_location(job.module, job.filename) if job.as_module else None
    program = Program(b"", job.filename, job.argv, job.module, job.path, spec)
    captures = Captures() if job.alone is not None else None
    trace = Trace(job.levels or None, job.sinks, captures, str(folder / CHILDREN))
    # Only native runs tell of the products of forked children.
    if job.scheme is not None and not job.levels and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=trace.begin_child)
    os.chdir(job.directory)
    warm_up_host()
    if job.products:
        warm_up_gpu(job.products, moved=job.moved)
    captured = outputs.capture_stdout() if job.stdout else None
    hook = ImportHook(job.packages, folder=job.project or None)
    hook.install()
    start = perf_counter()
    context = Context(job.scheme, job.plan, job.backend, trace, modules=Modules())
    code = run_to_end(program, rewritten, context, hook, takes_small=True, insert_path=True)
    seconds = perf_counter() - start
    # A child that the program forked comes by here too; it is not the program.
    if code == 0 and os.getpid() == process:
        hooked = tuple(hook.rewritten.values())
        if job.alone is not None and captures is not None:
            ours = captures.seconds + hook.seconds
            result = alone_result(job.alone, trace, captures, hooked, seconds, ours)
        else:
            namespace = vars(sys.modules["__main__"])
            values, result = ended(job, namespace, trace, max(seconds - hook.seconds, 0.0))
            files = {name: f"value-{number}.npy" for number, name in enumerate(values)}
            for name, array in values.items():
                np.save(folder / files[name], array, allow_pickle=False)
            if captured is not None:
                captured.save(folder)
            called = folder / CHILDREN
            elsewhere = called.read_text("utf-8").splitlines() if called.exists() else []
            result = msgspec.structs.replace(
                result,
                values=files,
                elsewhere=tuple(sorted(set(elsewhere) - trace.sites.keys())),
                rewritten=hooked,
                unused=tuple(hook.without_modules()),
            )
        (folder / "result.json").write_bytes(msgspec.json.encode(result))
    sys.exit(code)


def ended(
    job: WorkerJob, namespace: dict[str, Any], trace: Trace, seconds: float
) -> tuple[dict[str, Array], Result]:
    """The values that a program has ended with, and its result, without files of the values."""
    seconds = without_cost(trace, seconds)
    values, missing = _values(job, namespace, trace)
    kinds, ratios = {}, {}
    if not (values or missing):
        values = _numbers({name: namespace.get(name) for name in job.names}, "biufc")
        ratios = _ratios(job, values, namespace)
        values |= _numbers(trace.results, "fc")
        kinds = {name: array.dtype.kind for name, array in values.items()}
    return values, Result(
        seconds,
        {site: site_result(record) for site, record in trace.sites.items()},
        {},
        missing,
        torch=_torch_places(trace),
        on_gpu=not GPU_LIBRARIES.isdisjoint(sys.modules),
        kinds=kinds,
        ratios=ratios,
    )


def _torch_places(trace: Trace) -> dict[str, tuple[str, int, str]]:
    """Where the traced sites stand whose products PyTorch makes itself."""
    places = places_by_torch().items()
    return {site: (it.path, it.line, it.expression) for site, it in places if site in trace.sites}


def alone_result(
    job: Alone,
    trace: Trace,
    captures: Captures,
    rewritten: tuple[tuple[str, str], ...],
    seconds: float,
    ours: float,
) -> Result:
    """The result of a run whose products are made by themselves now.

    rewritten: see `Result`. ours: seconds of rewriting modules, copying operands and finding lines.
    Like those of tracing calls they are none of the program's time.
    """
    left = min(job.seconds, max(job.runs * seconds, job.least))
    left = min(left, LEFT_FOR_PRODUCTS * (job.limit - seconds))
    own = without_cost(trace, max(seconds - ours, 0.0))
    with contexts.use(replace(contexts.current(), trace=None)):
        found = measure(captures.calls, trace.sites, job.timed, job.levels, left, job.patience)
    sites = {site: site_result(record) for site, record in trace.sites.items()}
    times = os.times()
    children = times.children_user + times.children_system
    return Result(
        own,
        sites,
        {},
        [],
        alone=tuple(found),
        rewritten=rewritten,
        torch=_torch_places(trace),
        children=children,
    )


def warm_up_host() -> None:
    """Start the BLAS threads and load its code, so that no call site pays for that."""
    for dtype in (np.float64, np.float32):
        np.matmul(*np.ones((2, EDGE, EDGE), dtype))


def warm_up_gpu(products: Iterable[WarmUp], *, moved: bool) -> None:
    """Make each product on the GPU, if there is one, so that no call site pays for its first call.

    That begins CUDA, loads kernels, and allocates memory that CuPy's pool then keeps: the driver
    may take longer for that than for a product. moved: whether of NumPy arrays, else of CuPy's.
    """
    from mixpert_py.runtime.gpu import device

    if not device.may_be_here() or isinstance(device.find(), device.Absent):
        return
    import cupy

    for product in products:
        _make_once(*product, moved=moved)
    cupy.cuda.get_current_stream().synchronize()


@cache
def _make_once(scheme: str, m: int, k: int, n: int, dtype: str, *, moved: bool) -> None:
    """A product that fails here fails, or falls back, in the program as well."""
    import cupy

    from mixpert_py.runtime.api import matmul
    from mixpert_py.runtime.arrays import PRECISION
    from mixpert_py.runtime.backends import CUDA

    xp: ModuleType = np if moved else cupy
    draw = xp.random.default_rng(0)
    with suppress(Exception):
        real = PRECISION.get(dtype, dtype)
        a, b = (draw.standard_normal(shape, dtype=real) for shape in ((m, k), (k, n)))
        a, b = a.astype(dtype, copy=False), b.astype(dtype, copy=False)
        matmul(a, b, scheme=scheme, backend=CUDA.name)


def _values(
    job: WorkerJob, namespace: dict[str, Any], trace: Trace
) -> tuple[dict[str, Array], list[str]]:
    """The values that it observed and that the user named, and the named ones that are missing."""
    values, missing = {}, []
    required = [(name, _held(namespace, name)) for name in job.required]
    for name, value in [*observed().items(), *required]:
        array = _numeric(value, "biufc")
        if array is None:
            missing.append(name)
        else:
            values[name] = array
    if job.with_sinks:
        results = _numbers(trace.results, "fc")
        values |= results
        missing += [] if results else [SINKS]
    return values, missing


def _held(namespace: Mapping[str, object], name: str) -> object:
    """Return the value of a variable, or of an attribute such as `model.coef_`; None if absent.

    Reading an attribute may make products, which are not the program's.
    """
    variable, *attributes = name.split(".")
    found = namespace.get(variable)
    with contexts.use(replace(contexts.current(), trace=None)), suppress(Exception):
        for attribute in attributes:
            found = getattr(found, attribute)
        return found
    return None


def _ratios(
    job: WorkerJob, values: Mapping[str, Array], namespace: Mapping[str, object]
) -> dict[str, float]:
    """The differences among the values, each with its size as a part of its operands'."""
    found = {}
    for name in job.differences.keys() & values.keys():
        sizes = (_size(_evaluated(it, namespace)) for it in job.differences[name])
        largest, size = max(sizes, default=0.0), _size(values[name])
        if largest > 0 and np.isfinite(size):
            found[name] = size / largest
    return found


def _evaluated(expression: str, namespace: Mapping[str, object]) -> object:
    """The value of an expression that the analysis made of the program's source, or None."""
    with suppress(Exception):  # whatever the user's classes raise
        return eval(expression, dict(namespace))
    return None


def _size(value: object) -> float:
    """The norm of an array or a number; 0 of all else."""
    array = _numeric(value, "biufc")
    if array is None or not array.size:
        return 0.0
    wide = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
    largest = float(np.abs(wide).max())
    return largest * float(np.linalg.norm(wide / largest)) if largest > 0 else 0.0


def _numbers(source: Mapping[str, object], kinds: str) -> dict[str, Array]:
    """The values among these that are arrays of such dtype kinds."""
    found = {name: _numeric(value, kinds) for name, value in source.items()}
    return {name: array for name, array in found.items() if array is not None}


def _numeric(value: object, kinds: str) -> Array | None:
    """A value as an array, if it has one of these dtype kinds."""
    if value is None or isinstance(value, (str, bytes, type)) or callable(value):
        return None
    try:
        array = np.asarray(on_host(value) if may_be_on_device(type(value)) else value)
    except (Exception, SystemExit):  # raised by a user's own __array__: the value is no number
        return None
    return array if array.dtype.kind in kinds else None


def site_result(record: SiteTrace) -> SiteResult:
    found: dict[str, Any] = {name: getattr(record, name) for name in SiteResult.__struct_fields__}
    found["shapes"] = [(*shape, count) for shape, count in record.shapes.most_common()]
    found["errors"] = {x: e if np.isfinite(e) else None for x, e in record.errors.items()}
    for name in ("schemes", "reasons", "dtypes", "fed_by", "unsuited"):
        found[name] = {str(key): count for key, count in found[name].items()}
    return SiteResult(**found)
