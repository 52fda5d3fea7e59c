"""Runs a rewritten program in this process, as `python` itself would have run it.

The program is a real module `__main__` (so that pickling and spawned children find it), sees its
own `sys.argv` and `sys.path[0]`, and its tracebacks and carets show the user's own lines, because
the syntax tree is rewritten and not the text.
"""

import atexit
import gc
import importlib
import linecache
import os
import pkgutil
import sys
import tempfile
import threading
import traceback
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib.machinery import BuiltinImporter, SourceFileLoader
from multiprocessing import spawn
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

import msgspec

from mixpert_py import compiled as torch_compiled
from mixpert_py import config, files, sources, started_with
from mixpert_py.import_hook import ImportHook
from mixpert_py.launch.program import Program, compiled, folder_of_project, script
from mixpert_py.plan import Plan
from mixpert_py.runtime.backends import require_backend
from mixpert_py.runtime.context import Context, Modules, SchemeUse, set_default
from mixpert_py.runtime.gpu.start import start
from mixpert_py.runtime.modules import covered_for
from mixpert_py.runtime.program_frames import behind_ours
from mixpert_py.sources import in_memory
from mixpert_py.sources.modules import require

if TYPE_CHECKING:
    from mixpert_py.runtime.tracing.trace import Trace

# The program must import the same module objects as the runtime, above all NumPy's arrays.
SHARED_MODULES = started_with | {"mixpert_py", "numpy", *sys.builtin_module_names}
# Modules whose pools of threads or processes `python` tells to end before all other threads.
POOLS = (
    "concurrent.futures.thread",
    "concurrent.futures.process",
    "loky.process_executor",
    "joblib.externals.loky.process_executor",
)


def project_hook(script: str | None, packages: Sequence[str] = ()) -> ImportHook:
    """The installed import hook for the project of a script, or of the current folder.

    If that folder was removed there is no project. packages: also rewritten; by default those that
    the project names. Raises SourceError for a package that cannot be rewritten.
    """
    hook = ImportHook(folder=folder_of_project(script))
    hook.packages = tuple(packages) or sources.packages(hook.folder)
    require(hook.packages, [os.path.dirname(script or "") or os.curdir])
    hook.install()
    return hook


def run(
    program: Program,
    hook: ImportHook,
    plan: Plan | None,
    uses: SchemeUse | None,
    trace: "Trace | None",
    backend: str | None = None,
) -> int:
    """Run a program and return the exit code that `python` would have given.

    hook: installed already. uses: has the scheme for all products, and notes which take it. Raises
    SourceError if the program does not parse, PlanError for an unknown backend, DeviceError for an
    absent device; what the program itself raises is printed as `python` prints it.
    """
    require_backend(backend)
    rewritten = compiled(program)
    scheme = None if uses is None else uses.scheme
    context = Context(
        scheme=scheme,
        uses=uses,
        backend=backend,
        plan=plan,
        trace=trace,
        find_plan=config.find_plan,
        modules=Modules(),
        finds_plans=config.has_plans,
    )
    start.waits = sources.is_reproducible(hook.folder)
    takes_small = any(it is not None for it in (plan, scheme, trace))
    return run_to_end(program, rewritten, context, hook, takes_small=takes_small)


def run_to_end(
    program: Program,
    rewritten: CodeType,
    context: Context,
    hook: ImportHook,
    *,
    takes_small: bool,
    insert_path: bool = False,
) -> int:
    """Run a program's rewritten code until its last thread ends, and return its exit code."""
    code = 0
    torch_compiled.follow()
    # What is imported by now lives as long as the program: only the last collection looks at it,
    # because it may refer to functions of the program, and those to files that are still open.
    gc.freeze()
    atexit.register(gc.unfreeze)
    gc.enable()  # `mixpert run` has disabled it
    with covered_for(context.backend, takes_small=takes_small):
        try:
            _execute(program, rewritten, context, hook, insert_path)
        except SystemExit as stop:
            if stop.code is None or isinstance(stop.code, int):
                code = stop.code or 0
            else:
                print(stop.code, file=sys.stderr)
                code = 1
        except BaseException as error:
            code = report(error)
        wait_for_threads()
    return code


def _execute(
    program: Program, rewritten: CodeType, context: Context, hook: ImportHook, insert_path: bool
) -> None:
    """Run the program in this process, as `__main__`; raises what it raises, SystemExit, too.

    insert_path: the program's folder is put before sys.path. Otherwise it replaces sys.path[0],
    which is the launcher's own folder, unless an option of Python has left that out.
    """
    main = main_module(program)
    sys.modules["__main__"] = main
    sys.argv = list(program.argv)
    if insert_path or not sys.flags.safe_path:
        make_way(program.path)
    if insert_path:
        sys.path.insert(0, program.path)
    elif not sys.flags.safe_path:
        sys.path[:1] = filter(None, [program.path])
    set_default(context)
    in_memory.name_everywhere(filter(in_memory.is_alias, rewritten.co_names))
    if program.spec is None and not program.is_notebook:
        rewrite_in_spawned_children(program.filename, context, hook)
    if program.spec is not None and program.spec.parent:
        importlib.import_module(program.spec.parent)
    if program.is_notebook:  # tracebacks, warnings and `inspect` show its cells, not its JSON
        text = program.source.decode()
        lines = text.splitlines(keepends=True)
        linecache.cache[program.filename] = (len(text), None, lines, program.filename)
        sys.excepthook = traceback.print_exception  # that of Python up to 3.12 reads the file
    limit = sys.getrecursionlimit()
    try:
        # So that the program has as many levels of recursion as under `python`.
        frames = len([*traceback.walk_stack(sys._getframe())])
        sys.setrecursionlimit(limit + frames + 2)  # `exec` takes two
        exec(rewritten, main.__dict__)
    finally:
        sys.setrecursionlimit(limit)


def main_module(program: Program) -> ModuleType:
    """An empty `__main__` for the program, as `python` would have made it."""
    main = ModuleType("__main__")
    main.__builtins__ = sys.modules["builtins"]  # type: ignore[attr-defined]
    if sys.version_info < (3, 14):  # later ones make it where an annotation needs it
        main.__annotations__ = {}
    if program.is_notebook:  # as in IPython, spawned children have no file to run again
        main.__loader__ = BuiltinImporter
        main.display = print  # type: ignore[attr-defined]
    else:
        main.__file__ = program.filename
        main.__loader__ = SourceFileLoader("__main__", program.filename)
        main.__cached__ = program.spec.cached if program.spec else None  # type: ignore[attr-defined]
    main.__spec__ = program.spec
    main.__package__ = program.spec.parent if program.spec else None
    return main


def make_way(folder: str) -> None:
    """Forget imported modules whose names files of the program have, because under `python` its
    folder comes first on sys.path. Modules that Python imports at its own start stay.
    """
    with suppress(OSError):  # the current folder may have been removed
        if os.path.realpath(folder) in map(os.path.realpath, sys.path):
            return
        own = {found.name for found in pkgutil.iter_modules([folder or os.curdir])} - SHARED_MODULES
        for name, module in [*sys.modules.items()]:
            file = os.path.realpath(getattr(module, "__file__", None) or "")
            is_theirs = file.startswith(os.path.join(os.path.realpath(folder), ""))
            if name.partition(".")[0] in own and not is_theirs:
                del sys.modules[name]


class SpawnedJob(msgspec.Struct, frozen=True):
    """The script that a spawned child rewrites, and the context in which it runs it."""

    script: bytes  # file names need not be text
    project: bytes | None
    scheme: str | None
    backend: str | None
    plan: Plan | None
    children: str | None = None  # as in `Trace`
    packages: tuple[str, ...] = ()

    @classmethod
    def from_parent(cls) -> "SpawnedJob":
        return msgspec.json.decode(Path(config.file_from_parent()).read_bytes(), type=cls)


def rewrite_in_spawned_children(script: str, context: Context, hook: ImportHook) -> None:
    """Make children started by `spawn` import the rewritten program instead of the original.

    Such a child imports the main module anew, from its file: here `spawned_main`, which rewrites
    that file, and on import the modules that the hook rewrites here.
    """
    original: Any = getattr(spawn.get_preparation_data, "__wrapped__", spawn.get_preparation_data)

    def get_preparation_data(name: str) -> dict[str, Any]:
        data: dict[str, Any] = original(name)
        if data.pop("init_main_from_path", None) is not None:
            data["init_main_from_name"] = "mixpert_py.launch.spawned_main"
            config.pass_to_children(job_file(os.getpid()))
        return data

    @cache
    def job_file(process: int) -> str:
        # A file, because a plan may be larger than an environment variable; made for the first
        # child, because most programs spawn none. A fork makes its own: either may end first.
        descriptor, path = tempfile.mkstemp(prefix=files.RUN_PREFIX, suffix=".json")
        atexit.register(_remove, path, process)
        folder = None if hook.folder is None else os.fsencode(hook.folder)
        children = None if context.trace is None else context.trace.children
        settings = context.scheme, context.backend, context.plan, children
        job = SpawnedJob(os.fsencode(script), folder, *settings, tuple(hook.packages))
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(job))
        return path

    get_preparation_data.__wrapped__ = original  # type: ignore[attr-defined]
    spawn.get_preparation_data = get_preparation_data


def _remove(path: str, process: int) -> None:
    """Remove a file at the end of the process that made it, but not in its forked children."""
    if os.getpid() == process:
        Path(path).unlink(missing_ok=True)


def spawned(job: SpawnedJob) -> CodeType:
    """Set a spawned child's context and import hook; returns its script's rewritten code."""
    trace = None
    if job.children is not None:
        from mixpert_py.runtime.tracing.trace import Trace

        trace = Trace(children=job.children)
        trace.begin_child()
    set_default(Context(job.scheme, job.plan, job.backend, trace))
    if job.project is not None or job.packages:
        folder = None if job.project is None else os.fsdecode(job.project)
        ImportHook(job.packages, folder=folder).install()
        start.waits = sources.is_reproducible(folder)
    return compiled(script(os.fsdecode(job.script)))


def report(error: BaseException) -> int:
    """Print what a program raised as `python` would, and return its exit code."""
    trim(error)
    sys.excepthook(type(error), error, error.__traceback__)
    return 130 if isinstance(error, KeyboardInterrupt) else 1


def trim(error: BaseException) -> None:
    """Take the frames that ran the program off an error's traceback; one of ours alone stays."""
    error.__traceback__ = behind_ours(error.__traceback__) or error.__traceback__


def wait_for_threads() -> None:
    """Wait for the threads that `python` waits for before it ends, in its order.

    It first tells the pools of threads and processes to end. Meanwhile the main thread counts as
    ended. Then it joins every other thread that is no daemon, also those that start meanwhile.
    """
    for pool in filter(None, map(sys.modules.get, POOLS)):
        pool._python_exit()
    main: Any = threading.main_thread()
    main.is_alive = lambda: False  # some threads run until then
    try:
        here = threading.current_thread()
        while busy := [it for it in threading.enumerate() if it is not here and not it.daemon]:
            busy[0].join()
    finally:
        del main.is_alive
