"""`install`: rewrites modules in memory when they are imported.

The hook asks the finders behind it for a module, and gives the spec that they return a loader with
rewritten code. Other modules keep their own loaders, so they are imported, cached and reported as
without the hook.
"""

import os
import sys
import threading
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from time import perf_counter
from types import CodeType, ModuleType
from typing import Any

from mixpert_py import config, sources
from mixpert_py.errors import SourceError, short
from mixpert_py.plan import Plan
from mixpert_py.runtime.program_frames import warn
from mixpert_py.sources import in_memory
from mixpert_py.sources.modules import matches

OURSELVES = "mixpert_py"


def install(
    packages: Iterable[str] | None = None,
    plan: str | os.PathLike[str] | Plan | None = None,
    scheme: str | None = None,
) -> "ImportHook":
    """Rewrite the modules of these packages, and all modules below them, when they are imported.

    packages: names such as "net" or "net.layers", or globs of module names, such as "net.*.deep";
    None: the packages that the running program's project names under `[tool.mixpert] packages`.
    plan: a Plan or a plan file, which comes before `scheme`; a product in neither runs under the
    context of its call. The call-site ids are those of `mixpert rewrite`.

    Warns once about modules that are imported already, because they stay unchanged. `left` of the
    returned hook names all modules that stay unchanged, with reasons. End the hook with
    `uninstall`, or use it in a `with` statement; modules that it has rewritten stay rewritten.

    Raises PlanError for an unknown scheme or a malformed plan.
    """
    if packages is None:
        packages = config.project_packages()
        if not packages:
            raise SourceError("give packages, or `packages` under [tool.mixpert] in pyproject.toml")
    names = (packages,) if isinstance(packages, str) else tuple(packages)
    hook = ImportHook(names, plan=config.given_plan(plan, scheme), scheme=scheme)
    hook.check_modules()
    hook.install()
    return hook


class ImportHook:
    """Rewrites the modules of `packages`, or those in `folder`, while it is installed.

    rewritten: maps the names of rewritten modules to their files and the first parts of their site
    ids. left: maps names of unchanged modules to reasons. seconds: the time that rewriting took.
    """

    def __init__(
        self,
        packages: Sequence[str] = (),
        folder: str | None = None,
        plan: Plan | None = None,
        scheme: str | None = None,
    ) -> None:
        self.packages = packages
        self.folder = folder
        self.plan = plan
        self.scheme = scheme
        self.rewritten: dict[str, tuple[str, str]] = {}
        self.left: dict[str, str] = {}
        self._refused: dict[str, str] = {}  # those of `left` that cannot be rewritten
        self.seconds = 0.0
        self._here = threading.local()

    def install(self) -> None:
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def uninstall(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def __enter__(self) -> "ImportHook":
        self.install()
        return self

    def __exit__(self, *error: object) -> None:
        self.uninstall()

    def check_modules(self) -> None:
        """Warn about modules that are imported already, and note packages that were not found."""
        late = sorted(name for name in list(sys.modules) if self._is_named(name))
        for name in late:
            self.left[name] = "imported before the hook was installed"
        for name in {package.partition(".")[0] for package in self.packages}:
            if name == OURSELVES:
                self.left[name] = "MixPert-Py itself is never rewritten"
            elif name not in sys.modules and _found_by_others(self, name, None, None) is None:
                self.left[name] = "not found"
        if late:
            warn(
                f"install: imported already, so left as they are: {short(', '.join(late))}; "
                "call install before they are imported"
            )

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec from the other finders, with rewritten code if the module is to be rewritten."""
        if not self._is_named(name) and (self.folder is None or _is_own(name)):
            return None
        if getattr(self._here, "rewriting", False):
            return None  # what rewriting itself imports would have to be rewritten before it
        spec = _found_by_others(self, name, path, target)
        origin = spec.origin if spec and spec.has_location else None
        is_inside = self.folder and origin and sources.is_in(origin, self.folder)
        if spec is None or not (self._is_named(name) or is_inside):
            return spec
        self.rewritten.pop(name, None)
        self.left.pop(name, None)
        self._refused.pop(name, None)
        self._here.rewriting = True
        start = perf_counter()
        try:
            with in_memory.collecting_seldom():
                reason = self._rewrite(spec)
        finally:
            self._here.rewriting = False
            self.seconds += perf_counter() - start
        if reason is not None:
            self.left[name] = reason
        return spec

    def _rewrite(self, spec: ModuleSpec) -> str | None:
        """Give a module rewritten code, or note why that is not possible."""
        loader = spec.loader
        # A loader of another kind may do with the source what it likes: pytest's rewrites it, too.
        if type(loader) is not SourceFileLoader:
            return f"not loaded from a source file, but by {type(loader).__name__}"
        file = str(spec.origin)
        module = config.module_name(Path(file))
        try:
            text = Path(file).read_bytes()
            made = in_memory.rewritten(text, module, file, self.plan, self.scheme)
        except (SourceError, OSError) as error:
            self._refused[spec.name] = str(error)
            return str(error)  # if it is the module's own fault, Python says so when it loads it
        except Exception as error:  # an import must not fail because of us
            self._refused[spec.name] = f"internal error: {type(error).__name__}: {error}"
            return self._refused[spec.name]
        if made is None:
            return "no product to rewrite"
        spec.loader = _RewrittenLoader(spec.name, file, made.code)
        self.rewritten[spec.name] = file, module
        return None

    def refused_lines(self) -> list[str]:
        """A line for each imported module whose file cannot be rewritten, so that its products are
        native.

        Files that Python does not accept either were not imported.
        """
        return [
            f"{name}: {why.removeprefix(f'{name}: ')}: it runs as it is"
            for name, why in self._refused.items()
            if name in sys.modules
        ]

    def without_modules(self) -> list[str]:
        seen = {*self.rewritten, *self.left}
        return [name for name in self.packages if not any(matches(m, [name]) for m in seen)]

    def _is_named(self, name: str) -> bool:
        return not _is_own(name) and matches(name, self.packages)


class _RewrittenLoader(SourceFileLoader):
    def __init__(self, name: str, path: str, code: CodeType) -> None:
        super().__init__(name, path)
        self.code = code

    def get_code(self, fullname: str) -> CodeType:
        return self.code


def _is_own(name: str) -> bool:
    return name.partition(".")[0] == OURSELVES


def _found_by_others(
    hook: ImportHook, name: str, path: Sequence[str] | None, target: ModuleType | None
) -> ModuleSpec | None:
    """The spec from the finders behind a hook. The first of several hooks rewrites the module."""
    finders: list[Any] = list(sys.meta_path)
    behind = finders[finders.index(hook) + 1 :] if hook in finders else finders
    for finder in behind:
        if isinstance(finder, ImportHook) or not hasattr(finder, "find_spec"):
            continue
        spec: ModuleSpec | None = finder.find_spec(name, path, target)
        if spec is not None:
            return spec
    return None
