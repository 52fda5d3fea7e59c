"""Packages that are rewritten together with a program's own modules: `--package sklearn`.

A pattern is a package's name, which covers all modules below it, or a glob of module names that
begins with a package's name, such as `sklearn.decomposition.*`.
"""

import importlib.util
import os
import sys
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from pathlib import Path

import msgspec

from mixpert_py.errors import SourceError, short
from mixpert_py.plan import Package, Plan, module_of

# What this package computes with: rewritten, its products would call themselves.
UNDERNEATH = ("mixpert_py", "numpy", "cupy", "numba")


def matches(module: str, patterns: Iterable[str]) -> bool:
    """Return whether a pattern names a module or a package around it."""
    return any(
        module == pattern or module.startswith(f"{pattern}.") or fnmatchcase(module, pattern)
        for pattern in patterns
    )


def top(name: str) -> str:
    """The package with which a module or a pattern begins."""
    return name.partition(".")[0]


def require(patterns: Iterable[str], path: Sequence[str] = ()) -> None:
    """Raise SourceError, in one line, for a pattern that can match nothing to rewrite.

    path: folders in which packages are looked up before those of sys.path. Nothing is imported.
    """
    for pattern in patterns:
        package = top(pattern)
        named = f"--package {short(pattern)}"
        if not package.isidentifier():
            raise SourceError(f"{named}: give a package, or a glob behind one, as in 'sklearn.*'")
        if package in UNDERNEATH:
            raise SourceError(f"{named}: products are made with it, so it stays as it is")
        spec = find(package, path)
        if spec is None:
            raise SourceError(f"{named}: no such package is installed")
        if spec.submodule_search_locations is None:
            if isinstance(spec.loader, ExtensionFileLoader):
                raise SourceError(f"{named}: an extension module, which has no Python source")
            if not (spec.origin or "").endswith(".py"):
                raise SourceError(f"{named}: has no Python source ({spec.origin})")


def find(package: str, path: Sequence[str] = ()) -> ModuleSpec | None:
    """The spec of a package, found without importing it, or None."""
    theirs = list(sys.path)
    sys.path[:0] = [folder for folder in path if folder]
    try:
        return importlib.util.find_spec(package)
    except (ImportError, ValueError):  # `__spec__` is None in what some programs put together
        return None
    finally:
        sys.path[:] = theirs


def files(patterns: Iterable[str]) -> dict[str, str]:
    """The Python files of packages, found without importing them, each named as by `relative`.

    Raises SourceError as `require` does, and for a pattern that no module matches.
    """
    patterns = list(patterns)
    require(patterns)
    found: dict[str, str] = {}
    for pattern in patterns:
        spec = find(top(pattern))
        assert spec is not None
        places = list(spec.submodule_search_locations or ())
        folders = [(place, os.path.dirname(place)) for place in places]
        mine = [
            (str(file), file.relative_to(above))
            for place, above in folders
            for file in sorted(Path(place).rglob("*.py"))
        ]
        if not places and spec.origin:
            mine = [(spec.origin, Path(os.path.basename(spec.origin)))]
        named = {file: name.as_posix() for file, name in mine if matches(_module(name), [pattern])}
        if not named:
            raise SourceError(f"--package {short(pattern)}: it has no such module")
        found |= named
    return found


def _module(file: Path) -> str:
    """The module of a file whose path begins with its package's folder."""
    return ".".join(file.with_suffix("").parts).removesuffix(".__init__")


def described(patterns: Iterable[str]) -> list[Package]:
    """The packages as a plan has them: each with its distribution and version."""
    from importlib import metadata  # not above: it takes longer than all else here

    patterns = list(patterns)
    if not patterns:  # to list all that is installed takes a quarter of a second
        return []
    distributions = metadata.packages_distributions()
    found = []
    for pattern in dict.fromkeys(patterns):
        names = sorted(set(distributions.get(top(pattern), ())))
        name = names[0] if len(names) == 1 else ""
        found.append(Package(pattern, name, installed(name) if name else ""))
    return found


def installed(distribution: str) -> str:
    """The version of a distribution; empty if it is not installed."""
    from importlib import metadata

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def applicable(plan: Plan) -> tuple[Plan, list[str]]:
    """A plan without entries for packages of another version, and a line for each such package."""
    others, lines = [], []
    for package in plan.package:
        here = installed(package.distribution) if package.distribution else package.version
        if here != package.version:
            others.append(package.name)
            what = f"{package.distribution} {package.version}"
            is_here = f"{here} is installed" if here else "it is not installed"
            lines.append(f"the plan is for {what}, and {is_here}: its products run as without one")
    if not others:
        return plan, lines
    sites = [site for site in plan.site if not matches(module_of(site.id), others)]
    return msgspec.structs.replace(plan, site=sites), lines


def unused_line(package: str) -> str:
    """A line about a package that was named and that the program did not import."""
    return f"package {package}: the program imported no module of it"


def relative(path: str, module: str) -> str:
    """A module's path from the folder that contains its package, with slashes on every machine.

    module: the first part of the file's site ids.
    """
    parts = path.replace(os.sep, "/").split("/")
    below = module.count(".") + (parts[-1] == "__init__.py")
    return "/".join(parts[-below - 1 :])
