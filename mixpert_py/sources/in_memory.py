"""Compiles rewritten source without a file, for `run`, the import hook, the decorator and
notebooks.

The rewritten syntax tree is compiled. Its nodes keep their places, so tracebacks and debuggers show
the user's own lines.
"""

import ast
import builtins
import gc
import importlib.util
import marshal
import os
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import CodeType
from typing import NamedTuple

import mixpert_py
from mixpert_py import __version__, config
from mixpert_py.errors import PlanError, SourceError
from mixpert_py.plan import Plan
from mixpert_py.runtime.own_files import CodeCache

ALIAS = "_mixpert"  # how the name of the added import begins
# New objects between two garbage collections. Syntax trees are made and dropped as a whole, and
# Python's own 700 cost a quarter of the time of a rewriting.
OBJECTS = 200_000


class InMemory(NamedTuple):
    """A file's rewritten code. names: the names under which the code refers to this package."""

    code: CodeType
    names: tuple[str, ...]


def rewritten(
    source: bytes, module: str, file: str, plan: Plan | None = None, scheme: str | None = None
) -> InMemory | None:
    """The code of a rewritten source; None if it has nothing to rewrite.

    The code is kept in the user's cache folder. Raises SourceError, which names the module, if it
    cannot be rewritten or Python does not accept it.
    """
    # The key of a file's code, from its place and plan, and the state of its source. A text has no
    # place, and the current folder, which would be asked for, may have been removed.
    full = os.path.abspath(file) if os.path.exists(file) else file
    sites = [(site.id, site.scheme) for site in plan.site] if plan else []
    key = (full, module, _python(), sites, scheme)
    kept = (sha256(source).digest(), file, importlib.util.MAGIC_NUMBER, _version())
    place, state = (repr(it).encode("utf-8", "surrogatepass") for it in (key, kept))
    cache = CodeCache(config.cache_folder() / "code")
    payload = cache.load(place, state)
    if payload is None:
        with warnings.catch_warnings(record=True) as caught:
            payload = _payload(source, module, file, plan, scheme)
        for warning in caught:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
        # A cell or a line of a shell is not met again. What the compiler warned of in a script,
        # `python` says in every run. And Python may be set to write no bytecode at all.
        if not caught and os.path.isfile(file) and not sys.dont_write_bytecode:
            cache.keep(place, state, payload)
    if not payload:
        return None
    made = InMemory(*marshal.loads(payload))
    name_everywhere(made.names)
    return made


def name_everywhere(names: Iterable[str]) -> None:
    """Make these names builtins, for code that deletes them or has other globals."""
    vars(builtins).update(dict.fromkeys(names, mixpert_py))


def warn_that_it_runs_as_it_is(file: str, reason: str) -> None:
    """Warn that a file of the program cannot be rewritten, although Python accepts it."""
    warnings.warn_explicit(f"mixpert: {reason}: it runs as it is", UserWarning, file, 1, "__main__")


def rewritten_tree(
    source: bytes, module: str, file: str, plan: Plan | None, scheme: str | None
) -> ast.Module:
    """The rewritten tree, whose names for this package are known everywhere."""
    from mixpert_py.passes.pipeline import rewrite_tree

    require_known_comments(source, module)
    tree = rewrite_tree(source, module, file, plan, scheme)
    name_everywhere(_imported_names(tree.body))
    return tree


def _payload(source: bytes, module: str, file: str, plan: Plan | None, scheme: str | None) -> bytes:
    """The rewritten code as bytes; empty if there is nothing to rewrite."""
    from mixpert_py.passes.pipeline import analyze

    written_before = ALIAS.encode() in source
    if not written_before and all(site.reason for site in analyze(source, module)):
        return b""
    try:
        tree = rewritten_tree(source, module, file, plan, scheme)
        # What an earlier rewriting, or a person, has written may import this package anywhere.
        names = tuple(_imported_names(ast.walk(tree) if written_before else tree.body))
        if not names:
            return b""
        code = compile(tree, file, "exec", dont_inherit=True)
    except SyntaxError as error:  # `return` outside a function: found by the compiler only
        raise SourceError(f"{module}: line {error.lineno}: {error.msg}") from None
    except RecursionError:
        raise SourceError(f"{module}: nested too deeply for Python's compiler") from None
    return marshal.dumps((code, names))


def _imported_names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name == "mixpert_py" and is_alias(alias.asname or ""):
                    yield str(alias.asname)


def is_alias(name: str) -> bool:
    """Whether rewritten code uses this name for this package."""
    return name.startswith(ALIAS)


@cache
def _python() -> tuple[object, ...]:
    """What compiled code depends on: `-X no_debug_ranges`, say, leaves out its columns."""
    *_, column = next(iter(compile("0", "", "eval").co_positions()))
    return sys.implementation.cache_tag, sys.flags.optimize, column is None


@cache
def _version() -> tuple[object, ...]:
    """Our version, and the state of the files that rewrite: a checkout's change often."""
    own = Path(__file__)
    files = [own, *sorted((own.parents[1] / "passes").rglob("*.py"))]
    return (__version__, *((f.name, f.stat().st_size, f.stat().st_mtime_ns) for f in files))


def require_known_comments(source: bytes, module: str) -> None:
    """Raise SourceError, naming the line, for an unknown `# mixpert:` comment near products."""
    wrong = unknown_comment(source, module)
    if wrong is not None:
        line, reason = wrong
        raise SourceError(f"{module}: line {line}: {reason}")


def unknown_comment(source: bytes, module: str) -> tuple[int, str] | None:
    """The first line with an unknown comment, and what is wrong with it."""
    from mixpert_py.passes.pipeline import pragmas  # not above: cached code needs no pass

    comments = pragmas(source, module)
    wrong = {
        line: f"{comment!r} is not known: wanted `# mixpert: off`, `# mixpert: off-file` or "
        "`# mixpert: scheme=NAME`"
        for line, comment in comments.unknown.items()
    }
    for line, name in comments.schemes.items():
        try:
            config.check_scheme(name)
        except PlanError as error:
            wrong[line] = str(error)
    return min(wrong.items(), default=None)


@contextmanager
def collecting_seldom() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(OBJECTS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
