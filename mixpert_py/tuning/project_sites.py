"""The call sites of a program: of its own file, and of the project's files that it imports."""

import hashlib
import os
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from mixpert_py.errors import SourceError, named
from mixpert_py.launch.profile import Places, imported_places
from mixpert_py.launch.program import Program, project_folder
from mixpert_py.passes.dataflow.graph import Dependencies, dependencies, joined
from mixpert_py.passes.finder import CallSite
from mixpert_py.passes.pipeline import analyze, require_syntax
from mixpert_py.plan import is_in_source, module_of
from mixpert_py.sources import in_memory, modules, notebook_file, read_whole, shown_path

TORCH = "torch"
LIBRARY = "library:call/matmul~0#0"  # stands for every product of libraries, whose flow is not read


@dataclass(frozen=True, slots=True)
class ProjectSites:
    """The products that a tuning may lower, those of the program's own file first.

    main: the program's own file. files: site → the file, or a notebook's cell, that it is in.
    modules: the first parts of site ids. flow: between all of them. sources: the sha256 of each
    file, so that a tuning is known again. uses_torch: whether one imports PyTorch, which makes
    products itself.
    """

    main: str
    sites: Mapping[str, CallSite]
    files: Mapping[str, str]
    modules: tuple[str, ...]
    flow: Dependencies
    sources: tuple[str, ...]
    uses_torch: bool = False

    def file_shown(self, site: str) -> str:
        """The file of a site; empty where only the program's own file has products."""
        return shown_path(self.files[site]) if set(self.files.values()) != {self.main} else ""


def read_sites(program: Program, packages: Collection[str] = ()) -> ProjectSites:
    """The call sites of a program. Raises SourceError where its own file cannot be rewritten, and
    warns of other files that cannot.

    packages: those that are rewritten as well. Which of their products the program calls is known
    once it has run (`with_called`); what it computes by calls into them may come from products.
    """
    with named(program.argv[0], program.module):
        require_syntax(program.source, program.module)
    files = _files(program)
    found: dict[str, tuple[CallSite, ...]] = {}
    for file in files:
        try:
            with named(file.path, file.module):
                products = analyze(file.source, file.module)
        except SourceError as error:
            if file is files[0]:
                raise
            with suppress(SourceError):  # where Python refuses it too, it does not run
                require_syntax(file.source, file.module)
                in_memory.warn_that_it_runs_as_it_is(
                    file.path, str(error).removeprefix(f"{file.path}: ")
                )
            products = ()
        found[file.path] = tuple(site for site in products if site.reason is None)
    ids = {path: frozenset(site.id for site in sites) for path, sites in found.items()}
    tops = {TORCH, *map(modules.top, packages)}
    libraries = {
        file.path: {
            spelled: frozenset({LIBRARY})
            for spelled, name in modules.imported_names(file.source)
            if modules.top(name) in tops
        }
        for file in files
    }
    for path, calls in libraries.items():
        ids[path] |= frozenset({LIBRARY} if calls else ())
    reached = _reached(files, ids)
    flows = []
    for file in files:
        theirs = {spelled: reached[path] for spelled, path in file.imports.items() if reached[path]}
        imported = theirs | libraries[file.path]
        if ids[file.path] or (imported and file is files[0]):
            with named(file.path, file.module):
                flows.append(dependencies(file.source, file.module, imported))
    shown = {site.id: (path, site) for path, sites in found.items() for site in sites}
    if program.is_notebook:
        in_cells = notebook_file.cell_sites(read_whole(program.filename), program.module)
        shown |= {site: place for site, place in in_cells.items() if site in shown}
    return ProjectSites(
        program.filename,
        {site.id: site for _, site in shown.values()},
        {name: path for name, (path, _) in shown.items()},
        tuple(dict.fromkeys(file.module for file in files)),
        without_library(joined(flows)),
        tuple(hashlib.sha256(file.source).hexdigest() for file in files),
        any(modules.top(spelled) == TORCH for calls in libraries.values() for spelled in calls),
    )


def with_called(
    project: ProjectSites,
    rewritten: Iterable[tuple[str, str]],
    torch: Mapping[str, tuple[str, int, str]],
    called: Collection[str],
) -> ProjectSites:
    """Return the sites of a program, and the other sites that a run has called: sites of libraries,
    and products that PyTorch makes itself.

    rewritten: path and module of library files. torch: `places` of `torch_places`. called: sites.
    """
    names = set(map(module_of, called)) - set(project.modules)
    known = {site: (project.files[site], found) for site, found in project.sites.items()}
    imported = imported_places(rewritten, names, None)
    known |= {site: place for site, place in imported.items() if site in called}
    known |= torch_places(known, torch, called, project.main)
    return replace(
        project,
        sites={site: found for site, (_, found) in known.items()},
        files={site: file for site, (file, _) in known.items()},
        modules=tuple(dict.fromkeys([*project.modules, *map(module_of, known)])),
    )


def torch_places(
    known: Places, places: Mapping[str, tuple[str, int, str]], called: Iterable[str], main: str
) -> Places:
    """Where the sites are whose products PyTorch makes itself.

    known: those of the source. places: file, line and expression of others; the program's own file
    `main` stands for what is not known. called: the sites of a run or of a plan.
    """
    found = {}
    for site in called:
        forward = site.replace(".backward#", "#")
        if is_in_source(site) or site in known:
            continue
        file, line, expression = places.get(site, (main, 0, "(by PyTorch)"))
        if forward in known:
            file, place = known[forward]
            line, expression = place.line, place.expression
        if forward != site:
            expression = f"backward of {expression}"
        found[site] = file, CallSite(site, TORCH, line, 1, expression, None, (0, 0))
    return found


def library_modules(names: Iterable[str], packages: Collection[str]) -> list[tuple[str, str]]:
    """Path and module of those modules that are of these packages, without importing them."""
    found = []
    for module in dict.fromkeys(names):
        if modules.matches(module, packages):
            with suppress(ImportError, ValueError):
                spec = modules.spec_without_imports(module)
                if spec is not None and spec.has_location and spec.origin is not None:
                    found.append((spec.origin, module))
    return found


def without_library(flow: Dependencies) -> Dependencies:
    """The flow without the site that stands for all of libraries: variables keep what they hold."""
    if LIBRARY not in flow.ids:
        return flow
    return replace(
        flow,
        edges=frozenset(edge for edge in flow.edges if LIBRARY not in edge),
        sinks=tuple(site for site in flow.sinks if site != LIBRARY),
        ids=tuple(site for site in flow.ids if site != LIBRARY),
    )


def _files(program: Program) -> list[modules.ProjectFile]:
    main = modules.ProjectFile(program.filename, program.module, program.source)
    folder = project_folder(program)
    if folder is None:
        return [main]
    package = program.spec.parent or "" if program.spec else ""
    return modules.project_files(main, folder, [program.path or os.getcwd()], package)


def _reached(
    files: list[modules.ProjectFile], ids: Mapping[str, frozenset[str]]
) -> dict[str, frozenset[str]]:
    """File → the sites that a call into it may reach: its own, and those of what it imports."""
    imports = {file.path: set(file.imports.values()) for file in files}
    reached = {}
    for file in files:
        seen, pending = {file.path}, [file.path]
        while pending:
            new = imports.get(pending.pop(), set()) - seen
            seen |= new
            pending += new
        reached[file.path] = frozenset().union(*(ids.get(path, frozenset()) for path in seen))
    return reached
