"""The process that runs a user's program for the tuner: one run, one process, one job.

The parent rewrote and compiled the program; this process executes it under the job's schemes, then
leaves `result.json` and one `.npy` a compared value in the job's folder. A crash, `os._exit` or a
hang leaves no result, and the parent draws its conclusion.
"""

import json
import marshal
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec
import numpy as np

from mixpert_py import config
from mixpert_py.files import hold
from mixpert_py.launch import launcher, tracebacks
from mixpert_py.observation import observed
from mixpert_py.plan import Plan
from mixpert_py.runs import printed, warm_up
from mixpert_py.runtime.cuda.foreign import may_be_on_device, on_host
from mixpert_py.runtime.in_force import InForce
from mixpert_py.runtime.tracing.trace import SiteTrace, Trace

SINKS = "sinks"  # asks for the last results that feed no other product
WITHOUT_EFFECT = frozenset({"numpy", "scipy", "sklearn"})  # their imports, that is
GPU_LIBRARIES = frozenset({"cupy", "torch"})


class Job(msgspec.Struct, frozen=True):
    """What to run, and what to report.

    folder: where the parent left `code.marshal` and expects the result. plan: the schemes; None
    and `scheme` given: that scheme everywhere. levels: schemes to measure local errors of; where
    there are any, the run is a profile, and operands are looked at.
    names: variables of the main module to compare, all that hold floats. wanted: variables that
    the user named, which must be there. keep: call sites whose last result is compared, where there
    is nothing else or `with_kept`. directory: where the program runs. stdout: whether what it
    prints is left in the folder. products: to be made on a GPU before the program's clock runs;
    moved: of NumPy arrays.
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
    wanted: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    directory: str = "."
    with_kept: bool = False
    stdout: bool = False
    products: tuple[warm_up.Product, ...] = ()
    moved: bool = False


class SiteResult(msgspec.Struct, frozen=True):
    """One call site's trace, as it travels: see `SiteTrace`."""

    calls: int
    seconds: float
    shapes: list[tuple[int, int, int, int]]  # m, k, n, calls
    schemes: dict[str, int]
    reasons: dict[str, int]
    dtypes: dict[str, int]
    errors: dict[str, float | None]  # None: not a number
    transfer: float = 0.0
    sampled: int = 0
    spread: float = 0.0
    int8_loss: float = 0.0
    cancellation: float = 1.0
    fed_by: dict[str, int] = {}
    outliers: float = 0.0


class Result(msgspec.Struct, frozen=True):
    """What one run left.

    values: name → file in the job's folder. missing: see Job.wanted. modules: those that a later
    run may find imported. wrote: whether it changed its working folder. on_gpu: whether it has
    imported a library whose arrays may be on a GPU; true as well where `Job.products` were made.
    """

    seconds: float
    sites: dict[str, SiteResult]
    values: dict[str, str]
    missing: list[str]
    modules: tuple[str, ...] = ()
    wrote: bool = False
    on_gpu: bool = False


def main(job_file: str, imported: float = 0.0) -> None:
    """Run the job and write its result. A program that raises ends as under `python`.

    imported: seconds that imports took which the program finds made; they count as its own.
    """
    job = msgspec.convert(json.loads(Path(job_file).read_bytes()), Job)
    process = os.getpid()
    folder = Path(job.folder)
    hold(folder)  # to the end of this process, which may come after the parent's
    rewritten = marshal.loads((folder / "code.marshal").read_bytes())
    program = launcher.Program(b"", job.filename, job.argv, job.module, job.path)
    trace = Trace(job.levels or None, job.keep)
    settings = config.import_settings()
    os.chdir(job.directory)
    warm_up.host()
    if job.products:
        warm_up.on_gpu(job.products, moved=job.moved)
    heard = printed.listen() if job.stdout else None
    start = perf_counter() - imported
    code: Any = 0
    namespace: dict[str, Any] = {}
    try:
        limit = config.workspace_limit(job.filename)
        force = InForce(job.scheme, job.plan, job.backend, trace, workspace_limit=limit)
        namespace = launcher.execute(program, rewritten, force, insert_path=True).__dict__
    except SystemExit as stop:
        code = stop.code
        namespace = sys.modules["__main__"].__dict__
    except BaseException as error:
        sys.exit(tracebacks.report(error))
    launcher.wait_for_threads()
    seconds = perf_counter() - start
    # A child that the program forked comes by here too; it is not the program.
    if code in (0, None) and os.getpid() == process:
        values, missing = _values(job, namespace, trace)
        files = _saved(values, folder)
        if heard is not None:
            heard.keep(folder)
        sites = {site: site_result(record) for site, record in trace.sites.items()}
        modules = _installed() if config.import_settings() == settings else ()
        on_gpu = not GPU_LIBRARIES.isdisjoint(sys.modules)
        result = Result(seconds, sites, files, missing, modules, on_gpu=on_gpu)
        (folder / "result.json").write_bytes(msgspec.json.encode(result))
    sys.exit(code)


def _installed() -> tuple[str, ...]:
    """What was imported, in that order, of the packages whose import does nothing else."""
    home = os.path.dirname(os.path.dirname(np.__file__)) + os.sep
    return tuple(
        name
        for name, module in list(sys.modules.items())  # threads may import
        if name.partition(".")[0] in WITHOUT_EFFECT
        and str(getattr(module, "__file__", None)).startswith(home)
    )


def _values(
    job: Job, namespace: dict[str, Any], trace: Trace
) -> tuple[dict[str, np.ndarray[Any, Any]], list[str]]:
    """What the program is judged by, and which of the values asked for are not there.

    What it observed and what the user named, results of the sinks included; else the module's
    variables that hold floats; else the last results of the sinks.
    """
    values, missing = {}, []
    asked = [(name, namespace.get(name)) for name in job.wanted]
    for name, value in [*observed().items(), *asked]:
        array = _numeric(value, "biufc")
        if array is None:
            missing.append(name)
        else:
            values[name] = array
    if job.with_kept:
        kept = _floats(trace.results)
        values |= kept
        missing += [] if kept else [SINKS]
    if values or missing:
        return values, missing
    for source in ({name: namespace.get(name) for name in job.names}, trace.results):
        values = _floats(source)
        if values:
            break
    return values, []


def _floats(source: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """Integers are left out here: a label computed from a product is no measure of its error."""
    found = {name: _numeric(value, "fc") for name, value in source.items()}
    return {name: array for name, array in found.items() if array is not None}


def _numeric(value: Any, kinds: str) -> np.ndarray[Any, Any] | None:
    """A value as an array, if it has one of these dtype kinds."""
    if value is None or isinstance(value, (str, bytes, type)) or callable(value):
        return None
    try:
        array = np.asarray(on_host(value) if may_be_on_device(type(value)) else value)
    except (Exception, SystemExit):  # whatever a user's own __array__ raises: it is no number
        return None
    return array if array.dtype.kind in kinds else None


def _saved(values: dict[str, np.ndarray[Any, Any]], folder: Path) -> dict[str, str]:
    files = {}
    for number, (name, array) in enumerate(values.items()):
        files[name] = f"value-{number}.npy"
        np.save(folder / files[name], array, allow_pickle=False)
    return files


def site_result(record: SiteTrace) -> SiteResult:
    """A call site's trace, as it travels."""
    return SiteResult(
        record.calls,
        record.seconds,
        [(*shape, count) for shape, count in record.shapes.most_common()],
        dict(record.schemes),
        {str(reason): count for reason, count in record.reasons.items()},
        dict(record.dtypes),
        {scheme: e if np.isfinite(e) else None for scheme, e in record.errors.items()},
        record.transfer,
        record.sampled,
        record.spread,
        record.int8_loss,
        record.cancellation,
        dict(record.fed_by),
        record.outliers,
    )
