"""Files before and after rewriting, for `mixpert rewrite` and `sites`."""

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from mixpert_py import config
from mixpert_py.errors import MixPertError, named
from mixpert_py.passes.finder import CallSite
from mixpert_py.passes.pipeline import analyze, rewrite
from mixpert_py.plan import Plan
from mixpert_py.sources import project
from mixpert_py.sources.in_memory import collecting_seldom, require_known_comments


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A file before and after, or the problem why there is no result.

    sites: its products; those with a reason stay unchanged. cells: in a notebook, the number of
    each site's code cell, in which its line is counted.
    """

    path: str
    sites: tuple[CallSite, ...] = ()
    before: bytes = b""
    after: bytes = b""
    problem: str | None = None
    cells: tuple[int, ...] = ()

    @property
    def changed(self) -> bool:
        return self.before != self.after

    @property
    def left(self) -> tuple[CallSite, ...]:
        return tuple(site for site in self.sites if site.reason is not None)

    def diff(self) -> str:
        """The change as a unified diff; bytes that are not UTF-8 are escaped."""
        old, new = (
            text.decode("utf-8", "backslashreplace").splitlines(keepends=True)
            for text in (self.before, self.after)
        )
        lines = difflib.unified_diff(old, new, f"a/{self.path}", f"b/{self.path}")
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)

    def records(self) -> list[dict[str, Any]]:
        """The sites, ready for JSON."""
        return [
            {
                "id": site.id,
                "path": f"{self.path}:cell_{cell}" if cell else self.path,
                "line": site.line,
                "column": site.column,
                "kind": site.kind,
                "expression": site.expression,
                "rewritten": site.reason is None,
                "reason": site.reason,
            }
            for site, cell in zip_longest(self.sites, self.cells)
        ]


def rewrite_files(
    files: Sequence[str],
    plan: Plan | None = None,
    scheme: str | None = None,
) -> Iterator[Rewritten]:
    """Rewrite each file in memory, in order. A file that cannot be rewritten has a `problem`."""
    for path in files:
        with collecting_seldom():
            try:
                source, module = project.read(path), config.module_name(Path(path))
                result = rewrite_source(source, path, module, plan, scheme)
            except MixPertError as error:
                result = Rewritten(path, problem=str(error))
        yield result


def rewrite_source(
    source: bytes,
    path: str,
    module: str,
    plan: Plan | None = None,
    scheme: str | None = None,
) -> Rewritten:
    """Rewrite a source text.

    Raises SourceError if it does not parse, or has an unknown comment or scheme.
    """
    with named(path, module):
        if path.endswith(project.NOTEBOOK):
            from mixpert_py.sources import notebook_file  # not above: a script needs no part of it

            made = notebook_file.rewrite_notebook(source, module, plan, scheme)
            return Rewritten(path, made.sites, source, made.source, cells=made.cells)
        require_known_comments(source, module)
        sites = analyze(source, module)
        return Rewritten(path, sites, source, rewrite(source, module, plan, scheme))
