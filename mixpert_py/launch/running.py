"""`mixpert run`: runs a rewritten program in this process, and says what its products did."""

import json
import os
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any

from mixpert_py import compiled, config, files, launch, sources
from mixpert_py.errors import SourceError, writing
from mixpert_py.import_hook import ImportHook
from mixpert_py.launch import Program
from mixpert_py.plan import Plan, module_of
from mixpert_py.runtime.backends import require_backend
from mixpert_py.runtime.context import Context, Modules, SchemeUse
from mixpert_py.runtime.modules import covered_for
from mixpert_py.runtime.reasons import Reason
from mixpert_py.sources.modules import relative, require

if TYPE_CHECKING:
    from mixpert_py.passes.finder import CallSite
    from mixpert_py.runtime.products.torch_sites import Place
    from mixpert_py.runtime.tracing.trace import Trace

# Site id → the file that it is in, and the call site.
Places = dict[str, tuple[str, "CallSite"]]


def project_hook(script: str | None, packages: Sequence[str] = ()) -> ImportHook:
    """The installed import hook for the project of a script, or of the current folder.

    If that folder was removed there is no project. packages: also rewritten; by default those that
    the project names. Raises SourceError for a package that cannot be rewritten.
    """
    hook = ImportHook(folder=_folder_of(script))
    hook.packages = tuple(packages) or sources.packages(hook.folder)
    require(hook.packages, [os.path.dirname(script or "") or os.curdir])
    hook.install()
    return hook


def project_folder(program: Program) -> str | None:
    """The folder of a program's project; for a module, that of the current folder."""
    return _folder_of(program.filename if program.spec is None else None)


def _folder_of(script: str | None) -> str | None:
    start = launch.current_folder()
    if script is not None and (start is not None or os.path.isabs(script)):
        place = os.path.realpath(script)
        start = place if os.path.isdir(place) else os.path.dirname(place)
    return None if start is None else sources.folder_of(start)


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
    rewritten = launch.compiled(program)
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
    """Run a program's rewritten code until its last thread ends, and return its exit code.

    takes_small: as of `covered_for`. insert_path: as of `launch.execute`.
    """
    code = 0
    compiled.follow()
    with covered_for(context.backend, takes_small=takes_small):
        try:
            folder, packages = hook.folder, hook.packages
            launch.execute(program, rewritten, context, folder, packages, insert_path=insert_path)
        except SystemExit as stop:
            if stop.code is None or isinstance(stop.code, int):
                code = stop.code or 0
            else:
                print(stop.code, file=sys.stderr)
                code = 1
        except BaseException as error:
            code = launch.report(error)
        launch.wait_for_threads()
    return code


def profile(program: Program, hook: ImportHook, trace: "Trace") -> list[dict[str, Any]]:
    """Records of the called call sites, longest first, ready for JSON."""
    places: dict[str, tuple[str, CallSite | Place]] = {
        site: (place.path, place) for site, place in places_by_torch().items()
    }
    places |= places_of(program, hook.rewritten.values(), modules_of(trace))
    return records(trace, places, program.filename)


def places_by_torch() -> "dict[str, Place]":
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
                "fed_by": dict(record.fed_by),
            }
        )
    return made


def modules_of(trace: "Trace") -> set[str]:
    """The modules whose products were called."""
    return set(map(module_of, (*trace.others, *trace.sites)))


def places_of(
    program: Program, imported: Iterable[tuple[str, str]], modules: Collection[str]
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
            raw = sources.read_whole(Path(program.filename))
            return found | notebook_file.cell_sites(raw, program.module)
        found |= {
            site.id: (program.filename, site) for site in analyze(program.source, program.module)
        }
    return found


def imported_places(
    imported: Iterable[tuple[str, str]], modules: Collection[str], folder: str | None
) -> Places:
    """The call sites of imported modules; see `places_of`. folder: of the program's project."""
    from mixpert_py.passes.pipeline import analyze

    places: Places = {}
    for path, module in reversed([*imported]):
        is_own = folder is not None and sources.is_in(path, folder)
        if not is_own and module not in modules:
            continue
        shown = path if is_own else relative(path, module)
        with suppress(SourceError):
            source = sources.read_whole(path)
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
