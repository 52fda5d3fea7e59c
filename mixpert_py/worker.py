"""The process that runs a user's program for the tuner: one run, one process, one job.

The parent rewrote and compiled the program; this process executes it under the job's schemes, then
leaves `result.json` and one `.npy` a compared value in the job's folder. A crash, `os._exit` or a
hang leaves no result, and the parent draws its conclusion.
"""

import json
import marshal
import os
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec
import numpy as np

from mixpert_py import config, launcher, tracebacks
from mixpert_py.observation import observed
from mixpert_py.plan import Plan
from mixpert_py.runtime.in_force import InForce
from mixpert_py.runtime.trace import SiteTrace, Trace

WITHOUT_EFFECT = frozenset({"numpy", "scipy", "sklearn"})  # their imports, that is


class Job(msgspec.Struct, frozen=True):
    """What to run, and what to report.

    folder: where the parent left `code.marshal` and expects the result. plan: the schemes; None
    and `scheme` given: that scheme everywhere. levels: schemes to measure local errors of.
    names: variables of the main module to compare, all that hold floats. wanted: variables that
    the user named, which must be there. keep: call sites whose last result is compared.
    directory: where the program runs.
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


class SiteResult(msgspec.Struct, frozen=True):
    """One call site's trace, as it travels."""

    calls: int
    seconds: float
    shapes: list[tuple[int, int, int, int]]  # m, k, n, calls
    schemes: dict[str, int]
    reasons: dict[str, int]
    dtypes: dict[str, int]
    errors: dict[str, float | None]  # None: not a number


class Result(msgspec.Struct, frozen=True):
    """What one run left.

    values: name → file in the job's folder. missing: see Job.wanted. modules: those that a later
    run may find imported. wrote: whether it changed its working folder.
    """

    seconds: float
    sites: dict[str, SiteResult]
    values: dict[str, str]
    missing: list[str]
    modules: tuple[str, ...] = ()
    wrote: bool = False


def main(job_file: str, imported: float = 0.0) -> None:
    """Run the job and write its result. A program that raises ends as under `python`.

    imported: seconds that imports took which the program finds made; they count as its own.
    """
    job = msgspec.convert(json.loads(Path(job_file).read_bytes()), Job)
    process = os.getpid()
    folder = Path(job.folder)
    rewritten = marshal.loads((folder / "code.marshal").read_bytes())
    program = launcher.Program(b"", job.filename, job.argv, job.module, job.path)
    trace = Trace(job.levels, job.keep)
    settings = config.import_settings()
    os.chdir(job.directory)
    _warm_up()
    start = perf_counter() - imported
    code: Any = 0
    namespace: dict[str, Any] = {}
    try:
        force = InForce(job.scheme, job.plan, job.backend, trace)
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
        sites = {site: _site_result(record) for site, record in trace.sites.items()}
        modules = _installed() if config.import_settings() == settings else ()
        result = Result(seconds, sites, files, missing, modules)
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


def _warm_up() -> None:
    """Start the BLAS threads and touch its code, so that no site pays for it in its first call."""
    for dtype in (np.float64, np.float32):
        square = np.ones((384, 384), dtype)
        np.matmul(square, square)


def _values(
    job: Job, namespace: dict[str, Any], trace: Trace
) -> tuple[dict[str, np.ndarray[Any, Any]], list[str]]:
    """What the program is judged by, and which of the values asked for are not there.

    What it observed and what the user named; else the module's variables that hold floats; else
    the last results of the sinks.
    """
    values, missing = {}, []
    asked = [(name, namespace.get(name)) for name in job.wanted]
    for name, value in [*observed().items(), *asked]:
        array = _numeric(value, "biufc")
        if array is None:
            missing.append(name)
        else:
            values[name] = array
    if values or missing:
        return values, missing
    for source in ({name: namespace.get(name) for name in job.names}, trace.results):
        # Integers are left out here: a label computed from a product is not a measure of its error.
        found = {name: _numeric(value, "fc") for name, value in source.items()}
        values = {name: array for name, array in found.items() if array is not None}
        if values:
            break
    return values, []


def _numeric(value: Any, kinds: str) -> np.ndarray[Any, Any] | None:
    """A value as an array, if it has one of these dtype kinds."""
    if value is None or isinstance(value, (str, bytes, type)) or callable(value):
        return None
    try:
        array = np.asarray(value)
    except (Exception, SystemExit):  # whatever a user's own __array__ raises: it is no number
        return None
    return array if array.dtype.kind in kinds else None


def _saved(values: dict[str, np.ndarray[Any, Any]], folder: Path) -> dict[str, str]:
    files = {}
    for number, (name, array) in enumerate(values.items()):
        files[name] = f"value-{number}.npy"
        np.save(folder / files[name], array, allow_pickle=False)
    return files


def _site_result(record: SiteTrace) -> SiteResult:
    return SiteResult(
        record.calls,
        record.seconds,
        [(*shape, count) for shape, count in record.shapes.most_common()],
        dict(record.schemes),
        {str(reason): count for reason, count in record.reasons.items()},
        dict(record.dtypes),
        {scheme: e if np.isfinite(e) else None for scheme, e in record.errors.items()},
    )
