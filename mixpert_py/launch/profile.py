"""`mixpert run --profile`: what the products of a program did, by call site."""

import sys
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mixpert_py import sources
from mixpert_py.errors import SourceError
from mixpert_py.import_hook import ImportHook
from mixpert_py.launch.program import Program, project_folder
from mixpert_py.plan import module_of
from mixpert_py.runtime.reasons import Reason
from mixpert_py.sources.modules import relative

if TYPE_CHECKING:
    from mixpert_py.passes.finder import CallSite
    from mixpert_py.runtime.products.torch_sites import Place
    from mixpert_py.runtime.tracing.trace import Trace

# Site id → the file that it is in, and the call site.
Places = dict[str, tuple[str, "CallSite"]]


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
    """Records of a trace's call sites, longest first. elsewhere: the file of unknown places."""
    made = []
    called = trace.others | trace.sites
    for site, record in sorted(called.items(), key=lambda item: -item[1].seconds):
        forward = site.replace(".backward#", "#")  # of one in rewritten code
        path, place = (places.get(site) or places.get(forward)) or (elsewhere, None)
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
