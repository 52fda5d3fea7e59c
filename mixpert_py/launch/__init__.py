"""Runs a Python program rewritten in memory, as `python` itself would have run it.

The program is a real module `__main__` (so that pickling and spawned children find it), sees its
own `sys.argv` and `sys.path[0]`, and its tracebacks and carets show the user's own lines, because
the syntax tree is rewritten and not the text.
"""

import atexit
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
from dataclasses import dataclass
from functools import cache
from importlib.machinery import BuiltinImporter, ModuleSpec, SourceFileLoader
from multiprocessing import spawn
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import msgspec

from mixpert_py import config, files, sources, started_with
from mixpert_py.errors import RefusedProgramError, SourceError, named
from mixpert_py.import_hook import ImportHook
from mixpert_py.plan import Plan
from mixpert_py.runtime.context import Context, set_default
from mixpert_py.runtime.program_frames import is_ours
from mixpert_py.sources import in_memory
from mixpert_py.sources.modules import spec_without_imports

# The program must import the same module objects as the runtime, above all NumPy's arrays.
SHARED_MODULES = started_with | {"mixpert_py", "numpy", *sys.builtin_module_names}
# Modules whose pools of threads or processes `python` tells to end before all other threads.
POOLS = (
    "concurrent.futures.thread",
    "concurrent.futures.process",
    "loky.process_executor",
    "joblib.externals.loky.process_executor",
)


@dataclass(frozen=True, slots=True)
class Program:
    """A program to run: its source, and the facts about it that `python` would have set.

    argv: sys.argv. module: the first part of its site ids. path: the future sys.path[0]; for a
    module "" if there is no such entry. spec: for `-m`, else None.
    """

    source: bytes
    filename: str
    argv: tuple[str, ...]
    module: str
    path: str
    spec: ModuleSpec | None = None

    @property
    def is_notebook(self) -> bool:
        return self.filename.endswith(sources.NOTEBOOK)


def script(path: str, arguments: tuple[str, ...] = ()) -> Program:
    """Load `python path arguments…`. Raises SourceError if there is no such file."""
    source = sources.read_whole(Path(path))
    folder = os.path.dirname(os.path.realpath(path))
    return Program(
        source,
        path if os.path.isabs(path) else os.path.join(os.getcwd(), path),
        (path, *arguments),
        config.module_name(Path(path)),
        folder,
    )


def notebook(path: str, arguments: tuple[str, ...] = ()) -> Program:
    """The code cells of a notebook as one program, without IPython's lines and most `%%` cells.

    The text under magics that run it once, unchanged, stays. Raises SourceError if there is no such
    file, or it is not a notebook.
    """
    from mixpert_py.sources import notebook_file  # not above: a script needs no part of it

    raw = sources.read_whole(Path(path))
    try:
        source = notebook_file.notebook_text(raw)
    except SourceError as error:
        raise SourceError(f"{path}: {error}") from None
    place = os.path.realpath(path)
    argv = (path, *arguments)
    return Program(source, place, argv, config.module_name(Path(path)), os.path.dirname(place))


def module(name: str, arguments: tuple[str, ...] = ()) -> Program:
    """Load `python -m name arguments…`; nothing of the program runs here.

    Raises SourceError if there is no such module.
    """
    folder, path = current_folder() or "", list(sys.path)
    if folder and not sys.flags.safe_path:
        sys.path.insert(0, folder)
    try:
        spec = spec_without_imports(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = spec_without_imports(f"{name}.__main__")
    except (ImportError, ValueError) as error:
        raise SourceError(f"-m {name}: {error}") from None
    finally:
        sys.path[:] = path
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise SourceError(f"-m {name}: no such module with Python source")
    source = sources.read_whole(spec.origin)
    return Program(source, spec.origin, (spec.origin, *arguments), spec.name, folder, spec)


def current_folder() -> str | None:
    """The current folder, or None if it was removed: programs that need none still run there."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None


def compiled(program: Program) -> CodeType:
    """The program's rewritten code, or the original with a warning if it exceeds the limits.

    Raises RefusedProgramError if Python does not accept the source.
    """
    name, why = program.argv[0], ""
    try:
        with named(name, program.module):
            made = in_memory.rewritten(program.source, program.module, program.filename)
        if made is not None:
            return made.code
    except SourceError as error:
        why = str(error)
    try:
        original = compile(program.source, program.filename, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None) or 1  # none is named where a byte is NUL
        what = f"{name}: line {line}: {getattr(error, 'msg', error)}"
        raise RefusedProgramError(why or what) from None
    if why:
        in_memory.warn_that_it_runs_as_it_is(program.filename, why.removeprefix(f"{name}: "))
    return original


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


def execute(
    program: Program,
    rewritten: CodeType,
    context: Context,
    project: str | None = None,
    packages: Sequence[str] = (),
    *,
    insert_path: bool = False,
) -> None:
    """Run the program in this process, as `__main__`.

    context: holds for it, in all its threads and in children that it spawns.
    project: the folder whose modules spawned children rewrite, too, when they import them, and
    packages: those whose modules they do.
    insert_path: the program's folder is put before sys.path. Otherwise it replaces sys.path[0],
    which is the launcher's own folder, unless an option of Python has left that out. Every
    exception of the program, SystemExit included, is raised here.
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
        rewrite_in_spawned_children(program.filename, context, project, tuple(packages))
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
        """The job that the parent process has left for this child."""
        return msgspec.json.decode(Path(config.file_from_parent()).read_bytes(), type=cls)


def rewrite_in_spawned_children(
    script: str, context: Context, project: str | None, packages: tuple[str, ...] = ()
) -> None:
    """Make children started by `spawn` import the rewritten program instead of the original.

    Such a child imports the main module anew, from its file. It then imports `spawned_main`
    instead, which rewrites that file and runs it. project: the folder whose modules it rewrites on
    import; None for none. packages: rewritten on import, too.
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
        folder = None if project is None else os.fsencode(project)
        children = None if context.trace is None else context.trace.children
        settings = context.scheme, context.backend, context.plan, children
        job = SpawnedJob(os.fsencode(script), folder, *settings, packages)
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
    """Set the context of a spawned child, install its import hook, and return the rewritten code of
    its script.
    """
    trace = None
    if job.children is not None:
        from mixpert_py.runtime.tracing.trace import Trace

        trace = Trace(children=job.children)
        trace.begin_child()
    set_default(Context(job.scheme, job.plan, job.backend, trace))
    if job.project is not None or job.packages:
        folder = None if job.project is None else os.fsdecode(job.project)
        ImportHook(job.packages, folder=folder).install()
    program = script(os.fsdecode(job.script))
    return compiled(program)


def report(error: BaseException) -> int:
    """Print what a program raised as `python` would, and return its exit code."""
    trim(error)
    sys.excepthook(type(error), error, error.__traceback__)
    return 130 if isinstance(error, KeyboardInterrupt) else 1


def trim(error: BaseException) -> None:
    """Take the frames that ran the program off an error's traceback; one of ours alone stays."""
    traceback = error.__traceback__
    while traceback is not None and is_ours(traceback.tb_frame):
        traceback = traceback.tb_next
    if traceback is not None:
        error.__traceback__ = traceback


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
        while busy := next(filter(_is_awaited, threading.enumerate()), None):
            busy.join()
    finally:
        del main.is_alive


def _is_awaited(thread: threading.Thread) -> bool:
    return thread is not threading.current_thread() and not thread.daemon
