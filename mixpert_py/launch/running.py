"""`mixpert run`: runs a rewritten program in this process, and says what its products did."""

import json
import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from time import perf_counter
from types import CodeType
from typing import TYPE_CHECKING, Any

from mixpert_py import compiled, config, files
from mixpert_py.errors import SourceError, counted, named, writing
from mixpert_py.import_hook import ImportHook, SourceModule
from mixpert_py.launch import launcher
from mixpert_py.launch.launcher import Program
from mixpert_py.plan import Plan, is_in_source, module_of
from mixpert_py.runtime import context as contexts
from mixpert_py.runtime.backends import require_backend
from mixpert_py.runtime.context import Context, Modules, SchemeUse
from mixpert_py.runtime.modules import covered_for
from mixpert_py.runtime.reasons import Reason
from mixpert_py.sources import project
from mixpert_py.sources.modules import matches, relative, require

if TYPE_CHECKING:
    from mixpert_py.passes.call_site import CallSite
    from mixpert_py.runtime.products.torch_sites import Place
    from mixpert_py.runtime.tracing.trace import Trace

# Site id → the file that it is in, and the call site.
Places = dict[str, tuple[str, "CallSite"]]
Shown = Callable[[str], str | None]
"""The file of some code → the file as a person writes it; None where it is not the program's."""


def project_hook(script: str | None, packages: Sequence[str] = ()) -> ImportHook:
    """The installed import hook for the project of a script, or of the current folder.

    If that folder was removed there is no project. packages: also rewritten; by default those that
    the project names. Raises SourceError for a package that cannot be rewritten.
    """
    hook = ImportHook(folder=_folder_of(script))
    hook.packages = tuple(packages) or project.packages(hook.folder)
    require(hook.packages, [os.path.dirname(script or "") or os.curdir])
    hook.install()
    return hook


def project_folder(program: Program) -> str | None:
    """The folder of a program's project; for a module, that of the current folder."""
    return _folder_of(program.filename if program.spec is None else None)


def _folder_of(script: str | None) -> str | None:
    start = launcher.current_folder()
    if script is not None and (start is not None or os.path.isabs(script)):
        place = os.path.realpath(script)
        start = place if os.path.isdir(place) else os.path.dirname(place)
    return None if start is None else project.folder_of(start)


def run(
    program: Program,
    hook: ImportHook,
    plan: Plan | None,
    uses: SchemeUse | None,
    trace: "Trace | None",
    backend: str | None = None,
) -> int:
    """Run a program and return the exit code that `python` would have given.

    hook: rewrites the modules of the program's project; installed already. uses: has the scheme for
    all products, and notes which take it. Raises SourceError if
    the program does not parse, PlanError for an unknown backend, DeviceError for an absent device;
    what the program itself raises is printed as `python` prints it.
    """
    require_backend(backend)
    rewritten = launcher.compiled(program)
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
    compiled.follow()
    takes_small = any(it is not None for it in (plan, scheme, trace))
    with covered_for(backend, takes_small=takes_small):
        code = _exit_code(program, rewritten, context, hook)
        launcher.wait_for_threads()
    return code


def _exit_code(program: Program, rewritten: CodeType, context: Context, hook: ImportHook) -> int:
    """Run a program to its end, and return its exit code."""
    code = 0
    try:
        launcher.execute(program, rewritten, context, project=hook.folder, packages=hook.packages)
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            code = stop.code or 0
        else:
            print(stop.code, file=sys.stderr)
            code = 1
    except BaseException as error:
        code = launcher.report(error)
    return code


def profile(program: Program, hook: ImportHook, trace: "Trace") -> list[dict[str, Any]]:
    """Records of the called call sites, longest first, ready for JSON."""
    places: dict[str, tuple[str, CallSite | Place]] = {
        site: (place.path, place) for site, place in _torch_places().items()
    }
    places |= places_of(program, hook.rewritten.values(), modules_of(trace))
    return records(trace, places, program.filename)


def _torch_places() -> "dict[str, Place]":
    """The call sites of products that PyTorch made itself and that were covered."""
    torch_sites: Any = sys.modules.get("mixpert_py.runtime.products.torch_sites")
    return {} if torch_sites is None else torch_sites.places


def records(
    trace: "Trace", places: "Mapping[str, tuple[str, CallSite | Place]]", elsewhere: str
) -> list[dict[str, Any]]:
    """Records of the call sites in a trace, longest first.

    elsewhere: the file of the sites whose place is not known.
    """
    made = []
    called = trace.others | trace.sites
    for site, record in sorted(called.items(), key=lambda item: -item[1].seconds):
        forward = site.replace(".backward#", "#")  # of one in rewritten code
        found = places.get(site) or places.get(forward)
        path, place = found or (elsewhere, None)
        made.append(
            {
                "id": site,
                "path": path,
                "line": place.line if place else None,
                "expression": place.expression if place else "(called by name)",
                "calls": record.calls,
                "seconds": record.seconds,
                "shapes": [[*shape, count] for shape, count in record.shapes.most_common()],
                "schemes": dict(record.schemes.most_common()),
                "reasons": {str(reason): n for reason, n in record.reasons.most_common()},
                "in_loops": record.unsuited[Reason.LOOP],
                "outliers": record.outliers,
                "transfer_seconds": record.transfer,
                "sampled": record.sampled,
                "spread": record.spread if record.sampled else None,
                "int8_loss": record.int8_loss if record.sampled else None,
                "cancellation": record.cancellation if record.sampled else None,
                "fed_by": dict(record.fed_by),
                "callers": dict(record.callers.most_common()),
            }
        )
    return made


def modules_of(trace: "Trace") -> set[str]:
    """The modules whose products were called."""
    return set(map(module_of, (*trace.others, *trace.sites)))


def places_of(
    program: Program, imported: Iterable[SourceModule], modules: Collection[str]
) -> Places:
    """The call sites of the program and of the modules that it imported.

    modules: the libraries' modules that are read; others are not. A library's file is named from
    its package's folder, and a notebook's cell replaces its file.
    """
    from mixpert_py.passes.pipeline import analyze  # not above: a program found in the cache
    from mixpert_py.sources import notebook_file

    found = imported_places(imported, modules, project_folder(program))
    with suppress(SourceError):  # too large to be rewritten, or changed meanwhile
        if program.is_notebook:
            raw = project.read_whole(Path(program.filename))
            return found | notebook_file.cell_sites(raw, program.module)
        found |= {
            site.id: (program.filename, site) for site in analyze(program.source, program.module)
        }
    return found


def imported_places(
    imported: Iterable[SourceModule], modules: Collection[str], folder: str | None
) -> Places:
    """The call sites of imported modules; see `places_of`. folder: of the program's project."""
    from mixpert_py.passes.pipeline import analyze

    places: Places = {}
    for path, module in reversed([*imported]):
        is_own = folder is not None and project.is_in(path, folder)
        if not is_own and module not in modules:
            continue
        shown = path if is_own else relative(path, module)
        with suppress(SourceError):
            source = project.read_whole(path)
            places |= {site.id: (shown, site) for site in analyze(source, module)}
    return places


def json_place(path: str | None) -> Path | None:
    """The absolute path of the profile, because the program may change the current folder.

    Raises SourceError, before anything runs, if it cannot be written there.
    """
    if path is None:
        return None
    with writing(path):
        place = Path(os.path.abspath(path))
        files.require_place(place)
    return place


def write_json(records: list[dict[str, Any]], path: Path) -> None:
    """Write the profile to a file. Raises SourceError if that fails."""
    with writing(path):
        files.replace(path, json.dumps(records, indent=2).encode())


def stale_lines(program: Program, hook: ImportHook, trace: "Trace") -> list[str]:
    """Lines about called sites without an entry in their module's plan, entries without a site, and
    a plan that knows no module of the program.

    The plans are those in force at the program's end; one scheme for all products has none. If
    there are several modules, modules that no plan knows are passed over.
    """
    context = contexts.current()
    if context.scheme is not None:
        return []
    planned = {module_of(entry.id) for entry in context.plan.site} if context.plan else set()
    places = places_of(program, hook.rewritten.values(), modules_of(trace) | planned)
    sites = [site for site, (_, place) in places.items() if place.reason is None]
    others = places.keys() | _torch_places().keys()  # of which no plan need know
    sites += [site for site in trace.sites if site not in others]  # in a file that `rewrite` wrote
    modules = [program.module, *(module for _, module in hook.rewritten.values())]
    lines = []
    modules = [*dict.fromkeys([*modules, *map(module_of, sites)])]
    files = {module: path for path, module in hook.rewritten.values()}
    files[program.module] = program.filename
    given = context.plan
    if given is not None and given.site and not any(contexts.knows(given, it) for it in modules):
        names = {entry.id.partition(":")[0] for entry in given.site}
        lines.append(f"the plan is for another program: {', '.join(sorted(names))}")
    for module in modules:
        plan = context.plan_of(module)
        if plan is None or not contexts.knows(plan, module):
            continue
        found = {site: plan.find(site) for site in sites if site.startswith(f"{module}:")}
        for site in trace.sites:
            if site in found and found[site] is None:
                lines.append(f"{_shown(program, places, site)}: not in the plan (stale?)")
        known = {entry.id for entry in found.values() if entry is not None}
        for entry in plan.site:
            forward = entry.id.replace(".backward#", "#")
            written = forward.encode() in program.source  # a call in a rewritten file
            if entry.id in known or written or module_of(entry.id) != module:
                continue
            if is_in_source(entry.id) or not _has_torch_site(found, files.get(module), forward):
                expression = f" ({entry.expression})" if entry.expression else ""
                lines.append(f"{entry.id}{expression}: in the plan, and not in the program")
    return lines


def _has_torch_site(sites: Iterable[str], path: str | None, forward: str) -> bool:
    """Whether a module still has the product `forward`, to which a call site of PyTorch's own
    products belongs.

    It is one of the module's call sites, or an expression of its file if PyTorch makes it too. True
    for notebooks and archives, which are not searched. A renamed function does not matter.
    """
    from mixpert_py.passes.torch_graphs import ends_of_sites

    tail = forward.partition("/")[2]
    if is_in_source(forward):
        return any(site.endswith(f"/{tail}") for site in sites)
    is_text = path is not None and path.endswith(".py") and os.path.isfile(path)
    return not is_text or forward.partition("~")[2] in ends_of_sites(path or "")


def _shown(program: Program, places: Places, site: str) -> str:
    """A site by its place and expression, or by its id if no more is known."""
    if site not in places:
        return site
    path, place = places[site]
    file = program.argv[0] if path == program.filename else path
    return f"{file}:{place.line}: {place.expression}"


def refused_lines(program: Program) -> list[str]:
    """A line if the program's own file cannot be rewritten, so that its products are native."""
    from mixpert_py.passes.pipeline import analyze

    try:
        with named(program.argv[0], program.module):
            analyze(program.source, program.module)
    except SourceError as error:
        return [f"{error}: it runs as it is"]
    return []


def fallback_lines(program: Program, records: list[dict[str, Any]]) -> list[str]:
    """Lines about sites with calls that did not take their planned scheme."""
    lines = []
    for record in records:
        if record["reasons"].keys() - {Reason.FUNCTION}:  # which is no product of a plan
            reasons = record["reasons"].items()
            why = ", ".join(f"{reason} ({counted(n, 'call')})" for reason, n in reasons)
            path = program.argv[0] if record["path"] == program.filename else record["path"]
            place = f"{path}:{record['line']}" if record["line"] else record["id"]
            lines.append(f"{place}: {record['expression']}: ran native: {why}")
    return lines


class Callers:
    """Finds the innermost line of the program around a library's product while it runs.

    packages: the rewritten packages. seconds: the time spent on finding the lines.
    """

    def __init__(self, shown: Shown, packages: Sequence[str]) -> None:
        self._shown = cache(shown)
        self._packages = packages
        self.seconds = 0.0

    def __call__(self, site: str) -> str | None:
        """`file:line` of the program's call; None for its own products, and in other threads."""
        start = perf_counter()
        line = self._line() if matches(module_of(site), self._packages) else None
        self.seconds += perf_counter() - start
        return line

    def _line(self) -> str | None:
        frame = sys._getframe(2)
        while frame is not None:
            name = str(frame.f_globals.get("__name__"))
            file = self._shown(frame.f_code.co_filename)
            if file is not None and not matches(name, ("mixpert_py", *self._packages)):
                return f"{file}:{frame.f_lineno}"
            frame = frame.f_back  # type: ignore[assignment]
        return None


def files_of(program: Program, folder: str | None) -> Shown:
    """A test for files of the program. folder: of its project; None without one."""

    def shown(file: str) -> str | None:
        if file == program.filename:
            return program.argv[0]
        is_own = folder is not None and project.is_in(file, folder)
        return os.path.relpath(file, folder) if is_own else None

    return shown
